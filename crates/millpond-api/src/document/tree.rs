//! A document as it stands in a file: every value with its place. YAML is read into it always, JSON where something
//! has to be said about it.

use std::borrow::Cow;

/// A place in a file, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Position {
    /// The start of a file.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct Tree<'a> {
    /// Where it begins.
    pub place: Position,
    /// What it is.
    pub value: Value<'a>,
}

/// A value.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// A text, number or the like.
    Scalar(Scalar<'a>),
    /// A list.
    List(Vec<Tree<'a>>),
    /// Keys with values, in the order of the file.
    Map(Vec<(Key<'a>, Tree<'a>)>),
}

/// The key of a map.
#[derive(Debug, Clone)]
pub struct Key<'a> {
    /// State.
    pub place: Position,
    /// What it is.
    pub text: Cow<'a, str>,
}

/// A text with or without quotes.
#[derive(Debug, Clone)]
pub struct Scalar<'a> {
    /// What stands there.
    pub text: Cow<'a, str>,
    /// Without quotes: it may be a number, a boolean or null.
    pub plain: bool,
}

/// What a scalar is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Meaning {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number that is not below zero.
    Unsigned(u64),
    /// A whole number.
    Signed(i64),
    /// Another number.
    Float(f64),
    /// Text.
    Text,
}

impl Scalar<'_> {
    /// What it is, as Kubernetes' reader of YAML takes it: `yes`, `no`, `on` and `off` are booleans.
    pub fn meaning(&self) -> Meaning {
        if !self.plain {
            return Meaning::Text;
        }
        match &*self.text {
            "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
            "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Meaning::Bool(true),
            "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Meaning::Bool(false),
            _ => {}
        }
        self.number().unwrap_or(Meaning::Text)
    }

    fn number(&self) -> Option<Meaning> {
        let text = &*self.text;
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        // `.inf` and `.nan` are numbers to YAML and to nothing else here; words such as `infinity` are to neither.
        if !digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
            return None;
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let unsigned = || text.strip_prefix('+').unwrap_or(text).parse().ok().map(Meaning::Unsigned);
            let signed = || text.parse().ok().map(Meaning::Signed);
            return unsigned().or_else(signed).or_else(|| text.parse().ok().map(Meaning::Float));
        }
        let float = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
        text.parse().ok().filter(|_| float).map(Meaning::Float)
    }
}

/// The first key that occurs twice.
pub fn refuse_twice<'k, 'a>(entries: &'k [(Key<'a>, Tree<'a>)]) -> Result<(), &'k Key<'a>> {
    // Maps of Kubernetes are short, and comparing all is then cheaper than sorting; large ones are data.
    if entries.len() <= 16 {
        let twice = |index: usize| entries[..index].iter().any(|(key, _)| key.text == entries[index].0.text);
        return (0..entries.len()).find(|index| twice(*index)).map_or(Ok(()), |index| Err(&entries[index].0));
    }
    let mut sorted: Vec<&Key<'a>> = entries.iter().map(|(key, _)| key).collect();
    sorted.sort_by(|a, b| a.text.cmp(&b.text).then(a.place.cmp(&b.place)));
    sorted.windows(2).find(|pair| pair[0].text == pair[1].text).map_or(Ok(()), |pair| Err(pair[1]))
}

impl<'a> Tree<'a> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Tree<'a>> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(name, _)| name.text == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if scalar.meaning() == Meaning::Text => Some(&scalar.text),
            _ => None,
        }
    }

    /// Whether the value is null or empty.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.meaning() == Meaning::Null)
    }

    /// The text of the value, for messages; empty for lists and maps.
    pub fn shown(&self) -> &str {
        match &self.value {
            Value::Scalar(scalar) => &scalar.text,
            _ => "",
        }
    }

    /// The position of a field such as `spec.requirements[2].key`, or of the innermost existing part of its path.
    pub fn locate(&self, field: &str) -> (Position, &str) {
        let (mut here, mut place, mut rest) = (self, self.place, field);
        while !rest.is_empty() {
            let step = match (&here.value, rest.strip_prefix('[')) {
                (Value::List(entries), Some(after)) => after.split_once(']').and_then(|(index, after)| {
                    let entry = entries.get(index.parse::<usize>().ok()?)?;
                    Some((entry.place, entry, after))
                }),
                (Value::Map(entries), None) => {
                    let path = rest.strip_prefix('.').unwrap_or(rest);
                    // Keys may contain dots and brackets: the longest key that matches is used.
                    let fits = |key: &str| {
                        let after = path.strip_prefix(key)?;
                        (after.is_empty() || after.starts_with(['.', '['])).then_some(after)
                    };
                    let found = entries.iter().filter_map(|(key, value)| Some((key, value, fits(&key.text)?)));
                    found.max_by_key(|(key, ..)| key.text.len()).map(|(key, value, after)| {
                        let place = if matches!(value.value, Value::Scalar(_)) { value.place } else { key.place };
                        (place, value, after)
                    })
                }
                _ => None,
            };
            let Some((at, next, after)) = step else { break };
            (place, here, rest) = (at, next, after);
        }
        (place, here.shown())
    }

    /// How much a copy takes: one for each value, and one for every 64 bytes of text.
    pub fn weight(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(scalar) => scalar.text.len() / 64,
            Value::List(entries) => entries.iter().map(Tree::weight).sum(),
            Value::Map(entries) => entries.iter().map(|(key, value)| key.text.len() / 64 + value.weight()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_kubernetes_takes_them_for() {
        let meaning = |text: &str| Scalar { text: text.to_owned().into(), plain: true }.meaning();
        let cases = [
            ("", Meaning::Null),
            ("~", Meaning::Null),
            ("null", Meaning::Null),
            ("true", Meaning::Bool(true)),
            ("off", Meaning::Bool(false)),
            ("7", Meaning::Unsigned(7)),
            ("-7", Meaning::Signed(-7)),
            ("+7", Meaning::Unsigned(7)),
            ("1.5", Meaning::Float(1.5)),
            ("1e3", Meaning::Float(1000.0)),
            ("18446744073709551616", Meaning::Float(18_446_744_073_709_551_616.0)),
            ("1.2.3", Meaning::Text),
            ("500m", Meaning::Text),
            ("inf", Meaning::Text),
            (".inf", Meaning::Text),
            ("nan", Meaning::Text),
            ("-", Meaning::Text),
            ("m5.large", Meaning::Text),
        ];
        for (text, expected) in cases {
            assert_eq!(meaning(text), expected, "{text:?}");
        }
        assert_eq!(Scalar { text: "7".into(), plain: false }.meaning(), Meaning::Text);
    }
}
