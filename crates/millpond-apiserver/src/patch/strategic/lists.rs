//! Lists in strategic merge patches: merging by key or as sets, deleting items, keeping orders.

use std::collections::HashSet;

use serde_json::Value;

use super::super::GO_MAP;
use super::order::{Identity, in_order};
use super::{
    ELEMENT_ORDER, MergeError, Object, PATCH, bad_directive, bad_type, below, is_list, merge_objects, no_merge_key,
    property, without_directives,
};
use crate::print::go_value;
use crate::schema::Schema;

/// The properties of a list in the schema.
pub(super) struct ListPatch<'a> {
    /// Items merge instead of replacing the list.
    pub(super) merges: bool,
    /// Key by which objects of the list are known.
    merge_key: Option<&'a str>,
    /// Schema of an item.
    items: &'a Schema,
}

impl<'a> ListPatch<'a> {
    pub(super) fn of(schema: &'a Schema, key: &str) -> Result<Self, MergeError> {
        let property = property(schema, key)?;
        let items = property.schema.items.as_deref();
        let items = match items {
            Some(items) if is_list(items) => return Err(MergeError::Other("unexpected slice of slice".to_owned())),
            Some(items) => items,
            None => {
                let message = "expected slice or array type, but got: struct";
                return Err(MergeError::Other(message.to_owned()));
            }
        };
        Ok(Self { merges: property.patch.merge, merge_key: property.patch_merge_key.as_deref(), items })
    }
}

/// Merges the lists of a patch that come with a `$setElementOrder`, and takes both out of the patch.
pub(super) fn merge_ordered(object: &mut Object, patch: &mut Object, schema: &Schema) -> Result<(), MergeError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let order = list_of(patch.remove(&directive).unwrap_or_default())?;
        let key = below(&directive, ELEMENT_ORDER).ok_or(MergeError::ElementOrder)?;
        let current = object.get(key).cloned().map(list_of).transpose()?;
        let change = patch.get(key).cloned().map(list_of).transpose()?;
        let list = ListPatch::of(schema, key)?;
        check_order(change.as_deref().unwrap_or_default(), &order, list.merge_key)?;
        let types = |current: &[Value]| holds_objects(current, change.as_deref().unwrap_or_default());
        let objects = types(current.as_deref().unwrap_or_default());
        let (merged, seen) = match (current, change.clone()) {
            (None, None) => continue,
            (Some(current), None) => (current.clone(), current),
            (None, Some(change)) => (change.into_iter().filter_map(without_directives).collect(), Vec::new()),
            (Some(current), Some(change)) if list.merges => {
                let MergedList { items, seen } = merge(current, change, &list, false)?;
                (items, seen)
            }
            (Some(current), Some(change)) => (change, current),
        };
        let objects = objects?;
        let listed = merged.iter().chain(&order).chain(&seen).find_map(Value::as_object);
        if let (true, None, Some(item)) = (objects, list.merge_key, listed) {
            return Err(no_merge_key(item, ""));
        }
        let identity = Identity::new(list.merge_key, objects);
        object.insert(key.to_owned(), Value::Array(in_order(merged, &order, &seen, &identity)?));
        patch.remove(key);
    }
    Ok(())
}

fn list_of(value: Value) -> Result<Vec<Value>, MergeError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

/// The items of the patch, deleted ones aside, must stand in the order list, in the same sequence.
fn check_order(change: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), MergeError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    let identity = Identity::new(merge_key, merge_key.is_some());
    if let Some(item) = change.iter().find(|item| merge_key.is_some() && !item.is_object()) {
        return Err(bad_type(GO_MAP, item));
    }
    let mut kept =
        change.iter().filter(|item| item.get(PATCH).is_none_or(|directive| directive != "delete")).peekable();
    let mut order_left = order.iter();
    while let Some(item) = kept.peek() {
        // Only while there is an order left are other directives passed over, as in the real server.
        let Some(ordered) = order_left.as_slice().first() else {
            return Err(MergeError::Other(format!(
                "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
                go_value(&Value::from(change)),
                go_value(&Value::from(order)),
            )));
        };
        if has_key(item, PATCH) {
            kept.next();
            continue;
        }
        if identity.required(item)? == identity.required(ordered)? {
            kept.next();
        }
        order_left.next();
    }
    Ok(())
}

/// Merges a patch into a list; with `deletes_items` the patch is a `$deleteFromPrimitiveList`.
pub(super) fn merge_list(
    current: Vec<Value>,
    patch: Vec<Value>,
    list: &ListPatch<'_>,
    deletes_items: bool,
) -> Result<Vec<Value>, MergeError> {
    merge(current, patch, list, deletes_items).map(|merged| merged.items)
}

/// A merged list.
struct MergedList {
    items: Vec<Value>,
    /// The list before, as the real server sees it afterwards: of the same length, but with deleted items
    /// closed up in place, and new ones in the room that became free. An order given by `$setElementOrder`
    /// is interleaved with this, so that clients see a new item behind the old ones that took a deleted
    /// one's place.
    seen: Vec<Value>,
}

fn merge(
    current: Vec<Value>,
    patch: Vec<Value>,
    list: &ListPatch<'_>,
    deletes_items: bool,
) -> Result<MergedList, MergeError> {
    if current.is_empty() && patch.is_empty() {
        return Ok(MergedList { items: Vec::new(), seen: Vec::new() });
    }
    if holds_objects(&current, &patch)? {
        return merge_items(current, patch, list);
    }
    let identity = Identity::new(None, false);
    if deletes_items {
        let deleted: HashSet<String> = patch.iter().map(|item| identity.of(item)).collect();
        let items = current.iter().filter(|item| !deleted.contains(&identity.of(item))).cloned().collect();
        return Ok(MergedList { items, seen: current });
    }
    if let (Some(_), Some(item)) = (list.merge_key, current.iter().chain(&patch).next()) {
        return Err(bad_type(GO_MAP, item));
    }
    let mut known = HashSet::new();
    let merged = current.iter().chain(&patch).filter(|item| known.insert(identity.of(item))).cloned().collect();
    Ok(MergedList { items: in_order(merged, &patch, &current, &identity)?, seen: current })
}

fn merge_items(current: Vec<Value>, patch: Vec<Value>, list: &ListPatch<'_>) -> Result<MergedList, MergeError> {
    let Some(merge_key) = list.merge_key else {
        return Err(MergeError::Other("cannot merge lists without merge key for struct".to_owned()));
    };
    let identity = Identity::new(Some(merge_key), true);
    let Directed { current, plain: patch, mut seen, mut free } =
        apply_directives(current, patch, merge_key, &identity)?;
    let mut merged = current.clone();
    let mut positions = identity.positions(&merged);
    for item in &patch {
        let id = identity.required(item)?;
        if let Some(&position) = positions.get(&id) {
            let base = merged[position].as_object().cloned().unwrap_or_default();
            let change = item.as_object().cloned().unwrap_or_default();
            merged[position] = Value::Object(merge_objects(base, change, list.items)?);
        } else {
            positions.insert(id, merged.len());
            merged.push(item.clone());
            if let Some(place) = free.next() {
                seen[place] = item.clone();
            }
        }
    }
    Ok(MergedList { items: in_order(merged, &patch, &current, &identity)?, seen })
}

/// A list after the `$patch` directives among the items of a patch were carried out.
struct Directed {
    /// The list to start from.
    current: Vec<Value>,
    /// The items that are left to merge.
    plain: Vec<Value>,
    /// See [`MergedList::seen`].
    seen: Vec<Value>,
    /// Places in `seen` that deleted items left.
    free: std::ops::Range<usize>,
}

fn apply_directives(
    current: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
    identity: &Identity<'_>,
) -> Result<Directed, MergeError> {
    let mut seen = current;
    let total = seen.len();
    let mut length = total;
    let mut plain = Vec::new();
    let mut replaces = false;
    for value in patch {
        let Some((item, directive)) = value.as_object().and_then(|item| Some((item, item.get(PATCH)?))) else {
            plain.push(value);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                if !item.contains_key(merge_key) {
                    return Err(no_merge_key(item, merge_key));
                }
                let id = identity.of(&value);
                let is_deleted = |item: &Value| has_key(item, merge_key) && identity.of(item) == id;
                while let Some(at) = seen[..length].iter().position(is_deleted) {
                    seen[at..length].rotate_left(1);
                    length -= 1;
                    if length > at {
                        seen[length] = seen[length - 1].clone();
                    }
                }
            }
            Some("replace") => replaces = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(MergeError::Other(message.to_owned()));
            }
            _ => return Err(bad_directive(directive, item)),
        }
    }
    Ok(if replaces {
        Directed { current: plain, plain: Vec::new(), seen, free: 0..0 }
    } else {
        Directed { current: seen[..length].to_vec(), plain, seen, free: length..total }
    })
}

fn has_key(item: &Value, key: &str) -> bool {
    item.get(key).is_some()
}

/// Whether the items are objects. All items of both lists must be of one type, and none a list.
fn holds_objects(current: &[Value], patch: &[Value]) -> Result<bool, MergeError> {
    let mut items = current.iter().chain(patch);
    let Some(first) = items.next() else {
        return Err(MergeError::Other("no elements in any of the given slices".to_owned()));
    };
    if first.is_array() {
        return Err(MergeError::ListOfLists);
    }
    if first.is_null() || items.any(|item| !same_type(first, item)) {
        let shown = go_value(&Value::from(vec![Value::from(current), Value::from(patch)]));
        return Err(MergeError::Other(format!("list element types are not identical: {shown}")));
    }
    Ok(first.is_object())
}

fn same_type(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.is_f64() == b.is_f64(),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}
