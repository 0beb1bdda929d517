//! Values of Rust from a [`Tree`]: a mistake knows its place, its field and the text that stands there.
//!
//! As in Kubernetes, `null` means that the entry is missing.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, Visitor,
    value::BorrowedStrDeserializer,
};
use serde::forward_to_deserialize_any;

use super::tree::{Key, Meaning, Position, Tree, Value};

/// A value that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub place: Option<Position>,
    /// In which field, from the outermost on.
    pub field: String,
    /// What stands there.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The most of a text that a message repeats; hostile ones are as long as the file.
pub const LIMIT_SHOWN: usize = 60;

/// A text, cut where a message has had enough of it.
pub fn shorten(text: &str) -> String {
    shorten_to(text, LIMIT_SHOWN)
}

/// The same, cut after `limit` characters.
pub fn shorten_to(text: &str, limit: usize) -> String {
    let mut shown: String = text.chars().take(limit).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl Mistake {
    fn at(mut self, tree: &Tree<'_>) -> Self {
        if self.place.is_none() {
            self.place = Some(tree.place);
            self.text = shorten(tree.shown());
        }
        self
    }

    fn below(mut self, step: &str) -> Self {
        let separator = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("{step}{separator}{}", self.field);
        self
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Mistake {}

/// Values that older versions of Karpenter's API had, and the names that they have now.
const RENAMED: &[(&str, &str)] = &[("WhenUnderutilized", "WhenEmptyOrUnderutilized")];

impl serde::de::Error for Mistake {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { place: None, field: String::new(), text: String::new(), problem: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        let found = match found {
            // It did not fit into 64 bits.
            Unexpected::Float(number) if number.fract() == 0.0 => return Self::invalid_value(found, expected),
            Unexpected::Bool(_) => "a boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a number",
            Unexpected::Float(_) => "a number with a fraction",
            Unexpected::Str(_) => "a text",
            Unexpected::Unit | Unexpected::Option => "nothing",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a map",
            _ => "something else",
        };
        Self::custom(format_args!("is {found}, not {}", Expected(expected)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::custom(format_args!("is not {}", Expected(expected)))
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let renamed = RENAMED.iter().find(|(old, new)| *old == found && expected.contains(new));
        let hint = renamed.map_or_else(String::new, |(_, new)| format!("; its name is `{new}` now"));
        Self::custom(format_args!("is not one of {}{hint}", expected.join(", ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("`{field}` is missing"))
    }
}

/// The expected type, in words for users.
struct Expected<'a>(&'a dyn serde::de::Expected);

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match text.as_str() {
            "a string" => f.write_str("a text"),
            "i8" | "i16" | "i32" | "i64" => write!(f, "a whole number of {} bits", &text[1..]),
            "u8" | "u16" | "u32" | "u64" => write!(f, "a whole number of {} bits, not negative", &text[1..]),
            "a sequence" => f.write_str("a list"),
            text if text.starts_with("struct ") => f.write_str("a map of fields"),
            text => f.write_str(text),
        }
    }
}

impl<'de> Deserializer<'de> for &'de Tree<'_> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let read = match &self.value {
            Value::Scalar(scalar) => match scalar.meaning() {
                Meaning::Null => visitor.visit_unit(),
                Meaning::Bool(value) => visitor.visit_bool(value),
                Meaning::Unsigned(value) => visitor.visit_u64(value),
                Meaning::Signed(value) => visitor.visit_i64(value),
                Meaning::Float(value) => visitor.visit_f64(value),
                Meaning::Text => visitor.visit_borrowed_str(&scalar.text),
            },
            Value::List(entries) => visitor.visit_seq(List { entries: entries.iter().enumerate() }),
            Value::Map(entries) => visitor.visit_map(Map { entries: entries.iter(), value: None }),
        };
        read.map_err(|mistake| mistake.at(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        let quotes = |found| Mistake::custom(format_args!("is {found}, not a text; put it in quotes"));
        let read = match &self.value {
            Value::Scalar(scalar) => match scalar.meaning() {
                Meaning::Text => visitor.visit_borrowed_str(&scalar.text),
                Meaning::Bool(_) => Err(quotes("a boolean")),
                Meaning::Null => Err(quotes("nothing")),
                _ => Err(quotes("a number")),
            },
            Value::List(_) => Err(Mistake::invalid_type(Unexpected::Seq, &"a text")),
            Value::Map(_) => Err(Mistake::invalid_type(Unexpected::Map, &"a text")),
        };
        read.map_err(|mistake| mistake.at(self))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        self.deserialize_str(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        let read = match self.text() {
            Some(text) => visitor.visit_enum(Word(text)),
            None => Err(Mistake::custom("is not a word")),
        };
        read.map_err(|mistake| mistake.at(self))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct Word<'de>(&'de str);

impl<'de> EnumAccess<'de> for Word<'de> {
    type Error = Mistake;
    type Variant = OnlyUnit;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, OnlyUnit), Mistake> {
        let name: BorrowedStrDeserializer<'de, Mistake> = BorrowedStrDeserializer::new(self.0);
        Ok((seed.deserialize(name)?, OnlyUnit))
    }
}

/// Words of Kubernetes' enumerations hold no further value.
struct OnlyUnit;

impl<'de> serde::de::VariantAccess<'de> for OnlyUnit {
    type Error = Mistake;

    fn unit_variant(self) -> Result<(), Mistake> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Mistake> {
        Err(Mistake::custom("is a word, not a map"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Mistake> {
        Err(Mistake::custom("is a word, not a list"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Mistake> {
        Err(Mistake::custom("is a word, not a map"))
    }
}

struct List<'de, 'a> {
    entries: std::iter::Enumerate<std::slice::Iter<'de, Tree<'a>>>,
}

impl<'de> SeqAccess<'de> for List<'de, '_> {
    type Error = Mistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Mistake> {
        let Some((index, entry)) = self.entries.next() else { return Ok(None) };
        seed.deserialize(entry).map(Some).map_err(|mistake| mistake.at(entry).below(&format!("[{index}]")))
    }
}

struct Map<'de, 'a> {
    entries: std::slice::Iter<'de, (Key<'a>, Tree<'a>)>,
    value: Option<&'de (Key<'a>, Tree<'a>)>,
}

impl<'de> MapAccess<'de> for Map<'de, '_> {
    type Error = Mistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Mistake> {
        self.value = self.entries.find(|(_, value)| !value.is_null());
        let Some((key, _)) = self.value else { return Ok(None) };
        let text: BorrowedStrDeserializer<'de, Mistake> = BorrowedStrDeserializer::new(&key.text);
        seed.deserialize(text).map(Some).map_err(|mut mistake| {
            mistake.place.get_or_insert(key.place);
            mistake
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mistake> {
        let (key, value) = self.value.take().ok_or_else(|| Mistake::custom("a value without its key"))?;
        seed.deserialize(value).map_err(|mistake| mistake.at(value).below(&key.text))
    }
}
