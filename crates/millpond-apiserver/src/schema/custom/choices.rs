//! The values of an `enum`, found by a lookup: a schema may list fifty thousand of them, and an object may hold as many
//! values to be looked up.

use std::collections::HashSet;
use std::ops::Deref;

use serde_json::{Number, Value};

/// The values that are allowed, in the order of the schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Choices {
    values: Vec<Value>,
    texts: HashSet<Box<str>>,
    integers: HashSet<i64>,
    /// Bits of the numbers that are no integers.
    floats: HashSet<u64>,
    /// Texts of booleans, lists and objects, with sorted keys.
    others: HashSet<Box<str>>,
}

impl Choices {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        let mut choices = Self::default();
        for value in &values {
            match value {
                // Equals nothing.
                Value::Null => {}
                Value::String(text) => {
                    choices.texts.insert(text.as_str().into());
                }
                Value::Number(number) => match number.as_i64() {
                    Some(integer) => {
                        choices.integers.insert(integer);
                    }
                    None => choices.floats.extend(float_bits(number)),
                },
                other => {
                    choices.others.insert(text_of(other).into());
                }
            }
        }
        choices.values = values;
        choices
    }

    /// Whether a value is one of them. Numbers are compared in the type of the allowed value. Null equals nothing.
    pub(super) fn allow(&self, value: &Value) -> bool {
        match value {
            Value::Null => false,
            Value::String(text) => self.texts.contains(text.as_str()),
            Value::Number(number) => {
                let integer = number.as_i64().or_else(|| number.as_f64().map(|float| float as i64));
                integer.is_some_and(|integer| self.integers.contains(&integer))
                    || float_bits(number).is_some_and(|bits| self.floats.contains(&bits))
            }
            other => !self.others.is_empty() && self.others.contains(text_of(other).as_str()),
        }
    }
}

impl Deref for Choices {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.values
    }
}

/// The bits of a number as a float; both zeros have the same.
fn float_bits(number: &Number) -> Option<u64> {
    number.as_f64().map(|float| (float + 0.0).to_bits())
}

/// The text of a boolean, list or object; both zeros have the same.
fn text_of(value: &Value) -> String {
    const NEGATIVE: &str = "-0.0";
    let text = value.to_string();
    if !text.contains(NEGATIVE) {
        return text;
    }
    let mut value = value.clone();
    settle_zeros(&mut value);
    value.to_string()
}

fn settle_zeros(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) && number.is_f64() => *value = Value::from(0.0),
        Value::Array(items) => items.iter_mut().for_each(settle_zeros),
        Value::Object(map) => map.values_mut().for_each(settle_zeros),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::numbers::same;
    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            prop_oneof![Just(-0.0), Just(0.0), Just(1.5), Just(2.0), Just(1e300), Just(-2.0)].prop_map(Value::from),
            Just(json!(u64::MAX)),
            "[ab]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 4, 2, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..2).prop_map(Value::from),
                proptest::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_lookup_finds_what_a_scan_finds(allowed in proptest::collection::vec(value(), 0..8), value in value()) {
            let found = allowed.iter().any(|allowed| same(&value, allowed));
            prop_assert_eq!(Choices::new(allowed).allow(&value), found);
        }
    }
}
