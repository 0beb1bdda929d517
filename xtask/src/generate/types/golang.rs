//! Fields of Go structs, read from source that gofmt has laid out: one field a line, with its tags.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

/// One field of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// JSON name; empty for an embedded struct whose fields stand in the parent's object.
    pub(super) json: String,
    /// Name of the type, without `*`.
    pub(super) ty: String,
    /// Whether the type is a pointer.
    pub(super) pointer: bool,
    /// `omitempty`
    pub(super) omit_empty: bool,
    /// `omitzero`
    pub(super) omit_zero: bool,
    /// Field number in protobuf.
    pub(super) number: Option<u32>,
}

/// The structs of the package in a folder.
pub(super) fn read(dir: &Path) -> Result<BTreeMap<String, Vec<Field>>> {
    let mut structs = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("read folder `{}`", dir.display()))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.extension().is_none_or(|end| end != "go") || name.ends_with("_test") || name.contains("generated") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
        parse(&text, &mut structs);
    }
    Ok(structs)
}

fn parse(text: &str, structs: &mut BTreeMap<String, Vec<Field>>) {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {")) else {
            continue;
        };
        let fields = lines.by_ref().take_while(|line| *line != "}").filter_map(field).collect();
        structs.insert(name.to_owned(), fields);
    }
}

/// A line like ``Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"` ``.
fn field(line: &str) -> Option<Field> {
    let line = line.trim();
    if line.starts_with("//") {
        return None;
    }
    let (declaration, rest) = line.split_once('`')?;
    let tags = rest.split('`').next()?;
    let mut words = declaration.split_whitespace();
    let first = words.next()?;
    let (ty, embedded) = words.next().map_or((first, true), |ty| (ty, false));
    let mut json = tag(tags, "json").unwrap_or_default().split(',');
    let json_name = json.next().unwrap_or_default();
    if json_name == "-" || (json_name.is_empty() && !embedded) {
        return None;
    }
    let options: Vec<&str> = json.collect();
    Some(Field {
        json: json_name.to_owned(),
        ty: ty.trim_start_matches('*').to_owned(),
        pointer: ty.starts_with('*'),
        omit_empty: options.contains(&"omitempty"),
        omit_zero: options.contains(&"omitzero"),
        number: tag(tags, "protobuf").and_then(|tag| tag.split(',').nth(1)?.parse().ok()),
    })
}

/// The value of `key:"value"` in a struct's tags.
fn tag<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    tags.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix(":\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_what_their_tags_say() {
        let mut structs = BTreeMap::new();
        parse(
            "type Volume struct {\n\
             \t// name of the volume\n\
             \tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`\n\
             \tVolumeSource `json:\",inline\" protobuf:\"bytes,2,opt,name=volumeSource\"`\n\
             \tCount *int32 `json:\"count,omitempty\" protobuf:\"varint,3,opt,name=count\"` // why\n\
             \tHidden string `json:\"-\"`\n\
             }\n",
            &mut structs,
        );
        let name = Field {
            json: "name".to_owned(),
            ty: "string".to_owned(),
            pointer: false,
            omit_empty: false,
            omit_zero: false,
            number: Some(1),
        };
        let source = Field { json: String::new(), ty: "VolumeSource".to_owned(), number: Some(2), ..name.clone() };
        let count = Field {
            json: "count".to_owned(),
            ty: "int32".to_owned(),
            pointer: true,
            omit_empty: true,
            omit_zero: false,
            number: Some(3),
        };
        assert_eq!(structs["Volume"], [name, source, count]);
    }
}
