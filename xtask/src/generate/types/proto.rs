//! Messages of a `generated.proto`: field number → type.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

/// Fields of one message by number.
pub(super) type Message = BTreeMap<u32, Declared>;

/// The declaration of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    /// `optional`, `repeated` or `map`.
    pub(super) label: Label,
    /// Last part of the type's name (of the values, for maps): `string`, `int32`, `ObjectMeta` …
    pub(super) ty: String,
}

/// How often a field may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Optional,
    Repeated,
    Map,
}

/// The messages of a file, none of which are nested.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Message>> {
    let mut messages = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix(" {")) else {
            continue;
        };
        let mut message = Message::new();
        for line in lines.by_ref().take_while(|line| *line != "}") {
            let line = line.trim();
            if line.is_empty() || line.starts_with("//") {
                continue;
            }
            let (number, declared) = field(line).with_context(|| format!("message `{name}`: `{line}`"))?;
            message.insert(number, declared);
        }
        messages.insert(name.to_owned(), message);
    }
    Ok(messages)
}

/// A line like `optional .k8s.io.api.core.v1.PodSpec spec = 2;`.
fn field(line: &str) -> Option<(u32, Declared)> {
    let (declaration, rest) = line.split_once('=')?;
    let number = rest.split([';', '[']).next()?.trim().parse().ok()?;
    let (label, ty) = if let Some(map) = declaration.strip_prefix("map<") {
        (Label::Map, map.split_once(',')?.1.split_once('>')?.0.trim())
    } else {
        let mut words = declaration.split_whitespace();
        let label = match words.next()? {
            "optional" => Label::Optional,
            "repeated" => Label::Repeated,
            _ => return None,
        };
        (label, words.next()?)
    };
    Some((number, Declared { label, ty: ty.rsplit('.').next()?.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_by_number() {
        let messages = parse(
            "message A {\n  // why\n  optional .k8s.io.api.core.v1.PodSpec spec = 2;\n\n  repeated int64 n = 3;\n  \
             map<string, .k8s.io.apimachinery.pkg.api.resource.Quantity> limits = 17;\n}\n",
        )
        .unwrap();
        let declared = |label, ty: &str| Declared { label, ty: ty.to_owned() };
        assert_eq!(
            messages["A"].iter().collect::<Vec<_>>(),
            [
                (&2, &declared(Label::Optional, "PodSpec")),
                (&3, &declared(Label::Repeated, "int64")),
                (&17, &declared(Label::Map, "Quantity")),
            ]
        );
    }
}
