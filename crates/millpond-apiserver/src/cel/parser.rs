//! The parser: from tokens to a syntax tree. Macros are expanded on the way.
//!
//! The parser stops at the first syntax error; its words follow those of upstream's generated parser where a
//! person would notice. Every recursion is bounded: by [`MAX_DEPTH`] for nesting and by [`MAX_NODES`] for what
//! macros make of the text.

use std::sync::Arc;

use super::ast::{Entry, Expr, Item, Kind, Literal, operators};
use super::issues::Issues;
use super::lexer::{self, Token, TokenKind};
use super::macros;

/// How deep an expression may nest, in source and as a tree.
const MAX_DEPTH: u16 = 250;
/// Characters of one expression.
const MAX_SOURCE: usize = 100_000;
/// Nodes of one expression. `optMap` repeats its target, so chains of it double the tree with each link.
const MAX_NODES: usize = 50_000;

const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The tokens that an operand can begin with, in upstream's order; `closing` may stand there as well.
fn operands(closing: &str) -> String {
    format!(
        "{{'[', '{{', '(', {closing}'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, \
         IDENTIFIER}}"
    )
}

/// Parses an expression. None when there are issues.
pub(super) fn parse(source: &str, issues: &mut Issues) -> Option<Parsed> {
    let size = source.chars().count();
    if size > MAX_SOURCE {
        issues.report_whole(format!("expression code point size exceeds limit: size: {size}, limit {MAX_SOURCE}"));
        return None;
    }
    let tokens = lexer::tokens(source, issues);
    let mut parser = Parser { tokens, index: 0, nesting: 0, builder: Builder::default() };
    let result = parser.whole();
    let Builder { depths, issues: found, .. } = parser.builder;
    for (position, message) in found {
        issues.report(position, message);
    }
    match result {
        Ok(expression) => {
            let depth = depths.get(expression.id as usize).copied().unwrap_or(0);
            return issues.is_empty().then_some(Parsed { expression, nodes: depths.len(), depth });
        }
        Err(Stop::At(position, message)) => issues.report(position, message),
        Err(Stop::Whole(message)) => issues.report_whole(message),
    }
    None
}

/// A tree.
pub(super) struct Parsed {
    pub(super) expression: Expr,
    /// How many numbers its nodes have.
    pub(super) nodes: usize,
    /// How deep the tree is.
    pub(super) depth: u16,
}

/// Why parsing ended early.
pub(super) enum Stop {
    /// A problem at a place.
    At(u32, String),
    /// A problem of the whole.
    Whole(String),
}

type Parse<T> = Result<T, Stop>;

/// Makes nodes and keeps count of them.
#[derive(Default)]
pub(super) struct Builder {
    /// Depth of the tree below each node.
    depths: Vec<u16>,
    /// Problems that do not stop the parser.
    issues: Vec<(u32, String)>,
}

impl Builder {
    /// A node at a place.
    pub(super) fn node(&mut self, position: u32, kind: Kind) -> Parse<Expr> {
        let below = self.depth_below(&kind);
        if below >= MAX_DEPTH {
            return Err(Stop::Whole("max recursion depth exceeded".to_owned()));
        }
        if self.depths.len() >= MAX_NODES {
            return Err(Stop::Whole(format!("expression has more than {MAX_NODES} parts")));
        }
        let id = self.depths.len() as u32;
        self.depths.push(below + 1);
        Ok(Expr { id, position, kind })
    }

    fn depth(&self, expression: &Expr) -> u16 {
        self.depths.get(expression.id as usize).copied().unwrap_or(0)
    }

    fn depth_below(&self, kind: &Kind) -> u16 {
        let deepest = |parts: &mut dyn Iterator<Item = &Expr>| parts.map(|part| self.depth(part)).max().unwrap_or(0);
        match kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => 0,
            Kind::Select { operand, .. } => self.depth(operand),
            Kind::Call { target, arguments, .. } => deepest(&mut target.as_deref().into_iter().chain(arguments)),
            Kind::List { items } => deepest(&mut items.iter().map(|item| &item.value)),
            Kind::Map { entries } => deepest(&mut entries.iter().flat_map(|entry| [&entry.key, &entry.value])),
            Kind::Comprehension(fold) => {
                deepest(&mut [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result].into_iter())
            }
        }
    }

    pub(super) fn call(&mut self, position: u32, function: &str, arguments: Vec<Expr>) -> Parse<Expr> {
        self.node(position, Kind::Call { function: function.into(), target: None, arguments })
    }

    pub(super) fn report(&mut self, position: u32, message: impl Into<String>) {
        self.issues.push((position, message.into()));
    }

    /// The same expression with numbers of its own.
    pub(super) fn copy(&mut self, expression: &Expr) -> Parse<Expr> {
        let boxed = |this: &mut Self, part: &Expr| this.copy(part).map(Box::new);
        let kind = match &expression.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Struct { .. } => expression.kind.clone(),
            Kind::Select { operand, field, test } => {
                Kind::Select { operand: boxed(self, operand)?, field: field.clone(), test: *test }
            }
            Kind::Call { function, target, arguments } => Kind::Call {
                function: function.clone(),
                target: target.as_deref().map(|target| boxed(self, target)).transpose()?,
                arguments: arguments.iter().map(|argument| self.copy(argument)).collect::<Parse<_>>()?,
            },
            Kind::List { items } => Kind::List {
                items: items
                    .iter()
                    .map(|item| Ok(Item { value: self.copy(&item.value)?, optional: item.optional }))
                    .collect::<Parse<_>>()?,
            },
            Kind::Map { entries } => Kind::Map {
                entries: entries
                    .iter()
                    .map(|entry| {
                        let (key, value) = (self.copy(&entry.key)?, self.copy(&entry.value)?);
                        Ok(Entry { key, value, optional: entry.optional })
                    })
                    .collect::<Parse<_>>()?,
            },
            Kind::Comprehension(fold) => {
                let mut copy = fold.clone();
                for part in [&mut copy.range, &mut copy.init, &mut copy.condition, &mut copy.step, &mut copy.result] {
                    *part = self.copy(part)?;
                }
                Kind::Comprehension(copy)
            }
        };
        self.node(expression.position, kind)
    }
}

struct Parser {
    tokens: Vec<Token>,
    index: usize,
    nesting: u16,
    builder: Builder,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.index]
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        self.peek().is_symbol(symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        let token = self.peek();
        token.kind == TokenKind::Identifier && token.text == word
    }

    /// Whether an identifier comes that is not a word of the grammar.
    fn is_identifier(&self) -> bool {
        let token = self.peek();
        token.starts_operand()
            && token.kind == TokenKind::Identifier
            && !matches!(token.text.as_str(), "true" | "false" | "null")
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.index].clone();
        if token.kind != TokenKind::End {
            self.index += 1;
        }
        token
    }

    /// Consumes the symbol if it comes next, and returns its place.
    fn take(&mut self, symbol: &str) -> Option<u32> {
        self.is_symbol(symbol).then(|| self.next().position)
    }

    fn unexpected(&self, expected: &str) -> Stop {
        let token = self.peek();
        Stop::At(token.position, format!("Syntax error: mismatched input '{}' expecting {expected}", token.text))
    }

    /// Skips one token if the one behind it is what was expected; else parsing ends.
    fn skip_to(&mut self, fits: impl FnOnce(&Token) -> bool, expected: &str) -> Parse<()> {
        match self.tokens.get(self.index + 1) {
            Some(behind) if fits(behind) => {
                let token = self.next();
                let message = format!("Syntax error: extraneous input '{}' expecting {expected}", token.text);
                self.builder.report(token.position, message);
                Ok(())
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn expect(&mut self, symbol: &str) -> Parse<u32> {
        if let Some(position) = self.take(symbol) {
            return Ok(position);
        }
        if self.peek().kind == TokenKind::End && matches!(symbol, ")" | "]") {
            let position = self.peek().position;
            return Err(Stop::At(position, format!("Syntax error: missing '{symbol}' at '<EOF>'")));
        }
        self.skip_to(|behind| behind.is_symbol(symbol), &format!("'{symbol}'"))?;
        Ok(self.next().position)
    }

    /// The end of a list or map, or a comma before its next part.
    fn expect_end_or_comma(&mut self, end: &str) -> Parse<()> {
        if self.is_symbol(end) || self.is_symbol(",") {
            return Ok(());
        }
        self.skip_to(|behind| behind.is_symbol(end) || behind.is_symbol(","), &format!("{{'{end}', ','}}"))
    }

    fn whole(&mut self) -> Parse<Expr> {
        let expression = self.expression()?;
        if self.peek().kind != TokenKind::End {
            self.skip_to(|behind| behind.kind == TokenKind::End, "<EOF>")?;
        }
        Ok(expression)
    }

    fn expression(&mut self) -> Parse<Expr> {
        if self.nesting >= MAX_DEPTH {
            return Err(Stop::Whole(format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        self.nesting += 1;
        let result = self.conditional();
        self.nesting -= 1;
        result
    }

    fn conditional(&mut self) -> Parse<Expr> {
        let condition = self.logical(operators::OR)?;
        let Some(position) = self.take("?") else { return Ok(condition) };
        let then = self.logical(operators::OR)?;
        self.expect(":")?;
        let otherwise = self.expression()?;
        self.builder.call(position, operators::CONDITIONAL, vec![condition, then, otherwise])
    }

    /// Terms joined by `||` or `&&`, as a balanced tree.
    fn logical(&mut self, function: &str) -> Parse<Expr> {
        let symbol = if function == operators::OR { "||" } else { "&&" };
        let term = |this: &mut Self| {
            if function == operators::OR { this.logical(operators::AND) } else { this.relation() }
        };
        let mut terms = vec![term(self)?];
        let mut places = Vec::new();
        while let Some(position) = self.take(symbol) {
            terms.push(term(self)?);
            places.push(position);
        }
        self.balance(function, &mut terms.into_iter(), &places)
    }

    /// A tree over terms in order: the operator in the middle is the root.
    fn balance(&mut self, function: &str, terms: &mut dyn Iterator<Item = Expr>, places: &[u32]) -> Parse<Expr> {
        if places.is_empty() {
            // There is one term more than there are operators.
            return terms.next().ok_or_else(|| Stop::Whole("no term".to_owned()));
        }
        let middle = places.len() / 2;
        let left = self.balance(function, terms, &places[..middle])?;
        let right = self.balance(function, terms, &places[middle + 1..])?;
        self.builder.call(places[middle], function, vec![left, right])
    }

    fn relation(&mut self) -> Parse<Expr> {
        let mut left = self.sum()?;
        loop {
            let operator = if self.is_word("in") {
                operators::IN
            } else {
                let found = ["<=", ">=", "==", "!=", "<", ">"].into_iter().find(|symbol| self.is_symbol(symbol));
                match found {
                    Some("<=") => "_<=_",
                    Some(">=") => "_>=_",
                    Some("==") => operators::EQUALS,
                    Some("!=") => operators::NOT_EQUALS,
                    Some("<") => "_<_",
                    Some(_) => "_>_",
                    None => return Ok(left),
                }
            };
            let position = self.next().position;
            let right = self.sum()?;
            left = self.builder.call(position, operator, vec![left, right])?;
        }
    }

    fn sum(&mut self) -> Parse<Expr> {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.is_symbol("+") => operators::ADD,
                () if self.is_symbol("-") => "_-_",
                () => return Ok(left),
            };
            let position = self.next().position;
            let right = self.product()?;
            left = self.builder.call(position, operator, vec![left, right])?;
        }
    }

    fn product(&mut self) -> Parse<Expr> {
        let mut left = self.unary()?;
        loop {
            let operator = match () {
                () if self.is_symbol("*") => "_*_",
                () if self.is_symbol("/") => "_/_",
                () if self.is_symbol("%") => "_%_",
                () => return Ok(left),
            };
            let position = self.next().position;
            let right = self.unary()?;
            left = self.builder.call(position, operator, vec![left, right])?;
        }
    }

    fn unary(&mut self) -> Parse<Expr> {
        for (symbol, function) in [("!", operators::NOT), ("-", operators::NEGATE)] {
            let Some(position) = self.take(symbol) else { continue };
            let mut count = 1;
            while self.take(symbol).is_some() {
                count += 1;
            }
            if symbol == "-" && count == 1 && matches!(self.peek().kind, TokenKind::Int | TokenKind::Float) {
                let literal = self.number(Some(position))?;
                return self.member_of(literal);
            }
            let operand = self.member()?;
            // Two of a kind cancel out.
            if count % 2 == 0 {
                return Ok(operand);
            }
            return self.builder.call(position, function, vec![operand]);
        }
        self.member()
    }

    fn member(&mut self) -> Parse<Expr> {
        let primary = self.primary()?;
        self.member_of(primary)
    }

    /// Selections, calls and indices behind an operand.
    fn member_of(&mut self, operand: Expr) -> Parse<Expr> {
        let mut operand = operand;
        loop {
            if let Some(position) = self.take(".") {
                operand = self.selection(operand, position)?;
            } else if let Some(position) = self.take("[") {
                let optional = self.take("?").is_some();
                let index = self.expression()?;
                self.expect("]")?;
                let function = if optional { operators::OPTIONAL_INDEX } else { operators::INDEX };
                operand = self.builder.call(position, function, vec![operand, index])?;
            } else if self.is_symbol("{")
                && let Some(name) = operand.qualified_name()
            {
                operand = self.structure(&name)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn selection(&mut self, operand: Expr, position: u32) -> Parse<Expr> {
        let optional = self.take("?").is_some();
        if self.peek().kind == TokenKind::EscapedIdentifier {
            let token = self.next();
            self.builder.report(token.position, "unsupported syntax: '`'");
            return Ok(operand);
        }
        if !self.is_identifier() {
            return Err(self.no_alternative(position));
        }
        let token = self.next();
        let field: Arc<str> = token.text.into();
        if optional {
            let field = self.builder.node(token.position, Kind::Literal(Literal::String(field)))?;
            return self.builder.call(position, operators::OPTIONAL_SELECT, vec![operand, field]);
        }
        if let Some(open) = self.take("(") {
            let arguments = self.arguments()?;
            return self.call_or_macro(open, field, Some(operand), arguments);
        }
        self.builder.node(position, Kind::Select { operand: Box::new(operand), field, test: false })
    }

    /// The text after a dot is no name. The message shows it from the dot on.
    fn no_alternative(&self, dot: u32) -> Stop {
        let token = self.peek();
        let text = if token.kind == TokenKind::End { "" } else { &token.text };
        let gap = " ".repeat((token.position - dot).saturating_sub(1) as usize);
        let gap = if text.is_empty() { "" } else { gap.as_str() };
        Stop::At(token.position, format!("Syntax error: no viable alternative at input '.{gap}{text}'"))
    }

    fn call_or_macro(
        &mut self,
        position: u32,
        function: Arc<str>,
        target: Option<Expr>,
        arguments: Vec<Expr>,
    ) -> Parse<Expr> {
        match macros::expand(&mut self.builder, position, &function, target, arguments)? {
            macros::Expansion::Done(expression) => Ok(expression),
            macros::Expansion::NoMacro(target, arguments) => {
                let kind = Kind::Call { function, target: target.map(Box::new), arguments };
                self.builder.node(position, kind)
            }
        }
    }

    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let mut arguments = Vec::new();
        if self.take(")").is_some() {
            return Ok(arguments);
        }
        if !self.peek().starts_operand() {
            self.skip_to(Token::starts_operand, &operands("')', "))?;
        }
        loop {
            arguments.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    fn primary(&mut self) -> Parse<Expr> {
        let token = self.peek().clone();
        match token.kind {
            TokenKind::Int | TokenKind::Float => return self.number(None),
            TokenKind::Uint | TokenKind::String | TokenKind::Bytes => return self.literal(),
            TokenKind::Identifier if self.is_identifier() => return self.name(""),
            TokenKind::Identifier if token.text != "in" => {
                self.next();
                let literal = match token.text.as_str() {
                    "true" => Literal::Bool(true),
                    "false" => Literal::Bool(false),
                    _ => Literal::Null,
                };
                return self.builder.node(token.position, Kind::Literal(literal));
            }
            _ => {}
        }
        if self.take("(").is_some() {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(position) = self.take("[") {
            return self.list(position);
        }
        if let Some(position) = self.take("{") {
            return self.map(position);
        }
        if self.take(".").is_some() {
            if self.is_identifier() {
                return self.name(".");
            }
            return Err(self.unexpected("IDENTIFIER"));
        }
        self.skip_to(Token::starts_operand, &operands(""))?;
        self.primary()
    }

    fn name(&mut self, dot: &str) -> Parse<Expr> {
        let token = self.next();
        if RESERVED.contains(&token.text.as_str()) {
            self.builder.report(token.position, format!("reserved identifier: {}", token.text));
        }
        let name: Arc<str> = format!("{dot}{}", token.text).into();
        if let Some(open) = self.take("(") {
            let arguments = self.arguments()?;
            return self.call_or_macro(open, name, None, arguments);
        }
        self.builder.node(token.position, Kind::Ident(name))
    }

    fn number(&mut self, sign: Option<u32>) -> Parse<Expr> {
        let token = self.next();
        let position = sign.unwrap_or(token.position);
        let text = if sign.is_some() { format!("-{}", token.text) } else { token.text.clone() };
        let literal = if token.kind == TokenKind::Float {
            text.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Double)
        } else {
            let parsed = match token.text.strip_prefix("0x") {
                Some(digits) if sign.is_some() => i64::from_str_radix(&format!("-{digits}"), 16),
                Some(digits) => i64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            parsed.ok().map(Literal::Int)
        };
        let literal = literal.unwrap_or_else(|| {
            let kind = if token.kind == TokenKind::Float { "double" } else { "int" };
            self.builder.report(position, format!("invalid {kind} literal"));
            Literal::Null
        });
        self.builder.node(position, Kind::Literal(literal))
    }

    fn literal(&mut self) -> Parse<Expr> {
        let token = self.next();
        let literal = match token.kind {
            TokenKind::Uint => {
                let digits = &token.text[..token.text.len() - 1];
                let parsed = match digits.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => digits.parse(),
                };
                parsed.map(Literal::Uint).map_err(|_| "invalid uint literal")
            }
            TokenKind::Bytes => lexer::unquote(&token.text, true).map(|bytes| Literal::Bytes(bytes.into())),
            _ => {
                lexer::unquote(&token.text, false).map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into()))
            }
        };
        let literal = literal.unwrap_or_else(|problem| {
            self.builder.report(token.position, problem);
            Literal::Null
        });
        self.builder.node(token.position, Kind::Literal(literal))
    }

    fn list(&mut self, position: u32) -> Parse<Expr> {
        let mut items = Vec::new();
        while !self.is_symbol("]") {
            let optional = self.take("?").is_some();
            if !optional && self.is_symbol(",") {
                self.next();
                self.expect("]")?;
                return self.builder.node(position, Kind::List { items });
            }
            items.push(Item { value: self.expression()?, optional });
            self.expect_end_or_comma("]")?;
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("]")?;
        self.builder.node(position, Kind::List { items })
    }

    fn map(&mut self, position: u32) -> Parse<Expr> {
        let mut entries = Vec::new();
        if self.take(",").is_some() {
            self.expect("}")?;
            return self.builder.node(position, Kind::Map { entries });
        }
        while !self.is_symbol("}") {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            entries.push(Entry { key, value, optional });
            self.expect_end_or_comma("}")?;
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        self.builder.node(position, Kind::Map { entries })
    }

    /// `Name{…}`: there are no such types here, so only the name matters.
    fn structure(&mut self, name: &str) -> Parse<Expr> {
        let position = self.expect("{")?;
        while !self.is_symbol("}") {
            self.take("?");
            if !self.is_identifier() {
                return Err(self.unexpected("{'}', ',', IDENTIFIER}"));
            }
            self.next();
            self.expect(":")?;
            self.expression()?;
            self.expect_end_or_comma("}")?;
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        self.builder.node(position, Kind::Struct { name: name.into() })
    }
}
