//! Verifies that the text of an object can be read: before it is written, and when it is loaded.
//!
//! `serde_json` skips what is not asked for without looking closely: a number out of range, a broken string or a
//! nesting beyond its own limit pass. [`index`] reads every value, so that [`super::StoredObject::to_value`] cannot
//! fail for a text that was accepted here.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::object::Index;

/// Parts of the metadata that the index is made of.
const INDEXED: &[&str] = &["uid", "labels", "ownerReferences", "deletionTimestamp", "finalizers"];

/// Reads the index of an object, and verifies the rest of its text, without building a tree.
pub(super) fn index(text: &[u8]) -> Result<Index, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let metadata = Outer.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Index::of_metadata(&metadata))
}

/// Levels of objects and lists in a text that is JSON: 0 for a scalar, 1 for `{}`.
pub(super) fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    deepest
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// The object itself: gives the indexed part of its metadata.
struct Outer;

impl<'de> DeserializeSeed<'de> for Outer {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Outer {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(key) = access.next_key_seed(OneOf(&["metadata"]))? {
            match key {
                Some(_) => metadata = access.next_value_seed(Metadata)?,
                None => access.next_value::<Verified>().map(drop)?,
            }
        }
        Ok(metadata)
    }
}

/// The metadata of an object.
struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut indexed = Map::new();
        while let Some(key) = access.next_key_seed(OneOf(INDEXED))? {
            match key {
                Some(name) => {
                    indexed.insert(name.to_owned(), access.next_value()?);
                }
                None => access.next_value::<Verified>().map(drop)?,
            }
        }
        Ok(indexed)
    }
}

/// A key: one of these, or another one.
struct OneOf(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for OneOf {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for OneOf {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|name| *name == text))
    }
}

/// A value that can be read.
struct Verified;

impl<'de> Deserialize<'de> for Verified {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Verified {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self, A::Error> {
        while access.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self, A::Error> {
        while access.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::object::READABLE_DEPTH;
    use super::*;
    use crate::json_text;

    #[test]
    fn accepts_exactly_what_can_be_read() {
        let nested = |depth: usize| format!("{}{}", "{\"a\":".repeat(depth) + "1", "}".repeat(depth));
        assert!(index(nested(READABLE_DEPTH).as_bytes()).is_ok());
        assert!(serde_json::from_str::<Value>(&nested(READABLE_DEPTH)).is_ok());
        for text in [
            nested(READABLE_DEPTH + 1).as_str(),
            "[]",
            "{",
            "{} {}",
            r#"{"spec": 1e999}"#,
            r#"{"spec": "\ud800"}"#,
            r#"{"metadata": {"managedFields": 1e999}}"#,
            r#"{"metadata": {"labels": 1e999}}"#,
            r#"{"metadata": []}"#,
        ] {
            assert!(index(text.as_bytes()).is_err(), "{text}");
        }
        assert!(index(b"{\"spec\": \"\xff\"}").is_err());
    }

    #[test]
    fn metadata_of_other_types_is_no_reason_to_refuse_an_object() {
        let text = br#"{"metadata": {"labels": {"a": null}, "finalizers": 1, "ownerReferences": [{}], "uid": 2}}"#;
        let index = index(text).unwrap();
        assert_eq!((&*index.uid, index.has_finalizers, index.owners.len()), ("", false, 1));
    }

    proptest! {
        #[test]
        fn the_depth_of_a_text_is_that_of_its_tree(text in "[\\[\\]{}:,\"\\\\a0-9 ]{0,24}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                prop_assert_eq!(depth(text.as_bytes()), json_text::depth(&value));
            }
            prop_assert!(index(text.as_bytes()).is_err() || serde_json::from_str::<Value>(&text).is_ok());
        }
    }
}
