//! Random expressions: nothing panics, and nothing costs more than it may.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::super::{Error, Program, SchemaType, Type, Value};
use super::recording::{RULES, cases};
use crate::schema::custom::props::Props;

/// What an evaluation may cost here: small, so that the limit is met often.
const LIMIT: u64 = 20_000;
const WORK: u64 = 200_000;
/// Work that one step can do at most after the last check, and so the most by which a limit can be passed.
const SLACK: u64 = 50_000;

fn schema() -> Json {
    json!({"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 100}, "t": {"type": "string"}, "n": {"type": "integer"},
        "x": {"type": "number"}, "b": {"type": "boolean"},
        "l": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}},
        "nums": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "ll": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
        }},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "o": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
        "ios": {"x-kubernetes-int-or-string": true},
        "d": {"type": "string", "format": "date-time"}, "dur": {"type": "string", "format": "duration"},
        "by": {"type": "string", "format": "byte"},
    }})
}

fn object() -> Json {
    json!({
        "s": "hello", "t": "Übergröße", "n": 7, "x": 2.5, "b": true, "l": ["a", "b", "c"], "nums": [3, 1, 2],
        "set": ["q", "r"], "ll": [{"name": "one", "v": 1}, {"name": "two", "v": 2}], "m": {"k": 1, "z": 26},
        "o": {"a": "A", "b": 2}, "ios": "50%", "d": "2024-02-29T12:30:45.5Z", "dur": "1h30m", "by": "aGVsbG8=",
    })
}

/// All expressions of the recordings.
fn corpus() -> Vec<String> {
    fn collect(value: &Json, found: &mut Vec<String>) {
        match value {
            Json::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Json::String(text) if matches!(key.as_str(), "rule" | "messageExpression") => {
                            found.push(text.clone());
                        }
                        other => collect(other, found),
                    }
                }
            }
            Json::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    cases(RULES).iter().for_each(|case| collect(case, &mut found));
    found.retain(|text| text.len() < 300);
    found
}

/// Compiles a text and, if it can be compiled, estimates and evaluates it.
fn try_out(text: &str, schema: &Props, object: &Json) {
    let decl = SchemaType::new(schema, false, "selfType").unwrap();
    let variables: [(Arc<str>, Type); 2] = [("self".into(), decl.ty.clone()), ("oldSelf".into(), decl.ty.clone())];
    for wanted in [Type::Bool, Type::String] {
        let Ok(program) = Program::compile(text, &variables, &wanted) else { continue };
        let _ = program.max_cost(&decl);
        let of = || Value::of(object, schema, false);
        let mut work = WORK;
        let (result, cost) = program.evaluate(vec![("self".into(), of()), ("oldSelf".into(), of())], LIMIT, &mut work);
        assert!(work <= WORK, "{text}");
        assert!(cost <= LIMIT + SLACK, "{text} cost {cost}");
        match result {
            Ok(Value::Bool(_)) => assert!(matches!(wanted, Type::Bool), "{text}"),
            Ok(Value::String(_)) => assert!(matches!(wanted, Type::String), "{text}"),
            // Values of unknown type can turn out to be anything.
            Ok(_) | Err(Error::NoOverload | Error::Other(_)) => {}
            Err(Error::Limit) => assert!(cost > LIMIT || work == 0 || cost.saturating_mul(2) > LIMIT, "{text}"),
        }
    }
}

#[test]
fn fuzz_changed_texts() {
    let (corpus, object) = (corpus(), object());
    let schema = Props::parse(&schema(), "").unwrap();
    let pieces = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        "?",
        ":",
        "!",
        "-",
        "'",
        "\"",
        "\\",
        "r'",
        "b'",
        "0x",
        "1e9",
        "u",
        "&&",
        "||",
        "==",
        " in ",
        "self",
        "oldSelf",
        ".all(x, ",
        ".map(x, ",
        ".?",
        "[?",
        "optional.of(",
        "'%s'.format([",
        "é",
        "\u{0}",
        "9223372036854775807",
        ".matches('(a*)*')",
        ".split('')",
        ".replace('', 'aa')",
    ];
    let changes = proptest::collection::vec((any::<usize>(), 0..pieces.len(), 0..4_u8, any::<usize>()), 0..5);
    proptest!(ProptestConfig::with_cases(3000), |(seed in any::<usize>(), changes in changes)| {
        let mut text: Vec<char> = corpus[seed % corpus.len()].chars().collect();
        for (at, piece, how, other) in changes {
            let at = at % (text.len() + 1);
            match how {
                0 => { text.splice(at..at, pieces[piece].chars()); }
                1 if at < text.len() => { text.remove(at); }
                2 => { text.splice(at.., corpus[other % corpus.len()].chars()); }
                _ => { let half: Vec<char> = text[..at].to_vec(); text.extend(half); }
            }
        }
        let text: String = text.into_iter().take(2000).collect();
        try_out(&text, &schema, &object);
    });
}

/// Expressions that mostly compile, by a grammar with types.
fn expression() -> impl Strategy<Value = (String, u8)> {
    // 0 is a number, 1 a text, 2 a truth, 3 a list of texts.
    let leaf = prop_oneof![
        prop::sample::select(vec!["1", "self.n", "-3", "9223372036854775807", "size(self.nums)", "self.m.k"])
            .prop_map(|text| (text.to_owned(), 0)),
        prop::sample::select(vec!["'a'", "self.s", "self.t", "self.o.a", "''", "'(a+)+$'", "self.ll[0].name"])
            .prop_map(|text| (text.to_owned(), 1)),
        prop::sample::select(vec!["true", "self.b", "has(self.s)", "false"]).prop_map(|text| (text.to_owned(), 2)),
        prop::sample::select(vec!["self.l", "self.set", "['x', 'y']", "self.ll.map(e, e.name)"])
            .prop_map(|text| (text.to_owned(), 3)),
    ];
    leaf.prop_recursive(8, 64, 3, |inner| {
        (inner.clone(), inner.clone(), inner, any::<u8>()).prop_map(|(a, b, c, choice)| combine(a, &b, &c, choice))
    })
}

fn combine(a: (String, u8), b: &(String, u8), c: &(String, u8), choice: u8) -> (String, u8) {
    let (text, other, third) = (&a.0, &b.0, &c.0);
    let made = match (a.1, b.1, choice % 6) {
        (0, 0, 0) => (format!("({text} + {other})"), 0),
        (0, 0, 1) => (format!("({text} * {other} - 1)"), 0),
        (0, 0, 2) => (format!("({text} / {other})"), 0),
        (0, 0, _) => (format!("({text} < {other})"), 2),
        (0, ..) => (format!("string({text})"), 1),
        (1, 1, 0) => (format!("({text} + {other})"), 1),
        (1, 1, 1) => (format!("{text}.matches({other})"), 2),
        (1, 1, 2) => (format!("{text}.split({other})"), 3),
        (1, 1, 3) => (format!("{text}.replace({other}, {text})"), 1),
        (1, 1, _) => (format!("{text}.findAll({other})"), 3),
        (1, 0, _) => (format!("{text}.substring({other})"), 1),
        (1, _, 0) => (format!("size({text})"), 0),
        (1, _, 1) => (format!("{text}.upperAscii()"), 1),
        (1, ..) => (format!("'%s and %s'.format([{text}, {other}])"), 1),
        (2, 2, 0) => (format!("({text} && {other})"), 2),
        (2, 2, _) => (format!("({text} || !{other})"), 2),
        (2, kind, _) if kind == c.1 => (format!("({text} ? {other} : {third})"), kind),
        (2, ..) => (format!("!{text}"), 2),
        (3, 3, 0) => (format!("({text} + {other})"), 3),
        (3, 3, _) => (format!("({text} == {other})"), 2),
        (3, 2, 0) => (format!("{text}.all(x, {other} || x == '')"), 2),
        (3, 2, _) => (format!("{text}.filter(y, {other} || y != 'a')"), 3),
        (3, 1, 0) => (format!("{text}.map(x, x + {other})"), 3),
        (3, 1, 1) => (format!("{text}.join({other})"), 1),
        (3, 1, _) => (format!("({other} in {text})"), 2),
        _ => (format!("{text}.size()"), 0),
    };
    if made.0.len() > 4000 { a } else { made }
}

#[test]
fn fuzz_expressions_that_compile() {
    let object = object();
    let schema = Props::parse(&schema(), "").unwrap();
    proptest!(ProptestConfig::with_cases(1500), |((text, kind) in expression())| {
        let rule = match kind {
            0 => format!("{text} == 1"),
            1 => format!("{text} == ''"),
            2 => text,
            _ => format!("{text}.size() > 1"),
        };
        try_out(&rule, &schema, &object);
    });
}
