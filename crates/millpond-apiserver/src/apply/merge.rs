//! Merging an applied configuration into an object, and taking fields out of an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{FieldSet, MAX_DEPTH};
use super::path::PathElement;
use super::typed::{FieldType, Form, Relation};

static NULL: Value = Value::Null;

/// The live object with the configuration laid over it. Nothing is removed.
pub(super) fn merge(live: &Value, config: &Value, place: FieldType<'_>) -> Value {
    merge_values(Some(live), Some(config), place, 0).unwrap_or_default()
}

fn merge_values<'a>(
    live: Option<&'a Value>,
    config: Option<&'a Value>,
    place: FieldType<'a>,
    depth: usize,
) -> Option<Value> {
    let leaf = || config.or(live).cloned();
    if depth >= MAX_DEPTH {
        return leaf();
    }
    match place.forms(config.or(live)?).first() {
        None | Some(Form::Scalar) => leaf(),
        Some(Form::Map) => {
            let filled = |value: Option<&'a Value>| value?.as_object().filter(|map| !map.is_empty());
            let (live_map, config_map) = (filled(live), filled(config));
            if place.whole_map() || (live_map.is_none() && config_map.is_none()) {
                return leaf();
            }
            merge_maps(live_map, config_map, place, depth)
        }
        Some(Form::List) => {
            let items = |value: Option<&'a Value>| value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let (live_items, config_items) = (items(live), items(config));
            match place.relation() {
                Relation::Atomic => leaf(),
                _ if live_items.is_empty() && config_items.is_empty() => leaf(),
                relation => merge_lists(live_items, config_items, place, relation, depth),
            }
        }
    }
}

fn merge_maps<'a>(
    live: Option<&'a Map<String, Value>>,
    config: Option<&'a Map<String, Value>>,
    place: FieldType<'a>,
    depth: usize,
) -> Option<Value> {
    let mut out = Map::new();
    for (name, value) in live.into_iter().flatten() {
        let applied = config.and_then(|config| config.get(name));
        let merged = match applied {
            None => Some(value.clone()),
            applied => merge_values(Some(value), applied, place.field(name).place, depth + 1),
        };
        out.extend(merged.map(|merged| (name.clone(), merged)));
    }
    for (name, value) in config.into_iter().flatten() {
        if live.is_none_or(|live| !live.contains_key(name)) {
            let merged = merge_values(None, Some(value), place.field(name).place, depth + 1);
            out.extend(merged.map(|merged| (name.clone(), merged)));
        }
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// Merges the items of two lists. Items of both lists come in the order of the configuration; items of the
/// live list alone keep their places among them.
fn merge_lists<'a>(
    live: &'a [Value],
    config: &'a [Value],
    place: FieldType<'a>,
    relation: Relation<'a>,
    depth: usize,
) -> Option<Value> {
    let with_elements = |items: &'a [Value]| -> Vec<(PathElement<'a>, &'a Value)> {
        items.iter().filter_map(|item| Some((place.element(relation, item).ok()?, item))).collect()
    };
    let (live, config) = (with_elements(live), with_elements(config));
    let (live_index, config_index) = (index(&live), index(&config));
    let mut shared = config.iter().map(|(element, _)| element).filter(|element| live_index.contains_key(element));
    let mut next_shared = shared.next();
    let mut merged = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if l < live.len() && c < config.len() {
            let element = &live[l].0;
            if *element == config[c].0 {
                merged.insert(element);
                let (old, new) = (live_index.get(element).copied(), config_index.get(element).copied());
                out.extend(merge_values(old, new, place.item(), depth + 1));
                l += 1;
                c += 1;
                next_shared = shared.next();
                continue;
            }
            let out_of_turn = next_shared.is_some_and(|next| next != element);
            if config_index.contains_key(element) && out_of_turn {
                l += 1;
                continue;
            }
        }
        if l < live.len() {
            let (element, item) = &live[l];
            if !config_index.contains_key(element) {
                out.extend(merge_values(Some(item), None, place.item(), depth + 1));
                l += 1;
                continue;
            }
            if merged.contains(element) {
                l += 1;
            }
        }
        if c < config.len() {
            let element = &config[c].0;
            merged.insert(element);
            let (old, new) = (live_index.get(element).copied(), config_index.get(element).copied());
            out.extend(merge_values(old, new, place.item(), depth + 1));
            c += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    (!out.is_empty()).then_some(Value::Array(out))
}

/// Items by element. Items that share an element are not merged with anything; the index has null for them.
fn index<'i, 'a>(items: &'i [(PathElement<'a>, &'a Value)]) -> BTreeMap<&'i PathElement<'a>, &'a Value> {
    let mut index = BTreeMap::new();
    for (element, item) in items {
        index.entry(element).and_modify(|seen| *seen = &NULL).or_insert(*item);
    }
    index
}

/// Takes fields out of an object. A map or list that loses its last part becomes null, and so does one that
/// is owned as a whole and had a part taken out.
pub(super) fn remove(object: &Value, fields: &FieldSet<'_>, place: FieldType<'_>) -> Value {
    let mut object = object.clone();
    if !fields.is_empty() {
        remove_from(&mut object, fields, place);
    }
    object
}

fn remove_from(value: &mut Value, fields: &FieldSet<'_>, place: FieldType<'_>) {
    let emptied = match (place.forms(value).first(), &mut *value) {
        (None | Some(Form::Scalar), _) => return,
        (Some(Form::Map), Value::Object(map)) if !map.is_empty() && !place.whole_map() => {
            remove_from_map(map, fields, place);
            map.is_empty()
        }
        (Some(Form::List), Value::Array(items)) if !items.is_empty() => match place.relation() {
            Relation::Atomic => true,
            relation => {
                remove_from_list(items, fields, place, relation);
                items.is_empty()
            }
        },
        (Some(Form::Map | Form::List), _) => true,
    };
    if emptied {
        *value = Value::Null;
    }
}

fn remove_from_map(map: &mut Map<String, Value>, fields: &FieldSet<'_>, place: FieldType<'_>) {
    for (element, member, below) in fields.nodes() {
        let PathElement::Field(name) = element else { continue };
        if member {
            map.remove(name.as_ref());
        } else if let Some(value) = map.get_mut(name.as_ref()) {
            remove_from(value, below, place.field(name).place);
        }
    }
}

fn remove_from_list(items: &mut Vec<Value>, fields: &FieldSet<'_>, place: FieldType<'_>, relation: Relation<'_>) {
    items.retain_mut(|item| {
        let Ok(element) = place.element(relation, item) else { return true };
        if fields.has_element(&element) {
            return false;
        }
        if let Some(below) = fields.below(&element) {
            remove_from(item, below, place.item());
        }
        true
    });
}
