//! YAML to trees, one document after the other; the entries of a `List` one by one, so that a list of a hundred
//! thousand pods is never in memory as a whole.
//!
//! Aliases are followed and merge keys (`<<`) merged. What aliases repeat is counted before it is copied: a file
//! that grows without bounds is refused at [`LIMIT_ALIASED`] values.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, options};

use super::tree::{Key, Position, Scalar, Tree, Value};

/// The most values that aliases may add to a file. Ten thousand uses of a template of a hundred values fit.
pub const LIMIT_ALIASED: usize = 1_000_000;
/// How deep values may lie in each other; no kind of Kubernetes comes near.
pub const LIMIT_DEPTH: usize = 100;

/// Why a file cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Where.
    pub place: Position,
    /// What is wrong there.
    pub problem: String,
}

/// Reads all documents; `each` gets every one, and the entries of its `items` before it, with true.
pub fn read<'a>(text: &'a str, each: &mut dyn FnMut(Tree<'a>, bool)) -> Result<(), Broken> {
    let limits = options! {
        flow_nesting_limit: LIMIT_DEPTH, block_nesting_limit: LIMIT_DEPTH, emit_comments: false,
        simple_key_max_lookahead: 4096
    };
    let parser = Parser::new_from_str_with_options(text, limits);
    let mut builder = Builder { each, open: Vec::new(), anchors: HashMap::new(), aliased: 0 };
    for event in parser {
        let (event, span) = event.map_err(|error| Broken {
            place: place(error.marker()),
            problem: format!("is not YAML: {}", error.info()),
        })?;
        builder.event(event, span)?;
    }
    Ok(())
}

fn place(marker: &granit_parser::Marker) -> Position {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: number(marker.line()).max(1), column: number(marker.col()).saturating_add(1) }
}

struct Builder<'a, 'f> {
    each: &'f mut dyn FnMut(Tree<'a>, bool),
    /// Lists and maps that are not complete, from the outermost on.
    open: Vec<Open<'a>>,
    /// Values that can be repeated.
    anchors: HashMap<usize, Tree<'a>>,
    aliased: usize,
}

struct Open<'a> {
    place: Position,
    anchor: usize,
    content: Content<'a>,
}

enum Content<'a> {
    List(Vec<Tree<'a>>),
    Map { entries: Vec<(Key<'a>, Tree<'a>)>, key: Option<Key<'a>> },
}

impl<'a> Builder<'a, '_> {
    fn event(&mut self, event: Event<'a>, span: Span) -> Result<(), Broken> {
        let place = place(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                // `!!str 5` is a text.
                let text_by_tag = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                let plain = style == ScalarStyle::Plain && !text_by_tag;
                self.add(Tree { place, value: Value::Scalar(Scalar { text, plain }) }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(place, anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                self.open(place, anchor, Content::Map { entries: Vec::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.repeat(anchor, place),
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, place: Position, anchor: usize, content: Content<'a>) -> Result<(), Broken> {
        if self.open.len() >= LIMIT_DEPTH {
            return Err(Broken { place, problem: format!("lies more than {LIMIT_DEPTH} values deep") });
        }
        self.open.push(Open { place, anchor, content });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Broken> {
        let Some(Open { place, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(entries) => Value::List(entries),
            Content::Map { entries, .. } => Value::Map(merge(entries)?),
        };
        self.add(Tree { place, value }, anchor)
    }

    fn repeat(&mut self, anchor: usize, place: Position) -> Result<(), Broken> {
        let Some(tree) = self.anchors.get(&anchor) else {
            return Err(Broken { place, problem: "is an alias of a value that it is part of".to_owned() });
        };
        let (weight, depth) = (tree.weight(), depth(tree));
        self.count(weight, place)?;
        if self.open.len() + depth > LIMIT_DEPTH {
            return Err(Broken { place, problem: format!("lies more than {LIMIT_DEPTH} values deep") });
        }
        let copy = self.anchors.get(&anchor).map(|tree| Tree { place, value: tree.value.clone() });
        copy.map_or(Ok(()), |copy| self.add(copy, 0))
    }

    /// Counts what is about to be copied.
    fn count(&mut self, weight: usize, place: Position) -> Result<(), Broken> {
        self.aliased = self.aliased.saturating_add(weight);
        if self.aliased > LIMIT_ALIASED {
            return Err(Broken { place, problem: format!("aliases add up to more than {LIMIT_ALIASED} values") });
        }
        Ok(())
    }

    /// Puts a complete value where it belongs.
    fn add(&mut self, tree: Tree<'a>, anchor: usize) -> Result<(), Broken> {
        if anchor != 0 {
            self.count(tree.weight(), tree.place)?;
            self.anchors.insert(anchor, tree.clone());
        }
        let in_items = match &*self.open {
            [Open { content: Content::Map { key: Some(key), .. }, .. }, _] => key.text == "items",
            _ => false,
        };
        let Some(parent) = self.open.last_mut() else {
            (self.each)(tree, false);
            return Ok(());
        };
        match &mut parent.content {
            Content::List(_) if in_items => (self.each)(tree, true),
            Content::List(entries) => entries.push(tree),
            Content::Map { entries, key } => match key.take() {
                None => {
                    let Value::Scalar(scalar) = tree.value else {
                        return Err(Broken { place: tree.place, problem: "is a key that is not a word".to_owned() });
                    };
                    *key = Some(Key { place: tree.place, text: scalar.text });
                }
                Some(key) => entries.push((key, tree)),
            },
        }
        Ok(())
    }
}

fn depth(tree: &Tree<'_>) -> usize {
    match &tree.value {
        Value::Scalar(_) => 0,
        Value::List(entries) => 1 + entries.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
    }
}

/// Merges `<<` and rejects duplicate keys.
fn merge<'a>(entries: Vec<(Key<'a>, Tree<'a>)>) -> Result<Vec<(Key<'a>, Tree<'a>)>, Broken> {
    let (merged, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key.text == "<<");
    super::tree::refuse_twice(&own)
        .map_err(|key| Broken { place: key.place, problem: format!("the key `{}` is there twice", key.text) })?;
    for (key, value) in merged {
        let sources = match value.value {
            Value::Map(entries) => vec![entries],
            Value::List(list) => list
                .into_iter()
                .map(|tree| if let Value::Map(entries) = tree.value { Ok(entries) } else { Err(tree.place) })
                .collect::<Result<_, _>>()
                .map_err(|place| Broken { place, problem: "cannot be merged: it is not a map".to_owned() })?,
            Value::Scalar(_) => {
                return Err(Broken { place: key.place, problem: "merges something that is not a map".to_owned() });
            }
        };
        for (key, value) in sources.into_iter().flatten() {
            if !own.iter().any(|(present, _)| present.text == key.text) {
                own.push((key, value));
            }
        }
    }
    Ok(own)
}
