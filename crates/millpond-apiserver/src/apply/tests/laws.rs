//! Laws that hold for all objects and sets.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::schema;
use crate::apply::encode::{empty_object, encode_all_fields};
use crate::apply::fields::{FieldSet, MAX_DEPTH};
use crate::apply::managers::Managed;
use crate::apply::merge::merge;
use crate::apply::typed::FieldType;
use crate::apply::update::{Change, Version, prune};
use crate::apply::{
    Applied, Manager, Reset, SingleVersion, Target, apply_patch, fields_of, settle_times, strip, track_create,
    track_update,
};
use crate::schema::{ListType, Schema, SchemaRef, Type, builtin};

fn manager(name: &str) -> Manager<'_> {
    Manager { name, now: "2026-01-02T03:04:05Z".parse().unwrap() }
}

fn target(schema: &SchemaRef) -> Target<'_> {
    Target {
        api_version: "example.com/v1",
        kind: "Thing",
        schema,
        subresource: "",
        reset: &Reset::Nothing,
        versions: &SingleVersion,
    }
}

fn apply(live: Option<&Value>, config: &Value, name: &str, force: bool) -> Applied {
    let schema = schema::thing();
    apply_patch(live, config, &target(&schema), &manager(name), force).unwrap()
}

/// Values that fit a schema, with few different names, so that they meet.
fn value_of(schema: &Schema, depth: u32) -> BoxedStrategy<Value> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    match schema.ty {
        Type::String => name().prop_map(Value::from).boxed(),
        Type::Integer | Type::Number => (0..3).prop_map(Value::from).boxed(),
        Type::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Type::IntOrString => prop_oneof![name().prop_map(Value::from), (0..3).prop_map(Value::from)].boxed(),
        Type::Array => {
            let items = schema.items.as_deref().map_or_else(|| free(depth), |items| value_of(items, depth));
            vec(items, 0..4).prop_map(unique_items(schema)).boxed()
        }
        Type::Object if schema.properties.is_empty() => {
            let values = schema.additional.as_deref().map_or_else(|| free(depth), |values| value_of(values, depth));
            btree_map(name(), values, 0..3).prop_map(|map| json!(map)).boxed()
        }
        Type::Object => {
            let fields = schema.properties.iter().map(|(name, property)| {
                let value = proptest::option::weighted(0.6, value_of(&property.schema, depth));
                value.prop_map({
                    let name = name.to_string();
                    move |value| value.map(|value| (name.clone(), value))
                })
            });
            fields.collect::<Vec<_>>().prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
        }
        Type::Any => free(depth),
    }
}

/// Lists of an applied configuration have no two items of the same key.
fn unique_items(schema: &Schema) -> impl Fn(Vec<Value>) -> Value + use<> {
    let (list_type, keys) = (schema.list_type, schema.list_map_keys.clone());
    move |items| {
        let key = |item: &Value| match list_type {
            ListType::Map => {
                json!(keys.iter().map(|key| item.get(&**key).cloned().unwrap_or(json!(80))).collect::<Vec<_>>())
            }
            _ => item.clone(),
        };
        let mut kept: Vec<Value> = Vec::new();
        for item in items {
            let keyed = list_type != ListType::Map || item.get("name").is_some();
            if list_type == ListType::Atomic || (keyed && kept.iter().all(|other| key(other) != key(&item))) {
                kept.push(item);
            }
        }
        Value::Array(kept)
    }
}

fn free(depth: u32) -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(json!(1)),
        Just(json!("x")),
        Just(json!(true)),
        Just(json!({})),
        Just(json!([])),
        Just(json!(null))
    ];
    leaf.prop_recursive(depth, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::Array),
            btree_map(prop::sample::select(vec!["a", "b", "c"]), inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
    .boxed()
}

pub(super) fn config() -> impl Strategy<Value = Value> {
    let schema = schema::thing();
    value_of(&schema.properties["spec"].schema, 3).prop_map(
        |spec| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}),
    )
}

fn field_set() -> impl Strategy<Value = FieldSet<'static>> {
    let element = prop::sample::select(vec![
        "f:a",
        "f:b",
        "f:a.b/c",
        "f:\"\\",
        "k:{\"name\":\"a\"}",
        "k:{\"name\":\"b\",\"port\":9}",
        "v:1",
        "v:\"x<y\"",
        "i:3",
    ]);
    vec(vec(element, 1..5), 0..12).prop_map(|paths| {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert(path.into_iter().map(|text| crate::apply::path::PathElement::parse(text).unwrap().unwrap()));
        }
        set
    })
}

/// All fields that an object has beyond an empty one, computed by comparing the two.
fn fields_by_comparison(object: &Value, schema: &SchemaRef) -> String {
    let empty = empty_object(schema);
    let version = Version { schema, reset: &Reset::Nothing };
    let mut fields = Change::new(&empty, object, version).into_changed();
    fields.subtract(&strip::FIELDS);
    let mut text = String::new();
    fields.write_json(&mut text);
    text
}

fn without_times(mut object: Value) -> Value {
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry.as_object_mut().unwrap().remove("time");
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fields_v1_is_read_as_it_was_written(set in field_set()) {
        let mut text = String::new();
        set.write_json(&mut text);
        prop_assert_eq!(&FieldSet::from_json(text.as_bytes()).unwrap(), &set);
        let value = set.to_value();
        prop_assert_eq!(&FieldSet::from_value(&value).unwrap(), &set);
    }

    #[test]
    fn sets_obey_the_laws_of_sets(a in field_set(), b in field_set()) {
        let union = a.clone().union(b.clone());
        let both = a.intersection(&b);
        let mut only_a = a.clone();
        only_a.subtract(&b);
        prop_assert_eq!(&union, &b.clone().union(a.clone()));
        prop_assert_eq!(&both, &b.intersection(&a));
        prop_assert_eq!(&only_a.clone().union(both.clone()), &a);
        prop_assert!(only_a.intersection(&b).is_empty());
        prop_assert_eq!(union.len() + both.len(), a.len() + b.len());
        let mut nothing = a.clone();
        nothing.subtract_recursively(&a);
        prop_assert!(nothing.is_empty());
        prop_assert_eq!(a.paths().len(), a.len());
        prop_assert!(a.paths().iter().all(|path| a.has(path)));
    }

    #[test]
    fn a_new_object_is_encoded_as_it_is_compared(object in config()) {
        let schema = schema::thing();
        let encoded = encode_all_fields(&object, &schema, &Reset::Nothing).unwrap();
        prop_assert_eq!(encoded, fields_by_comparison(&object, &schema));
    }

    #[test]
    fn applying_twice_changes_nothing(live in config(), config in config()) {
        let first = apply(Some(&live), &config, "one", true).object;
        let again = apply(Some(&first), &config, "one", false);
        prop_assert_eq!(without_times(again.object.clone()), without_times(first.clone()));
        prop_assert!(!again.changed);
        let mut settled = again.object;
        settle_times(&first, &mut settled);
        prop_assert_eq!(settled, first);
    }

    #[test]
    fn who_applies_all_again_prunes_nothing(theirs in config(), mine in config(), more in config()) {
        let schema = schema::thing();
        let target = target(&schema);
        let live = apply(Some(&apply(None, &theirs, "them", false).object), &mine, "me", true).object;
        let more = merge(&mine, &more, FieldType::object(&schema));
        let merged = merge(&live, &more, FieldType::object(&schema));
        let mut managed = Managed::decode(Some(&live["metadata"]["managedFields"])).unwrap();
        if let Some(place) = managed.entries.iter().position(|entry| entry.manager == "me") {
            let last = managed.entries[place].clone();
            managed.entries[place].fields = fields_of(&more, &schema);
            // An empty map that has been filled is no longer a field of its own.
            if last.fields.is_subset(&managed.entries[place].fields) {
                prop_assert_eq!(prune(merged.clone(), &managed, &last, target.scope()), merged);
            }
        }
    }

    #[test]
    fn what_is_no_longer_applied_disappears(config in config()) {
        let applied = apply(None, &config, "one", false).object;
        let empty = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
        let removed = apply(Some(&applied), &empty, "one", false).object;
        let schema = schema::thing();
        let left = fields_of(&removed["spec"], &schema.properties["spec"].schema);
        let applied_fields = fields_of(&config["spec"], &schema.properties["spec"].schema);
        prop_assert!(left.leaves().intersection(&applied_fields.leaves()).is_empty(), "{removed}");
        let owners = removed["metadata"]["managedFields"].as_array().into_iter().flatten();
        prop_assert!(owners.into_iter().all(|entry| entry["manager"] != "one"), "{removed}");
    }

    #[test]
    fn what_others_own_survives(mine in config(), theirs in config()) {
        let object = apply(None, &theirs, "them", false).object;
        let object = apply(Some(&object), &mine, "me", true).object;
        let left = apply(Some(&object), &mine, "me", false).object;
        let empty = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
        let gone = apply(Some(&left), &empty, "me", false).object;
        let schema = schema::thing();
        let still_there = fields_of(&gone, &schema);
        for entry in gone["metadata"]["managedFields"].as_array().into_iter().flatten() {
            prop_assert_eq!(&entry["manager"], "them");
            let owned = FieldSet::from_value(&entry["fieldsV1"]).unwrap();
            for path in owned.leaves().paths() {
                prop_assert!(still_there.has(&path), "{path:?} of {gone}");
            }
        }
    }

    #[test]
    fn every_field_has_the_owner_who_changed_it_last(first in config(), second in config()) {
        let schema = schema::thing();
        let mut object = first;
        track_create(&mut object, &target(&schema), &manager("first"));
        let mut new = second;
        new["metadata"]["uid"] = json!("u");
        track_update(&object, &mut new, &target(&schema), &manager("second"));
        let mut owned = FieldSet::new();
        for entry in new["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let fields = FieldSet::from_value(&entry["fieldsV1"]).unwrap();
            prop_assert!(owned.intersection(&fields).is_empty(), "two owners in {new}");
            owned = owned.union(fields.into_owned());
        }
        let mut all = fields_of(&new, &schema).leaves().into_owned();
        all.subtract(&strip::FIELDS);
        all.subtract(&owned);
        prop_assert!(all.is_empty(), "no manager owns {all:?} of {new}");
    }

    #[test]
    fn fuzz_fieldsv1_bytes(bytes in vec(any::<u8>(), 0..200)) {
        let _ = FieldSet::from_json(&bytes);
    }

    #[test]
    fn fuzz_fieldsv1_texts(text in r#"[{}\[\]":,.fkvi0-9a\\ ]{0,120}"#) {
        if let Ok(set) = FieldSet::from_json(text.as_bytes()) {
            let mut written = String::new();
            set.write_json(&mut written);
            prop_assert_eq!(FieldSet::from_json(written.as_bytes()).unwrap(), set);
        }
    }

    #[test]
    fn fuzz_fieldsv1_trees(tree in fields_tree()) {
        if let Ok(set) = FieldSet::from_value(&tree) {
            let value = set.to_value();
            prop_assert_eq!(FieldSet::from_value(&value).unwrap(), set.clone());
            let entry = json!([{"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": tree}]);
            let live = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u", "managedFields": entry}, "spec": {"text": "a"}});
            let config = json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"text": "b", "set": ["a"]}});
            let schema = schema::thing();
            let _ = apply_patch(Some(&live), &config, &target(&schema), &manager("me"), true);
            let mut new = live.clone();
            new["spec"] = json!({"labels": {"a": "b"}});
            track_update(&live, &mut new, &target(&schema), &manager("me"));
        }
    }
}

/// Trees that look much like FieldsV1.
fn fields_tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![4 => Just(json!({})), 1 => Just(json!(null)), 1 => Just(json!(1)), 1 => Just(json!([]))];
    let key = prop::sample::select(vec![
        ".",
        "f:spec",
        "f:text",
        "f:map",
        "f:set",
        "f:labels",
        "k:{\"name\":\"a\",\"port\":80}",
        "k:{\"port\":80.0,\"name\":\"a\"}",
        "k:{}",
        "k:null",
        "v:\"a\"",
        "v:{\"a\":[1]}",
        "i:0",
        "x:y",
        "f:",
        "q",
        "",
    ]);
    leaf.prop_recursive(6, 40, 5, move |inner| btree_map(key.clone(), inner, 0..5).prop_map(|map| json!(map)))
}

#[test]
fn deep_objects_are_owned_as_a_whole_from_a_depth_on() {
    let deep = (0..120).fold(json!({"x": 1}), |below, _| json!({"a": below}));
    let config =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"free": deep}});
    let applied = apply(None, &config, "one", false).object;
    let again = apply(Some(&applied), &config, "one", false);
    assert!(!again.changed);
    let mut created = config;
    let schema = schema::thing();
    track_create(&mut created, &target(&schema), &manager("one"));
    for object in [applied, created] {
        let read: Value = serde_json::from_str(&object.to_string()).expect("what is stored can be read again");
        let fields = FieldSet::from_value(&read["metadata"]["managedFields"][0]["fieldsV1"]).unwrap();
        let deepest = fields.paths().iter().map(Vec::len).max();
        assert_eq!(deepest, Some(MAX_DEPTH));
    }
}

#[test]
fn builtin_objects_are_encoded_as_they_are_compared() {
    let recorded: Vec<Value> = serde_json::from_str(super::recording::BUILTIN).unwrap();
    let steps = recorded.iter().flat_map(|case| case["steps"].as_array().unwrap());
    let mut seen = 0;
    for body in steps.filter(|step| step["method"] == "POST").map(|step| &step["body"]) {
        let api_version = body["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let schema = builtin::kind(group, version, body["kind"].as_str().unwrap()).unwrap();
        let encoded = encode_all_fields(body, &schema, &Reset::Nothing).unwrap();
        assert_eq!(encoded, fields_by_comparison(body, &schema), "{body}");
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
}
