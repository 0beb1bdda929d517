//! The form of the table: one line for each type and one for each of its properties.
//!
//! ```text
//! type core.v1.ContainerPort
//!  containerPort! 3 +int32
//!  hostPort 2 int32
//!  protocol 4 string ="TCP"
//! type core.v1.Service kind /v1/Service
//!  …
//! type meta.v1.Time is time
//! ```
//!
//! A type has a name (without what whole packages share, see [`PREFIXES`]), then `atomic` where the object has
//! one owner as a whole, `kind` with each group, version and kind that it is (`*` for any), and `is` if it is
//! written in a way of its own.
//!
//! A property has a name, with `!` if it is required; its protobuf number (`2.1` is field 1 of an embedded
//! message in field 2, `-` is none); and its type: a scalar, `[item]`, `{value}`, or a type of the table.
//! Before the type stands `*` for a pointer, whose empty value differs from none; `+` where an empty value is
//! printed all the same; `*+` for a pointer of which none is printed as null. Behind the type stand `atomic`,
//! `set`, `map(keys)` for server-side apply, `granular` for a use of an atomic type that is not; `merge`,
//! `merge(key)`, `retain`, `replace` for strategic merge patches; `=` and a default in JSON, unless it is the empty value that `+` prints anyway.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::Packages;
use super::openapi::{Kind, Schema};
use super::proto::{Declared, Label};

/// Prefixes of package names in OpenAPI, which the table leaves out.
const PREFIXES: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
    "io.k8s.api.",
];

/// Types with a JSON form of their own: name in OpenAPI and word in the table.
const SPECIAL: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "fields"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "microtime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "schema-or-array"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "schema-or-bool"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "schema-or-strings"),
];

/// Messages that are lists of strings in JSON: `strings` in the table.
const STRING_LISTS: &[&str] = &["ExtraValue", "Verbs"];

/// A type with at least this many kinds belongs to every group (`DeleteOptions`).
const COMMON_KINDS: usize = 10;

/// One type, ready to be written.
pub(super) struct TypeLines {
    name: String,
    lines: String,
}

/// The whole file.
pub(super) fn render(version: &str, mut types: Vec<TypeLines>) -> String {
    types.sort_by(|a, b| a.name.cmp(&b.name));
    let mut text = format!(
        "# Types of Kubernetes {version}, written by `cargo xtask generate`; its form is described in\n\
         # xtask/src/generate/types/table.rs\n"
    );
    for ty in types {
        text.push_str(&ty.lines);
    }
    text
}

/// The lines of one type.
pub(super) fn describe(full: &str, schema: &Schema, kinds: &[Kind], packages: &mut Packages) -> Result<TypeLines> {
    let name = short(full)?;
    let mut lines = format!("type {name}");
    if schema.map_type.as_deref() == Some("atomic") {
        lines.push_str(" atomic");
    }
    if kinds.len() >= COMMON_KINDS {
        write!(lines, " kind */*/{}", kinds[0].name)?;
    } else {
        for kind in kinds {
            write!(lines, " kind {}/{}/{}", kind.group, kind.version, kind.name)?;
        }
    }
    if let Some(word) = special(full) {
        writeln!(lines, " is {word}")?;
        return Ok(TypeLines { name, lines });
    }
    lines.push('\n');
    if !schema.properties.is_empty() {
        let fields = flatten(full, [0, 0], true, packages)?;
        for (property, schema_of) in &schema.properties {
            let field = fields
                .iter()
                .find(|field| field.json == *property)
                .with_context(|| format!("no Go field for property `{property}`"))?;
            let required = schema.required.contains(property);
            line(&mut lines, field, required, schema_of).with_context(|| format!("property `{property}`"))?;
        }
    }
    Ok(TypeLines { name, lines })
}

/// A property's facts from Go and protobuf.
struct FlatField {
    json: String,
    number: Option<u32>,
    within: [u32; 2],
    pointer: bool,
    omit_empty: bool,
    omit_zero: bool,
    declared: Option<Declared>,
}

/// Fields of a struct and of the structs embedded in it.
fn flatten(full: &str, within: [u32; 2], numbered: bool, packages: &mut Packages) -> Result<Vec<FlatField>> {
    let (package_name, name) = full.rsplit_once('.').context("a type without package")?;
    let package = packages.get(package_name)?;
    let fields = package.structs.get(name).with_context(|| format!("no Go struct `{full}`"))?.clone();
    let message = package.messages.get(name).cloned().unwrap_or_default();
    let mut flat = Vec::new();
    for field in fields {
        if field.json.is_empty() {
            let (embedded, within, numbered) = match field.number {
                Some(number) => (sibling(package_name, &field.ty)?, nested(within, number)?, numbered),
                None => (sibling(package_name, &field.ty)?, within, false),
            };
            ensure!(!field.pointer, "embedded pointer `{}`", field.ty);
            flat.extend(flatten(&embedded, within, numbered, packages)?);
            continue;
        }
        let number = field.number.filter(|_| numbered);
        flat.push(FlatField {
            json: field.json,
            number,
            within,
            pointer: field.pointer,
            omit_empty: field.omit_empty,
            omit_zero: field.omit_zero,
            declared: number.and_then(|number| message.get(&number).cloned()),
        });
    }
    Ok(flat)
}

/// Full name of a Go type as it is written inside a package.
fn sibling(package: &str, ty: &str) -> Result<String> {
    match ty.split_once('.') {
        None => Ok(format!("{package}.{ty}")),
        Some(("metav1", name)) => Ok(format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")),
        Some(_) => bail!("embedded struct `{ty}` of an unknown package"),
    }
}

fn nested(within: [u32; 2], number: u32) -> Result<[u32; 2]> {
    match within {
        [0, 0] => Ok([number, 0]),
        [outer, 0] => Ok([outer, number]),
        _ => bail!("structs embedded more than two levels deep"),
    }
}

fn line(lines: &mut String, field: &FlatField, required: bool, schema: &Schema) -> Result<()> {
    let mut ty = word(schema)?;
    if let Some(declared) = &field.declared {
        if STRING_LISTS.contains(&declared.ty.as_str()) {
            ty = ty.replace("[string]", "strings");
        } else {
            agree(schema, declared)?;
        }
    }
    ensure!(field.number.is_none() || field.declared.is_some(), "no protobuf field {:?}", field.number);
    write!(lines, " {}{} ", field.json, if required { "!" } else { "" })?;
    match field.number {
        None => lines.push('-'),
        Some(number) => {
            for outer in field.within.iter().filter(|outer| **outer != 0) {
                write!(lines, "{outer}.")?;
            }
            write!(lines, "{number}")?;
        }
    }
    let zero = zero(field, schema);
    write!(lines, " {zero}{ty}")?;
    if let Some(kind) = &schema.list_type {
        match kind.as_str() {
            "map" => write!(lines, " map({})", schema.list_map_keys.join(","))?,
            other => write!(lines, " {other}")?,
        }
    }
    match schema.map_type.as_deref() {
        None => {}
        Some("atomic") if schema.refers_to().is_none() => lines.push_str(" atomic"),
        // Maps are granular unless something is said; a named type may be atomic elsewhere.
        Some("granular") if schema.refers_to().is_none() => {}
        Some("granular") => lines.push_str(" granular"),
        Some(other) => bail!("map type `{other}`"),
    }
    for strategy in schema.patch_strategy.iter().flat_map(|strategies| strategies.split(',')) {
        match (strategy, &schema.patch_merge_key) {
            ("merge", Some(key)) => write!(lines, " merge({key})")?,
            ("merge", None) => lines.push_str(" merge"),
            ("retainKeys", _) => lines.push_str(" retain"),
            ("replace", _) => lines.push_str(" replace"),
            (other, _) => bail!("patch strategy `{other}`"),
        }
    }
    if let Some(default) = &schema.default
        && !(zero == "+" && empty(default))
    {
        write!(lines, " ={default}")?;
    }
    lines.push('\n');
    Ok(())
}

/// The encoding of an empty value.
fn zero(field: &FlatField, schema: &Schema) -> &'static str {
    // Go's `omitempty` has no effect on structs.
    let omitted = field.omit_zero || (field.omit_empty && (field.pointer || schema.refers_to().is_none()));
    match (field.pointer, omitted) {
        (true, true) => "*",
        (true, false) => "*+",
        (false, true) => "",
        (false, false) => "+",
    }
}

fn empty(value: &Value) -> bool {
    [json!(""), json!({}), json!(0), json!(false)].contains(value)
}

/// The type of a property, item or value in the words of the table.
fn word(schema: &Schema) -> Result<String> {
    if let Some(full) = schema.refers_to() {
        return special(full).map_or_else(|| short(full), |word| Ok(word.to_owned()));
    }
    if let Some(items) = &schema.items {
        return Ok(format!("[{}]", word(items)?));
    }
    if let Some(values) = &schema.additional_properties {
        return Ok(format!("{{{}}}", word(values)?));
    }
    let word = match (schema.r#type.as_deref(), schema.format.as_deref()) {
        (Some("string"), None) => "string",
        (Some("string"), Some("byte")) => "bytes",
        (Some("integer"), Some("int32")) => "int32",
        (Some("integer"), Some("int64")) => "int64",
        (Some("number"), Some("double")) => "double",
        (Some("boolean"), None) => "bool",
        other => bail!("a type that the table has no word for: {other:?}"),
    };
    Ok(word.to_owned())
}

/// Whether protobuf declares what OpenAPI says.
fn agree(schema: &Schema, declared: &Declared) -> Result<()> {
    let (label, value) = match (&schema.items, &schema.additional_properties) {
        (Some(items), _) => (Label::Repeated, items.as_ref()),
        (_, Some(values)) => (Label::Map, values.as_ref()),
        _ => (Label::Optional, schema),
    };
    let expected = match value.refers_to() {
        Some(full) => full.rsplit('.').next().unwrap_or_default().to_owned(),
        None => word(value)?,
    };
    ensure!(label == declared.label && expected == declared.ty, "{declared:?} in protobuf, `{expected}` in OpenAPI");
    Ok(())
}

fn special(full: &str) -> Option<&'static str> {
    SPECIAL.iter().find(|(name, _)| *name == full).map(|(_, word)| *word)
}

/// The name of a type in the table.
fn short(full: &str) -> Result<String> {
    PREFIXES
        .iter()
        .find_map(|prefix| full.strip_prefix(prefix))
        .map(str::to_owned)
        .with_context(|| format!("no short form of `{full}`"))
}
