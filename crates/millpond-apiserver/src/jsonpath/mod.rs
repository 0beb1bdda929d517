//! kubectl's JSONPath, as far as the printer columns of CRDs use it: parsed once, evaluated on values.
//!
//! Fields (`.a.b`, `['a']`, `.a\.b`), indices and slices (`[0]`, `[-1]`, `[1:3]`, `[*]`, `[0,2]`), wildcards
//! (`.*`), descent (`..a`) and filters (`[?(@.type=="Ready")]`). Missing keys yield nothing. The `range … end`
//! of kubectl's templates is read but yields nothing: a column is one value.

mod parser;

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;

/// Limit on the values that one step may yield. Several recursive descents in one path multiply, and no column needs
/// more.
const MAX_RESULTS: usize = 10_000;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    /// What stands between braces, or between two pairs of them, as in kubectl's templates.
    sections: Vec<Vec<Node>>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Field(String),
    Slice(Slice),
    Filter {
        left: Vec<Node>,
        operator: Operator,
        right: Vec<Node>,
    },
    Union(Vec<Vec<Node>>),
    Wildcard,
    Descent,
    Literal(Value),
    /// `range`, `end` or an unknown word.
    Word,
}

/// `[start:end:step]`; an index is the slice of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
    /// Written as a single index.
    single: bool,
}

/// Operator of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Written with operator characters, but none of the above: parses, never evaluates.
    Unknown,
}

/// The path cannot be evaluated on this value (an index out of bounds, a filter on a text …).
struct Unsuitable;

type Results<'a> = Vec<Cow<'a, Value>>;

impl JsonPath {
    /// Parses a path as it stands in a CRD: without braces, starting with a dot.
    pub fn parse(path: &str) -> Result<Self, String> {
        parser::parse(&format!("{{{path}}}")).map(|sections| Self { sections })
    }

    /// The first value at this path; `None` if there is none.
    pub fn first<'a>(&self, value: &'a Value) -> Option<Cow<'a, Value>> {
        let mut first = None;
        for (index, section) in self.sections.iter().enumerate() {
            let results = walk(vec![Cow::Borrowed(value)], section).ok()?;
            if index == 0 {
                first = results.into_iter().next();
            }
        }
        first
    }
}

/// The error that CRD validation reports for a path; `None` if it is valid. Only the beginning is checked; a path that
/// does not parse ends the columns of its table instead.
pub fn problem_of_simple_path(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        Some("must not be empty")
    } else if !path.starts_with('.') {
        Some("must be a simple json path starting with .")
    } else {
        None
    }
}

fn walk<'a>(mut values: Results<'a>, nodes: &[Node]) -> Result<Results<'a>, Unsuitable> {
    for node in nodes {
        values = step(values, node)?;
        if values.len() > MAX_RESULTS {
            return Err(Unsuitable);
        }
    }
    Ok(values)
}

fn step<'a>(values: Results<'a>, node: &Node) -> Result<Results<'a>, Unsuitable> {
    match node {
        Node::Field(name) => Ok(values.into_iter().filter_map(|value| field(value, name)).collect()),
        Node::Slice(slice) => each(values, |value| slice.of(value)),
        Node::Wildcard => Ok(values.into_iter().flat_map(children).collect()),
        Node::Descent => descend(values),
        Node::Filter { left, operator, right } => each(values, |value| filter(value, left, *operator, right)),
        Node::Union(parts) => {
            let mut results = Vec::new();
            for part in parts {
                results.extend(walk(values.clone(), part)?);
            }
            Ok(results)
        }
        // A text occurs once, a number or flag once for each value.
        Node::Literal(text @ Value::String(_)) => Ok(vec![Cow::Owned(text.clone())]),
        Node::Literal(value) => Ok(values.iter().map(|_| Cow::Owned(value.clone())).collect()),
        Node::Word => Err(Unsuitable),
    }
}

fn each<'a>(
    values: Results<'a>,
    of: impl Fn(Cow<'a, Value>) -> Result<Results<'a>, Unsuitable>,
) -> Result<Results<'a>, Unsuitable> {
    let mut results = Vec::new();
    for value in values {
        results.extend(of(value)?);
    }
    Ok(results)
}

fn field<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.as_object()?.get(name).cloned().map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> Results<'_> {
    match value {
        Cow::Borrowed(Value::Object(map)) => map.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Object(map)) => map.into_iter().map(|(_, value)| Cow::Owned(value)).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        _ => Vec::new(),
    }
}

/// Every object and list below the values, and they themselves, parents first.
fn descend(values: Results<'_>) -> Result<Results<'_>, Unsuitable> {
    let mut results = Vec::new();
    let mut stack: Vec<Cow<'_, Value>> = values.into_iter().rev().collect();
    while let Some(value) = stack.pop() {
        let below = children(value.clone());
        if below.is_empty() {
            continue;
        }
        results.push(value);
        if results.len() > MAX_RESULTS {
            return Err(Unsuitable);
        }
        stack.extend(below.into_iter().rev());
    }
    Ok(results)
}

impl Slice {
    fn of<'a>(&self, value: Cow<'a, Value>) -> Result<Results<'a>, Unsuitable> {
        let length = match &*value {
            Value::Array(items) => items.len() as i64,
            Value::Null => return Ok(Vec::new()),
            _ => return Err(Unsuitable),
        };
        let from_end = |index: i64| if index < 0 { index + length } else { index };
        let start = from_end(self.start.unwrap_or(0));
        let end = match self.end {
            // The end of `[-1]` is 0, which here means the end of the list.
            Some(0) if self.single => length,
            Some(end) => from_end(end),
            None => length,
        };
        if start == end {
            return Ok(Vec::new());
        }
        let within = (0..length).contains(&start) && (0..=length).contains(&end) && start < end;
        let step = self.step.unwrap_or(1);
        if !within || step <= 0 {
            return Err(Unsuitable);
        }
        let items = children(value).into_iter().skip(start as usize).take((end - start) as usize);
        Ok(items.step_by(usize::try_from(step).unwrap_or(usize::MAX)).collect())
    }
}

fn filter<'a>(
    value: Cow<'a, Value>,
    left: &[Node],
    operator: Operator,
    right: &[Node],
) -> Result<Results<'a>, Unsuitable> {
    if !value.is_array() {
        return Err(Unsuitable);
    }
    let mut results = Vec::new();
    for item in children(value) {
        if keeps(&item, left, operator, right)? {
            results.push(item);
        }
    }
    Ok(results)
}

fn keeps(item: &Value, left: &[Node], operator: Operator, right: &[Node]) -> Result<bool, Unsuitable> {
    let lefts = walk(vec![Cow::Borrowed(item)], left);
    if operator == Operator::Exists {
        return Ok(lefts.is_ok_and(|lefts| !lefts.is_empty()));
    }
    let lefts = lefts?;
    let rights = if lefts.is_empty() { Vec::new() } else { walk(vec![Cow::Borrowed(item)], right)? };
    match (lefts.as_slice(), rights.as_slice()) {
        ([], _) | (_, []) => Ok(false),
        ([left], [right]) => compare(left, operator, right),
        _ => Err(Unsuitable),
    }
}

/// Only equal kinds of scalars compare; whole numbers and fractions are two kinds, and flags have no order.
fn compare(left: &Value, operator: Operator, right: &Value) -> Result<bool, Unsuitable> {
    let ordering = match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) if matches!(operator, Operator::Equal | Operator::NotEqual) => {
            left.cmp(right)
        }
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left.cmp(&right),
            (None, None) => left.as_f64().partial_cmp(&right.as_f64()).ok_or(Unsuitable)?,
            _ => return Err(Unsuitable),
        },
        _ => return Err(Unsuitable),
    };
    match operator {
        Operator::Equal => Ok(ordering == Ordering::Equal),
        Operator::NotEqual => Ok(ordering != Ordering::Equal),
        Operator::Less => Ok(ordering == Ordering::Less),
        Operator::LessOrEqual => Ok(ordering != Ordering::Greater),
        Operator::Greater => Ok(ordering == Ordering::Greater),
        Operator::GreaterOrEqual => Ok(ordering != Ordering::Less),
        Operator::Exists | Operator::Unknown => Err(Unsuitable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({
            "spec": {
                "s": "text", "i": 7, "f": 1.5, "b": true, "n": null, "a.b": "dotted",
                "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}, {"n": "z", "v": 3}],
                "words": ["a", "b", "c"],
            },
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "it's", "status": "quoted"},
                {"type": "Last", "status": "False", "extra": 1},
            ]},
        })
    }

    fn first(path: &str) -> Option<Value> {
        JsonPath::parse(path).unwrap().first(&sample()).map(Cow::into_owned)
    }

    #[test]
    fn paths_find_the_first_value() {
        for (path, expected) in [
            (".spec.s", json!("text")),
            (".spec.i", json!(7)),
            (".spec.n", Value::Null),
            (r".spec.a\.b", json!("dotted")),
            (r".spec['a\.b']", json!("dotted")),
            (".spec['s']", json!("text")),
            (".spec.list[0].n", json!("x")),
            (".spec.list[-1].n", json!("z")),
            (".spec.list[*].n", json!("x")),
            (".spec.list[1:].n", json!("y")),
            (".spec.list[:2].n", json!("x")),
            (".spec.list[::2].v", json!(1)),
            (".spec.list[2,0].n", json!("z")),
            (".spec.list[?(@.n==\"y\")].v", json!(2)),
            (".spec.list[?(@.n=='y')].v", json!(2)),
            (".spec.list[?(@.v>1)].n", json!("y")),
            (".spec.list[?(@.v >= 3)].n", json!("z")),
            (".spec.list[?(@.v!=1)].n", json!("y")),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            (".status.conditions[?(@.type=='it\\'s')].status", json!("quoted")),
            (".status.conditions[?(@.extra)].type", json!("Last")),
            (".status.conditions[?(@.status!=\"True\")].type", json!("it's")),
            ("..status", json!({"conditions": sample()["status"]["conditions"]})),
            (".spec.words.*", json!("a")),
            (".spec.words", json!(["a", "b", "c"])),
            ("$.spec.s", json!("text")),
        ] {
            assert_eq!(first(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn what_is_not_there_or_does_not_fit_yields_nothing() {
        for path in [
            ".spec.zz",
            ".spec.zz.y",
            ".spec.s.y",
            ".spec.list[7].n",
            ".spec.s[0]",
            ".spec[?(@.a)]",
            ".",
            ".spec.n.x",
            ".spec.list[?(@.n==1)].v",
            ".spec.list[?(@.zz==1)].v",
            ".spec.list[?(@.v=>1)].v",
            ".spec.list[1:1]",
            ".spec.list[2:1]",
            ".spec.list[::0]",
            ".spec.list range",
            ".spec.list[?(@.v==1.0)].n",
        ] {
            assert_eq!(first(path), None, "{path}");
        }
    }

    #[test]
    fn bad_paths_do_not_parse() {
        for (path, error) in [
            (".a[", "unterminated array"),
            (".a[x]", "invalid array index x"),
            (".a[?(@.b==1)", "unclosed array expect ]"),
            (".a[?(@.b==1", "unterminated filter"),
            (".a[?(@.b=='1)]", "unterminated filter"),
            ("....a", "invalid multiple recursive descent"),
            (".a#b\n", "unclosed action"),
            (".a *", "unrecognized character in action: U+002A '*'"),
            (".a 1.2.3", "cannot parse number 1.2.3"),
        ] {
            assert_eq!(JsonPath::parse(path).unwrap_err(), error, "{path}");
        }
    }

    #[test]
    fn crd_validation_looks_at_the_beginning() {
        assert_eq!(problem_of_simple_path(""), Some("must not be empty"));
        assert_eq!(problem_of_simple_path("spec"), Some("must be a simple json path starting with ."));
        assert_eq!(problem_of_simple_path(".spec[?(@.a)]"), None);
        assert_eq!(problem_of_simple_path("."), None);
    }

    proptest! {
        #[test]
        fn fuzz_json_path(path in "[.a-c\\[\\]?()@=<>'\"*:,0-2 \\\\{}-]{0,24}|\\PC{0,24}") {
            if let Ok(path) = JsonPath::parse(&path) {
                let _ = path.first(&json!({"a": [{"b": 1, "c": "x"}, {"b": 2}], "b": {"a": {"c": []}}}));
            }
        }
    }
}
