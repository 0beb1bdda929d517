//! The difference between two versions of an object: fields added, removed and modified.

use serde_json::{Map, Value};

use super::fields::{FieldSet, MAX_DEPTH};
use super::path::PathElement;
use super::typed::{FieldType, Form, Relation};
use super::value::equal;
use super::walk::sort_items;

/// The differences between two objects. No field is in two of the sets.
#[derive(Clone, Default, Debug)]
pub(super) struct Comparison<'a> {
    pub removed: FieldSet<'a>,
    pub modified: FieldSet<'a>,
    pub added: FieldSet<'a>,
}

impl<'a> Comparison<'a> {
    fn push(&mut self, element: &PathElement<'a>, change: Change<'a>) {
        let Change { own, below, .. } = change;
        push(&mut self.removed, element, own.removed, below.removed);
        push(&mut self.modified, element, own.modified, below.modified);
        push(&mut self.added, element, own.added, below.added);
    }

    fn sort(&mut self) {
        self.removed.sort();
        self.modified.sort();
        self.added.sort();
    }

    fn union(self, other: Self) -> Self {
        Self {
            removed: self.removed.union(other.removed),
            modified: self.modified.union(other.modified),
            added: self.added.union(other.added),
        }
    }
}

fn push<'a>(set: &mut FieldSet<'a>, element: &PathElement<'a>, member: bool, below: FieldSet<'a>) {
    if member || !below.is_empty() {
        set.push(element.clone(), member, below);
    }
}

/// The change of a value itself, and of the fields below it.
#[derive(Default)]
struct Change<'a> {
    own: Own,
    /// The value was compared as a whole.
    leaf: bool,
    below: Comparison<'a>,
}

#[derive(Default, Clone, Copy)]
struct Own {
    removed: bool,
    modified: bool,
    added: bool,
}

/// Compares two objects of the same type.
pub(super) fn compare<'a>(old: &'a Value, new: &'a Value, place: FieldType<'a>) -> Comparison<'a> {
    compare_values(Some(old), Some(new), place, 0).below
}

fn compare_values<'a>(
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    place: FieldType<'a>,
    depth: usize,
) -> Change<'a> {
    let mut change = Change::default();
    if depth >= MAX_DEPTH {
        change.leaf(old, new);
        return change;
    }
    let (old_forms, new_forms) = (old.map(|old| place.forms(old)), new.map(|new| place.forms(new)));
    match (old_forms, new_forms) {
        (None, None) => {}
        (Some(forms), None) | (None, Some(forms)) => change.handle(forms.first(), old, new, place, depth),
        (Some(old_forms), Some(new_forms)) if old_forms == new_forms => {
            change.handle(new_forms.first(), old, new, place, depth);
        }
        (Some(old_forms), Some(new_forms)) => {
            change.handle(old_forms.first(), old, new, place, depth);
            change.leaf = false;
            change.handle(new_forms.first(), old, new, place, depth);
        }
    }
    if !change.leaf {
        change.own.added |= old.is_none() && new.is_some();
        change.own.removed |= new.is_none() && old.is_some();
    }
    change
}

impl<'a> Change<'a> {
    fn handle(
        &mut self,
        form: Option<Form>,
        old: Option<&'a Value>,
        new: Option<&'a Value>,
        place: FieldType<'a>,
        depth: usize,
    ) {
        match form {
            None | Some(Form::Scalar) => self.leaf(old, new),
            Some(Form::Map) => {
                let (old_map, new_map) = (filled_map(old), filled_map(new));
                if place.whole_map() || (old_map.is_none() && new_map.is_none()) {
                    self.leaf(old, new);
                } else {
                    self.add_below(compare_maps(old_map, new_map, place, depth));
                }
            }
            Some(Form::List) => {
                let (old_list, new_list) = (list(old), list(new));
                match place.relation() {
                    Relation::Atomic => self.leaf(old, new),
                    _ if old_list.is_empty() && new_list.is_empty() => self.leaf(old, new),
                    relation => self.add_below(compare_lists(old_list, new_list, place, relation, depth)),
                }
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        self.leaf = true;
        match (old, new) {
            (None, None) => {}
            (None, Some(_)) => self.own.added = true,
            (Some(_), None) => self.own.removed = true,
            (Some(old), Some(new)) => self.own.modified |= !equal(old, new),
        }
    }

    fn add_below(&mut self, comparison: Comparison<'a>) {
        self.below = std::mem::take(&mut self.below).union(comparison);
    }
}

fn filled_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value?.as_object().filter(|map| !map.is_empty())
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn compare_maps<'a>(
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    place: FieldType<'a>,
    depth: usize,
) -> Comparison<'a> {
    let mut comparison = Comparison::default();
    for (name, new_value) in new.into_iter().flatten() {
        let old_value = old.and_then(|old| old.get(name));
        if old_value.is_some_and(|old_value| old_value == new_value) {
            continue;
        }
        let change = compare_values(old_value, Some(new_value), place.field(name).place, depth + 1);
        comparison.push(&PathElement::field(name.as_str()), change);
    }
    for (name, old_value) in old.into_iter().flatten() {
        if new.is_none_or(|new| !new.contains_key(name)) {
            let change = compare_values(Some(old_value), None, place.field(name).place, depth + 1);
            comparison.push(&PathElement::field(name.as_str()), change);
        }
    }
    comparison.sort();
    comparison
}

fn compare_lists<'a>(
    old: &'a [Value],
    new: &'a [Value],
    place: FieldType<'a>,
    relation: Relation<'a>,
    depth: usize,
) -> Comparison<'a> {
    let index = |items: &'a [Value]| {
        let mut items: Vec<(PathElement<'a>, &'a Value)> =
            items.iter().filter_map(|item| Some((place.element(relation, item).ok()?, item))).collect();
        sort_items(&mut items);
        items
    };
    let (old, new) = (index(old), index(new));
    let (mut old, mut new) = (old.as_slice(), new.as_slice());
    let mut comparison = Comparison::default();
    while let Some((element, _)) = [old.first(), new.first()].into_iter().flatten().min_by(|l, r| l.0.cmp(&r.0)) {
        let element = element.clone();
        let split = |items: &mut &[(PathElement<'a>, &'a Value)]| {
            let count = items.iter().take_while(|(other, _)| *other == element).count();
            let (same, rest) = items.split_at(count);
            *items = rest;
            same.iter().map(|(_, item)| *item).collect::<Vec<_>>()
        };
        let (old_items, new_items) = (split(&mut old), split(&mut new));
        comparison.push(&element, compare_items(&old_items, &new_items, place, depth));
    }
    comparison
}

/// Compares the items that share an element. Two or more of them are one field; an item that became unique,
/// or stopped being so, is a new field with new parts.
fn compare_items<'a>(old: &[&'a Value], new: &[&'a Value], place: FieldType<'a>, depth: usize) -> Change<'a> {
    match (old, new) {
        ([] | [_], [] | [_]) => compare_values(old.first().copied(), new.first().copied(), place.item(), depth + 1),
        ([_, _, ..], [_, _, ..]) => {
            let same = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| equal(old, new));
            Change { own: Own { modified: !same, ..Own::default() }, ..Change::default() }
        }
        ([_, _, ..], _) => {
            let mut change = match new.first() {
                Some(item) => compare_values(None, Some(item), place.item(), depth + 1),
                None => Change::default(),
            };
            change.own.removed = true;
            change
        }
        (_, _) => {
            let mut change = match old.first() {
                Some(item) => compare_values(Some(item), None, place.item(), depth + 1),
                None => Change::default(),
            };
            change.own.added = true;
            change
        }
    }
}
