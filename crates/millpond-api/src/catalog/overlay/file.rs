//! Overlays from YAML files, with the place of what is wrong in them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{LIMIT_BYTES, LIMIT_OVERLAYS, LIMIT_WEIGHT, Overlay, extended, is_weight, price_rule};
use crate::catalog::import::{FileError, FileLine};
use crate::money;
use crate::selector::Requirement;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
    #[serde(default, rename = "status")]
    _status: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Metadata {
    name: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    requirements: Vec<Spanned<Requirement>>,
    #[serde(default)]
    weight: Option<Spanned<u32>>,
    #[serde(default)]
    price: Option<Spanned<String>>,
    #[serde(default)]
    price_adjustment: Option<Spanned<String>>,
    #[serde(default)]
    surcharge: Option<Spanned<String>>,
    #[serde(default)]
    capacity: BTreeMap<String, Spanned<String>>,
}

/// Reads overlays from YAML, one document each.
pub fn parse(file: &str, text: &str) -> Result<Vec<Overlay>, FileError> {
    let first = FileLine { file, line: 1 };
    if text.len() > LIMIT_BYTES {
        return Err(first.at(1, "", format!("larger than {} MiB", LIMIT_BYTES >> 20)));
    }
    let documents: Vec<Document> = serde_saphyr::from_multiple(text).map_err(|error| {
        let location = error.location();
        let (line, column) = location.map_or((1, 1), |location| (location.line(), location.column()));
        FileLine { file, line }.at(column, "", message(&error))
    })?;
    if documents.len() > LIMIT_OVERLAYS {
        return Err(first.at(1, "", format!("more than {LIMIT_OVERLAYS} overlays")));
    }
    let mut overlays: Vec<Overlay> = Vec::with_capacity(documents.len());
    for document in documents {
        let name = &document.metadata.name;
        if overlays.iter().any(|overlay| overlay.name == name.value) {
            return Err(wrong(file, name, "metadata.name", &name.value, "is there more than once"));
        }
        overlays.push(overlay(file, document)?);
    }
    Ok(overlays)
}

/// The reader's words without its drawing of the place.
fn message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let end = [" at line ", " (line "].iter().filter_map(|mark| text.rfind(mark)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

fn wrong<T>(file: &str, place: &Spanned<T>, field: &str, text: &str, problem: impl Into<String>) -> FileError {
    let location = place.referenced;
    FileLine { file, line: location.line() }.field(location.column(), field, text, problem)
}

fn overlay(file: &str, document: Document) -> Result<Overlay, FileError> {
    let Document { api_version, kind, metadata: Metadata { name }, spec, .. } = document;
    if (api_version.as_str(), kind.as_str()) != ("karpenter.sh/v1alpha1", "NodeOverlay") {
        let text = format!("{api_version} {kind}");
        return Err(wrong(file, &name, "kind", &text, "is not `karpenter.sh/v1alpha1 NodeOverlay`"));
    }
    for requirement in &spec.requirements {
        let checked = requirement.value.check();
        checked.map_err(|error| wrong(file, requirement, "spec.requirements", "", error.to_string()))?;
    }
    if let Some(weight) = spec.weight.as_ref().filter(|weight| !is_weight(weight.value)) {
        let text = weight.value.to_string();
        return Err(wrong(file, weight, "spec.weight", &text, format!("is not from 1 to {LIMIT_WEIGHT}")));
    }
    let text = |value: &Option<Spanned<String>>| value.as_ref().map(|text| text.value.clone());
    let (price, adjustment) = (text(&spec.price), text(&spec.price_adjustment));
    let price = price_rule(price.as_deref(), adjustment.as_deref()).map_err(|(field, problem)| {
        let both = price.is_some() && adjustment.is_some();
        let at = if field == "spec.price" { &spec.price } else { &spec.price_adjustment };
        let (at, said) = at.as_ref().map_or((&name, ""), |at| (at, if both { "" } else { at.value.as_str() }));
        wrong(file, at, field, said, problem)
    })?;
    let dollars = |text: &Spanned<String>| {
        money::parse(&text.value).map_err(|error| wrong(file, text, "spec.surcharge", &text.value, error.to_string()))
    };
    let surcharge = spec.surcharge.as_ref().map(dollars).transpose()?;
    let mut capacity = BTreeMap::new();
    for (resource, count) in &spec.capacity {
        let units = extended(resource, &count.value)
            .map_err(|problem| wrong(file, count, &format!("spec.capacity.{resource}"), &count.value, problem))?;
        capacity.insert(resource.clone(), units);
    }
    Ok(Overlay {
        name: name.value,
        weight: spec.weight.map_or(0, |weight| weight.value),
        requirements: spec.requirements.into_iter().map(|requirement| requirement.value).collect(),
        price,
        surcharge_nanos_hour: surcharge.unwrap_or(0),
        capacity,
    })
}
