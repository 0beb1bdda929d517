//! Parses bytes to a tree, and records duplicate fields.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::budget::Budget;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy};
use serde_saphyr::{Options, Spanned};

use super::{MAX_FINDINGS, child, is_open};
use crate::json_text;
use crate::print::go_quoted;
use crate::schema::Schema;

/// Limit on the nodes that aliases of a YAML body expand to. Bodies are at most a few megabytes; without a limit a body
/// of a kilobyte could grow to gigabytes.
const MAX_ALIASED_NODES: usize = 100_000;

/// Stack for reading YAML, four times what the allowed depth takes without optimization.
const YAML_STACK_BYTES: usize = 16 << 20;

/// A body that is not JSON or YAML. The text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, or nested too deep.
    #[error("{0}")]
    Json(String),
    /// Not YAML, or more than a body may hold.
    #[error("yaml: {0}")]
    Yaml(String),
}

/// Reads JSON. The second part tells fields that occur twice, e.g. `duplicate field "spec.replicas"`; the last
/// occurrence counts. Objects nest up to [`json_text::MAX_DEPTH`] deep.
pub fn parse_json(body: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    // The fast reader takes all that is well formed. The other one mends what is no Unicode and knows Go's words
    // for everything else.
    read_json(body).or_else(|_| match json_text::parse(body) {
        Ok(document) => Ok((document.value, document.problems)),
        Err(problem) => Err(ParseError::Json(problem)),
    })
}

fn read_json(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut state = State::default();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = Tree::<PlainKeys> { state: &mut state, keys: PhantomData };
    let value = seed.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok((value, state.findings))
}

/// Reads YAML. The second part tells keys that occur twice, as Go's YAML decoder does.
pub fn parse_yaml(body: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    // Clients send JSON as YAML, which is much faster to read as what it is.
    if body.trim_ascii_start().starts_with(b"{")
        && let Ok((value, duplicates)) = read_json(body)
        && duplicates.is_empty()
    {
        return Ok((value, duplicates));
    }
    let text = String::from_utf8_lossy(body);
    let (value, duplicates) = on_a_large_stack(|| read_yaml(&text)).map_err(ParseError::Yaml)?;
    let mut findings = Vec::new();
    if !duplicates.is_empty() {
        findings.push(format!("yaml: unmarshal errors:\n  {}", duplicates.join("\n  ")));
    }
    Ok((value, findings))
}

fn read_yaml(text: &str) -> Result<(Value, Vec<String>), String> {
    let mut state = State::default();
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
        Tree::<LineKeys> { state: &mut state, keys: PhantomData }.deserialize(deserializer)
    });
    Ok((value.map_err(|error| error.to_string())?, state.findings))
}

/// The YAML reader takes some 30 kB of stack for each level, more than a worker thread has for the allowed depth.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(YAML_STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("cannot read now: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("cannot be read".to_owned()))
    })
}

fn yaml_options() -> Options {
    let mut options = Options::default();
    let mut budget = Budget::default();
    budget.max_depth = json_text::MAX_DEPTH;
    options.budget = Some(budget);
    let mut limits = AliasLimits::default();
    limits.max_total_replayed_events = MAX_ALIASED_NODES;
    options.alias_limits = limits;
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    options
}

/// All findings of a JSON body in the order of the text: unknown fields by the schema of a built-in type, and
/// fields that occur twice. This is how the real server tells them for built-in types.
pub fn in_document_order(body: &[u8], schema: &Schema) -> Vec<String> {
    // The body has been parsed before; if it is not JSON there is nothing to find.
    json_text::parse_strict(body, |path| is_known(path, schema)).map(|document| document.problems).unwrap_or_default()
}

/// Whether the last step of a path is known. Fields below an unknown or free-form field are not checked.
fn is_known(path: &json_text::Path, schema: &Schema) -> bool {
    let Some((last, before)) = path.split_last() else { return true };
    let mut schema = schema;
    for step in before {
        let below = match step {
            json_text::Step::Key(_) if is_open(schema) => None,
            json_text::Step::Key(key) => child(schema, key),
            json_text::Step::Index(_) => schema.items.as_deref(),
        };
        match below {
            Some(below) => schema = below,
            None => return true,
        }
    }
    match last {
        json_text::Step::Key(key) => is_open(schema) || child(schema, key).is_some(),
        json_text::Step::Index(_) => true,
    }
}

/// Where the reader is, and what it found.
#[derive(Default)]
struct State {
    path: Vec<Step>,
    findings: Vec<String>,
}

enum Step {
    Key(String),
    Index(usize),
}

impl State {
    fn path_of(&self, key: &str) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => {
                    path.push('.');
                    path.push_str(key);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        if !path.is_empty() {
            path.push('.');
        }
        path + key
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < MAX_FINDINGS && !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Takes back the key that was pushed last.
    fn pop_key(&mut self) -> String {
        match self.path.pop() {
            Some(Step::Key(key)) => key,
            _ => String::new(),
        }
    }
}

/// How keys are read, and how a duplicate one is reported.
trait Keys {
    type Key<'de>: serde::Deserialize<'de>;

    fn text(key: Self::Key<'_>) -> (String, usize);

    fn doubled(state: &State, key: &str, line: usize) -> String;
}

/// Keys of JSON: reported by their path.
struct PlainKeys;

impl Keys for PlainKeys {
    type Key<'de> = String;

    fn text(key: String) -> (String, usize) {
        (key, 0)
    }

    fn doubled(state: &State, key: &str, _: usize) -> String {
        format!("duplicate field {}", go_quoted(&state.path_of(key)))
    }
}

/// Keys of YAML: reported by their line.
struct LineKeys;

impl Keys for LineKeys {
    type Key<'de> = Spanned<String>;

    fn text(key: Spanned<String>) -> (String, usize) {
        let line = key.referenced.line() as usize;
        (key.value, line)
    }

    fn doubled(_: &State, key: &str, line: usize) -> String {
        format!("line {line}: key {} already set in map", go_quoted(key))
    }
}

/// Builds a tree.
struct Tree<'s, K> {
    state: &'s mut State,
    keys: PhantomData<K>,
}

impl<'de, K: Keys> DeserializeSeed<'de> for Tree<'_, K> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, K: Keys> Visitor<'de> for Tree<'_, K> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        // Go has no integers beyond 63 bits in free-form JSON.
        Ok(i64::try_from(number).map_or_else(|_| Value::from(number as f64), Value::from))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number_of(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            self.state.path.push(Step::Index(items.len()));
            let item = access.next_element_seed(Tree::<K> { state: self.state, keys: PhantomData })?;
            self.state.path.pop();
            match item {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<K::Key<'de>>()? {
            let (key, line) = K::text(key);
            if fields.contains_key(&key) {
                let finding = K::doubled(self.state, &key, line);
                self.state.find(finding);
            }
            self.state.path.push(Step::Key(key));
            let value = access.next_value_seed(Tree::<K> { state: self.state, keys: PhantomData })?;
            fields.insert(self.state.pop_key(), value);
        }
        Ok(Value::Object(fields))
    }
}

/// A float, or the integer that Go would print and read back.
fn number_of(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Value::from(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::builtin;

    #[test]
    fn json_with_duplicates() {
        let body =
            br#"{"a": 1, "b": {"c": [1, {"d": 1, "d": 2, "d": 3}]}, "a": 2.0, "e": 18446744073709551615, "f": 1e3}"#;
        let (value, duplicates) = parse_json(body).unwrap();
        assert_eq!(value, json!({"a": 2, "b": {"c": [1, {"d": 3}]}, "e": 18_446_744_073_709_551_615.0, "f": 1000}));
        assert_eq!(duplicates, ["duplicate field \"b.c[1].d\"", "duplicate field \"a\""]);
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse_json(nested(127).as_bytes()).is_ok());
        assert_eq!(parse_json(nested(129).as_bytes()), Err(ParseError::Json("exceeded max depth".to_owned())));
        assert!(parse_json("[".repeat(1_000_000).as_bytes()).is_err());
        assert!(parse_yaml(nested(100_000).as_bytes()).is_err());
        let indented: String = (0..5000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
        assert!(parse_yaml(indented.as_bytes()).is_err());
    }

    #[test]
    fn what_is_no_unicode_is_replaced() {
        let (value, _) = parse_json(b"{\"a\": \"x\xffy\", \"b\": \"\\ud800z\"}").unwrap();
        assert_eq!(value, json!({"a": "x\u{fffd}y", "b": "\u{fffd}z"}));
    }

    #[test]
    fn yaml_bodies() {
        let (value, duplicates) = parse_yaml(
            b"a: 1\nb:\n- yes\n- 'yes'\n- 0777\n- ~\n- 1.5\n- 2001-01-01\nc: &x {d: e}\nf: *x\n1: one\ng:\n  <<: *x\n  h: i\n",
        )
        .unwrap();
        assert_eq!(
            value,
            json!({
                "a": 1, "b": [true, "yes", 511, null, 1.5, "2001-01-01"], "c": {"d": "e"}, "f": {"d": "e"},
                "1": "one", "g": {"d": "e", "h": "i"},
            })
        );
        assert!(duplicates.is_empty());
        let (value, duplicates) = parse_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").unwrap();
        assert_eq!(value, json!({"a": 3, "b": {"c": 2}}));
        assert_eq!(
            duplicates,
            ["yaml: unmarshal errors:\n  line 4: key \"c\" already set in map\n  line 5: key \"a\" already set in map"]
        );
        assert!(parse_yaml(b"a: [").is_err());
        assert_eq!(parse_yaml(b" {\"a\": 1}").unwrap().0, json!({"a": 1}));
    }

    #[test]
    fn aliases_are_bounded() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..9 {
            let refs = vec![format!("*a{}", level - 1); 10].join(",");
            bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
        }
        assert!(parse_yaml(bomb.as_bytes()).is_err());
    }

    #[test]
    fn findings_come_in_the_order_of_the_text() {
        let schema = builtin::kind("apps", "v1", "Deployment").unwrap();
        let body = br#"{"spec": {"unknownField": {"x": 1}, "replicas": 1, "replicas": 2,
            "template": {"metadata": {"labels": {"a": "b", "a": "c"}, "q": 1}}}, "zzz": 1, "aaa": 1}"#;
        assert_eq!(
            in_document_order(body, &schema),
            [
                "unknown field \"spec.unknownField\"",
                "duplicate field \"spec.replicas\"",
                "duplicate field \"spec.template.metadata.labels.a\"",
                "unknown field \"spec.template.metadata.q\"",
                "unknown field \"zzz\"",
                "unknown field \"aaa\"",
            ]
        );
    }
}
