//! The order of a merged list: items of the patch in the patch's order, the server's own between them where
//! they stood.

use std::collections::HashMap;

use serde_json::Value;

use super::super::GO_MAP;
use super::{MergeError, bad_type, no_merge_key};

/// The identity of a list's items: objects by their merge key, scalars by themselves.
pub(super) struct Identity<'a> {
    merge_key: Option<&'a str>,
    objects: bool,
}

impl<'a> Identity<'a> {
    pub(super) fn new(merge_key: Option<&'a str>, objects: bool) -> Self {
        Self { merge_key, objects }
    }

    /// A text that is equal for equal items; numbers and strings differ by their quotes.
    pub(super) fn of(&self, item: &Value) -> String {
        match self.merge_key {
            Some(key) if self.objects => item.get(key).unwrap_or(&Value::Null).to_string(),
            _ => item.to_string(),
        }
    }

    /// The same, for items that must have the merge key.
    pub(super) fn required(&self, item: &Value) -> Result<String, MergeError> {
        match (self.merge_key, item) {
            (Some(key), Value::Object(map)) if self.objects && !map.contains_key(key) => Err(no_merge_key(map, key)),
            (Some(_), item) if self.objects && !item.is_object() => Err(bad_type(GO_MAP, item)),
            _ => Ok(self.of(item)),
        }
    }

    /// First position of each item.
    pub(super) fn positions(&self, items: &[Value]) -> HashMap<String, usize> {
        let mut positions = HashMap::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            positions.entry(self.of(item)).or_insert(position);
        }
        positions
    }
}

/// Orders a merged list: items that stand in `wanted` follow it, the others follow `current`; the two are
/// interleaved by `current`, and where that does not say, the wanted ones come first.
pub(super) fn in_order(
    merged: Vec<Value>,
    wanted: &[Value],
    current: &[Value],
    identity: &Identity<'_>,
) -> Result<Vec<Value>, MergeError> {
    for item in &merged {
        identity.required(item)?;
    }
    let stranger = wanted.iter().position(|item| identity.objects && !item.is_object());
    if let (Some(position), false) = (stranger, merged.is_empty()) {
        return Err(MergeError::Other(format!("value for key {position} is not a map")));
    }
    for item in wanted.iter().chain(current) {
        identity.required(item)?;
    }
    let wanted = identity.positions(wanted);
    let current = identity.positions(current);
    let keyed: Vec<(String, Value)> = merged.into_iter().map(|item| (identity.of(&item), item)).collect();
    let (mut ours, mut theirs): (Vec<_>, Vec<_>) = keyed.into_iter().partition(|(id, _)| wanted.contains_key(id));
    sort(&mut ours, &wanted);
    sort(&mut theirs, &current);
    Ok(interleave(theirs, ours, &current))
}

type Keyed = (String, Value);

/// Sorts by position. Items without one are only possible in hostile patches; the real server's comparison
/// then holds every item for smaller than its neighbour, which is what an insertion sort shows.
fn sort(items: &mut [Keyed], positions: &HashMap<String, usize>) {
    if items.iter().all(|(id, _)| positions.contains_key(id)) {
        items.sort_by_key(|(id, _)| positions.get(id).copied());
        return;
    }
    let less = |a: &Keyed, b: &Keyed| match (positions.get(&a.0), positions.get(&b.0)) {
        (Some(a), Some(b)) => a < b,
        _ => true,
    };
    for end in 1..items.len() {
        let mut at = end;
        while at > 0 && less(&items[at], &items[at - 1]) {
            items.swap(at, at - 1);
            at -= 1;
        }
    }
}

fn interleave(theirs: Vec<Keyed>, ours: Vec<Keyed>, current: &HashMap<String, usize>) -> Vec<Value> {
    let mut merged = Vec::with_capacity(theirs.len() + ours.len());
    let mut theirs = theirs.into_iter().peekable();
    let mut ours = ours.into_iter().peekable();
    loop {
        let their_turn = match (theirs.peek(), ours.peek()) {
            (None, None) => return merged,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((their, _)), Some((our, _))) => {
                matches!((current.get(their), current.get(our)), (Some(their), Some(our)) if their < our)
            }
        };
        let next = if their_turn { theirs.next() } else { ours.next() };
        merged.extend(next.map(|(_, item)| item));
    }
}
