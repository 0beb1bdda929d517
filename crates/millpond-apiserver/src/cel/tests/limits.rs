//! Expressions made to hurt: each ends with a message, quickly counted, on a thread with a small stack.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::super::{CompileError, Error, Program, SchemaType, Type, Value};
use crate::schema::custom::props::Props;

/// What tokio gives to a worker.
const STACK_BYTES: usize = 2 << 20;
const LIMIT: u64 = 1_000_000;
/// Less than an object may take, so that builds without optimisation get through it.
const WORK: u64 = 1_000_000;

fn schema() -> Props {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}},
    }});
    Props::parse(&schema, "").unwrap()
}

/// The outcome of a rule for an object, as one line.
fn outcome(text: String, object: Json) -> String {
    outcome_within(text, object, WORK)
}

fn outcome_within(text: String, object: Json, work: u64) -> String {
    let run = move || {
        let schema = schema();
        let decl = SchemaType::new(&schema, false, "selfType").unwrap();
        let variables: [(Arc<str>, Type); 1] = [("self".into(), decl.ty.clone())];
        let program = match Program::compile(&text, &variables, &Type::Bool) {
            Ok(program) => program,
            Err(CompileError::Issues(issues)) => return issues.lines().next().unwrap_or_default().to_owned(),
            Err(other) => return other.to_string(),
        };
        let _ = program.max_cost(&decl);
        let mut work = work;
        match program.evaluate(vec![("self".into(), Value::of(&object, &schema, false))], LIMIT, &mut work) {
            (Ok(Value::Bool(flag)), _) => flag.to_string(),
            (Ok(_), _) => "another value".to_owned(),
            (Err(Error::Limit), _) => "limit".to_owned(),
            (Err(error), _) => error.to_string(),
        }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run).unwrap().join().unwrap()
}

fn compiled(text: String) -> String {
    outcome(text, json!({"s": "a", "l": [1]}))
}

#[test]
fn nesting_has_a_limit() {
    let around = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    for (open, inner, close) in [
        ("(", "1 == 1", ")"),
        ("[", "", "]"),
        ("{1: ", "1", "}"),
        ("size(", "'a'", ")"),
        ("true ? true : (", "true", ")"),
        ("self.l.all(x, ", "true", ")"),
        ("[1].map(x, ", "x", ")"),
        ("self.l[", "0", "]"),
        ("optional.of(", "1", ")"),
        ("!(", "true", ")"),
        ("-(", "1", ")"),
    ] {
        for times in [240, 260, 5000, 15_000] {
            let text = around(open, inner, close, times);
            let message = compiled(text);
            assert!(!message.is_empty(), "{open} {times}");
            if times >= 260 {
                assert!(message.starts_with("ERROR: "), "{open} {times}: {message}");
            }
        }
    }
    for chain in [".s", ".l", ".map(x, x)", "[0]", ".?s", " + 1", " == 1", " ? 1 : 1", " && true", ".size()"] {
        for times in [100, 300, 9000] {
            assert!(!compiled(format!("self{}", chain.repeat(times))).is_empty());
        }
    }
}

#[test]
fn what_doubles_is_stopped() {
    let doubled = format!("optional.of(1){}.hasValue()", ".optMap(x, x)".repeat(40));
    assert!(compiled(doubled).starts_with("ERROR: "));
    let folds = format!("{}true{}", "[1,2,3,4,5,6,7,8,9,0].all(x, ".repeat(12), ")".repeat(12));
    assert_eq!(compiled(folds), "limit");
    let texts = format!("self.s{}.size() > 0", ".replace('', 'aaaaaaaaaaaaaaaa')".repeat(30));
    assert_eq!(compiled(texts), "limit");
    let lists = format!("{}[1]{}.size() > 0", "[1,2,3,4,5,6,7,8,9,0].map(x, ".repeat(9), ")".repeat(9));
    assert_eq!(compiled(lists), "limit");
}

#[test]
fn large_objects_do_not_make_rules_slow() {
    let numbers: Vec<usize> = (0..20_000).collect();
    let object = json!({"s": "a".repeat(200_000), "l": numbers});
    for (rule, expected) in [
        ("self.l.all(x, self.l.exists(y, x == y))", "limit"),
        ("self.l.all(x, self.l == self.l)", "limit"),
        ("self.s.matches('^(a+)+$')", "true"),
        ("self.s.split('').all(x, x == 'a')", "limit"),
        ("self.s.matches(self.s)", "limit"),
        ("lists.range(1000000000000).size() > 0", "limit"),
        ("lists.range(-5).size() == 0", "true"),
        ("self.l.size() == 20000", "true"),
    ] {
        assert_eq!(outcome(rule.to_owned(), object.clone()), expected, "{rule}");
    }
}

#[test]
fn large_patterns_are_bounded() {
    for pattern in ["((a{100}){100}){100}", "(((((x{2}){3}){4}){5}){6}){7}", "(a|b|c|d){1,1000}", "\\\\p{L}{1000}"] {
        assert!(!compiled(format!("self.s.matches('{pattern}')")).is_empty(), "{pattern}");
        assert!(!compiled(format!("self.l.all(x, self.s.matches('{pattern}' + string(x)))")).is_empty(), "{pattern}");
    }
    assert!(compiled("self.s.matches('a{1001}')".to_owned()).starts_with("ERROR: "));
    assert!(compiled(format!("self.s.matches('{}')", "(".repeat(50_000))).starts_with("ERROR: "));
}

#[test]
fn long_texts_are_refused() {
    let message = compiled(format!("self.s == '{}'", "é".repeat(100_000)));
    assert_eq!(message, "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100012, limit 100000");
    assert_eq!(compiled(format!("1 in [{}1]", "1,".repeat(40_000))), "true");
}

/// The work is not limited here: only the memory of what is made stops these. Each would make more than 100 MB for a cost
/// that is allowed.
#[test]
fn results_are_counted_in_bytes() {
    let kilobyte = "y".repeat(1000);
    let object = json!({"s": "x".repeat(200_000), "l": (0..10_000).collect::<Vec<_>>()});
    for rule in [
        format!("self.s.replace('x', '{kilobyte}').size() > 0"),
        format!("self.s.replace('', '{kilobyte}').size() > 0"),
        "self.l.map(x, self.s).join('').size() > 0".to_owned(),
        "self.l.map(x, '').join(self.s).size() > 0".to_owned(),
        "'%s'.format([self.l.map(x, self.s)]).size() > 0".to_owned(),
        format!("'{}'.format(self.l.map(x, self.s)).size() > 0", "%s".repeat(1000)),
        "self.l.map(x, self.l + self.l).size() > 0".to_owned(),
        "self.l.map(x, [self.s, self.s].map(y, self.l + [x])).size() > 0".to_owned(),
        "self.l.map(x, lists.range(1000).map(y, y)).size() > 0".to_owned(),
        "self.l.map(x, lists.range(1000)).flatten().size() > 0".to_owned(),
        "self.l.map(x, lists.range(500).map(y, {'a': y})).size() > 0".to_owned(),
    ] {
        assert_eq!(outcome_within(rule.clone(), object.clone(), u64::MAX), "limit", "{}", &rule[..rule.len().min(60)]);
    }
    for rule in [
        format!("self.s.replace('x', '{kilobyte}', 10).size() == 209990"),
        "self.s.replace('x', 'yyyyyyyyyy').size() == 2000000".to_owned(),
        "self.s.replace('z', self.s) == self.s".to_owned(),
        "(self.s + self.s).size() == 400000".to_owned(),
        "self.s.split('').size() == 200000".to_owned(),
        "self.l.map(x, string(x)).join(',').size() > 0".to_owned(),
        "self.l.map(x, x + 1).size() == 10000".to_owned(),
    ] {
        assert_eq!(outcome_within(rule.clone(), object.clone(), u64::MAX), "true", "{}", &rule[..rule.len().min(60)]);
    }
}
