//! Cases of strategic merge, by directive.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{PatchStrategy, SchemaRef};

fn scalar() -> Schema {
    Schema { ty: Type::String, ..Schema::default() }
}

fn list(items: Schema) -> Schema {
    Schema { ty: Type::Array, items: Some(items.into()), ..Schema::default() }
}

fn map(values: Schema) -> Schema {
    Schema { ty: Type::Object, additional: Some(values.into()), ..Schema::default() }
}

fn object(properties: Vec<(&str, Property)>) -> Schema {
    let properties = properties.into_iter().map(|(name, property)| (name.into(), property)).collect();
    Schema { ty: Type::Object, name: Some("io.test.Thing".into()), properties, ..Schema::default() }
}

fn plain(schema: Schema) -> Property {
    Property::new(SchemaRef::from(schema))
}

fn merging(schema: Schema, key: Option<&str>) -> Property {
    let patch = PatchStrategy { merge: true, ..PatchStrategy::default() };
    Property { patch, patch_merge_key: key.map(Into::into), ..plain(schema) }
}

/// A small pod: lists that merge by key, as sets and not at all; a map; objects that merge and that do not.
fn schema() -> Schema {
    let variable = object(vec![("name", plain(scalar())), ("value", plain(scalar()))]);
    let container = object(vec![
        ("name", plain(scalar())),
        ("image", plain(scalar())),
        ("args", plain(list(scalar()))),
        ("env", merging(list(variable), Some("name"))),
    ]);
    let replaced = PatchStrategy { replace: true, ..PatchStrategy::default() };
    object(vec![
        ("containers", merging(list(container), Some("name"))),
        ("finalizers", merging(list(scalar()), None)),
        ("labels", plain(map(scalar()))),
        ("extra", plain(map(list(scalar())))),
        ("strategy", plain(object(vec![("type", plain(scalar())), ("rolling", plain(object(vec![])))]))),
        (
            "selector",
            Property { patch: replaced, ..plain(object(vec![("a", plain(scalar())), ("b", plain(scalar()))])) },
        ),
    ])
}

fn patched(target: &Value, patch: &Value) -> Result<Value, ApiError> {
    apply(target, patch.to_string().as_bytes(), Checking::Strict, &schema()).map(|patched| patched.object)
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the cases read better without ampersands")]
fn check(target: Value, patch: Value, expected: Value) {
    assert_eq!(patched(&target, &patch).unwrap(), expected, "{target} {patch}");
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the cases read better without ampersands")]
fn refused(target: Value, patch: Value, code: u16, message: &str) {
    let error = patched(&target, &patch).unwrap_err();
    assert_eq!((error.code.as_u16(), error.message.as_str()), (code, message), "{target} {patch}");
}

#[test]
fn objects_merge_and_nulls_remove() {
    check(
        json!({"labels": {"a": "1", "b": "2"}}),
        json!({"labels": {"b": null, "c": "3"}}),
        json!({"labels": {"a": "1", "c": "3"}}),
    );
    check(json!({}), json!({"labels": {"a": null, "b": "2"}}), json!({"labels": {"b": "2"}}));
    check(json!({"labels": {"a": "1"}}), json!({"labels": null}), json!({}));
    check(json!({"labels": null}), json!({"labels": {"a": "1"}}), json!({"labels": {"a": "1"}}));
    check(json!({"labels": "x"}), json!({"labels": {"a": {"b": null}}}), json!({"labels": {"a": {}}}));
}

#[test]
fn objects_with_the_replace_strategy_do_not_merge() {
    check(json!({"selector": {"a": "1"}}), json!({"selector": {"b": "2"}}), json!({"selector": {"b": "2"}}));
}

#[test]
fn patch_directives_of_objects() {
    let target = || json!({"strategy": {"type": "x", "rolling": {}}});
    check(target(), json!({"strategy": {"$patch": "replace", "type": "y"}}), json!({"strategy": {"type": "y"}}));
    check(target(), json!({"strategy": {"$patch": "delete"}}), json!({"strategy": {}}));
    check(json!({}), json!({"strategy": {"$patch": "replace", "type": "y"}}), json!({}));
    check(target(), json!({"$patch": "replace", "labels": {}}), json!({"labels": {}}));
    refused(target(), json!({"$patch": "merge"}), 500, "unknown patch type: merge in map: map[$patch:merge]");
    refused(target(), json!({"$patch": 5}), 500, "unknown patch type: %!s(int64=5) in map: map[$patch:5]");
}

#[test]
fn lists_of_objects_merge_by_key() {
    let target = || json!({"containers": [{"name": "x", "image": "i", "args": ["1"]}, {"name": "y"}]});
    check(
        target(),
        json!({"containers": [{"name": "y", "image": "k"}, {"name": "x", "args": ["2"]}]}),
        json!({"containers": [{"name": "y", "image": "k"}, {"name": "x", "image": "i", "args": ["2"]}]}),
    );
    check(
        target(),
        json!({"containers": [{"name": "new", "image": null}]}),
        json!({"containers": [{"name": "new", "image": null}, {"name": "x", "image": "i", "args": ["1"]}, {"name": "y"}]}),
    );
    check(
        target(),
        json!({"containers": [{"name": "y", "env": [{"name": "A", "value": "1"}]}]}),
        json!({"containers": [
            {"name": "x", "image": "i", "args": ["1"]},
            {"name": "y", "env": [{"name": "A", "value": "1"}]},
        ]}),
    );
    refused(
        target(),
        json!({"containers": [{"image": "q"}]}),
        500,
        "map: map[image:q] does not contain declared merge key: name",
    );
}

#[test]
fn patch_directives_of_list_items() {
    let target = || json!({"containers": [{"name": "x"}, {"name": "y"}, {"name": "x", "image": "again"}]});
    check(target(), json!({"containers": [{"$patch": "delete", "name": "x"}]}), json!({"containers": [{"name": "y"}]}));
    check(
        target(),
        json!({"containers": [{"$patch": "replace"}, {"name": "z"}, {"$patch": "delete", "name": "z"}]}),
        json!({"containers": [{"name": "z"}]}),
    );
    refused(
        target(),
        json!({"containers": [{"$patch": "merge"}]}),
        500,
        "merging lists cannot yet be specified in the patch",
    );
    refused(
        target(),
        json!({"containers": [{"$patch": "delete"}]}),
        500,
        "map: map[$patch:delete] does not contain declared merge key: name",
    );
    refused(target(), json!({"containers": [{"$patch": "x"}]}), 500, "unknown patch type: x in map: map[$patch:x]");
}

#[test]
fn lists_of_scalars_merge_as_sets() {
    check(
        json!({"finalizers": ["a", "b"]}),
        json!({"finalizers": ["0", "b", "c"]}),
        json!({"finalizers": ["0", "a", "b", "c"]}),
    );
    check(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$deleteFromPrimitiveList/finalizers": ["b", "z"]}),
        json!({"finalizers": ["a", "c"]}),
    );
    check(
        json!({"finalizers": ["a", "b"]}),
        json!({"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["b"]}),
        json!({"finalizers": ["c", "a"]}),
    );
    check(json!({}), json!({"$deleteFromPrimitiveList/finalizers": ["b"]}), json!({}));
    refused(
        json!({"finalizers": ["a"]}),
        json!({"finalizers": [1]}),
        500,
        "list element types are not identical: [[a] [1]]",
    );
    refused(json!({}), json!({"$deleteFromPrimitiveList": ["b"]}), 400, "invalid patch format of primitive list");
    refused(
        json!({"finalizers": [["a"]]}),
        json!({"finalizers": [["b"]]}),
        422,
        "the server rejected our request due to an error in our request",
    );
}

#[test]
fn other_lists_are_replaced() {
    check(
        json!({"containers": [{"name": "x", "args": ["1", "2"]}]}),
        json!({"containers": [{"name": "x", "args": ["3"]}]}),
        json!({"containers": [{"name": "x", "args": ["3"]}]}),
    );
}

#[test]
fn retain_keys_drops_the_others() {
    let target = || json!({"strategy": {"type": "x", "rolling": {}}});
    check(target(), json!({"strategy": {"$retainKeys": ["type"], "type": "y"}}), json!({"strategy": {"type": "y"}}));
    check(
        target(),
        json!({"strategy": {"$retainKeys": ["type"], "rolling": null}}),
        json!({"strategy": {"type": "x"}}),
    );
    for bad in [json!({"$retainKeys": ["type"], "rolling": {}}), json!({"$retainKeys": "type"})] {
        refused(target(), json!({"strategy": bad}), 400, "invalid patch format of retainKeys");
    }
}

#[test]
fn set_element_order_orders() {
    let target = || json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
    check(
        target(),
        json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}),
        json!({"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]}),
    );
    check(
        target(),
        json!({
            "$setElementOrder/containers": [{"name": "n"}, {"name": "c"}, {"name": "a"}],
            "containers": [{"name": "n", "image": "i"}, {"$patch": "delete", "name": "b"}],
        }),
        json!({"containers": [{"name": "n", "image": "i"}, {"name": "c"}, {"name": "a"}]}),
    );
    check(
        json!({"finalizers": ["a", "b", "c"]}),
        json!({"$setElementOrder/finalizers": ["c", "d", "a"], "finalizers": ["d"]}),
        json!({"finalizers": ["b", "c", "d", "a"]}),
    );
    check(
        json!({}),
        json!({"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c", "a"]}),
        json!({"finalizers": ["c", "a"]}),
    );
    check(json!({}), json!({"$setElementOrder/finalizers": ["c", "a"]}), json!({}));
}

#[test]
fn bad_element_orders_are_refused() {
    let target = || json!({"containers": [{"name": "x"}]});
    refused(
        target(),
        json!({"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "z"}]}),
        500,
        "The order in patch list:\n[map[name:z]]\n doesn't match $setElementOrder list:\n[map[name:x]]\n",
    );
    refused(
        target(),
        json!({"$setElementOrder/containers": "x"}),
        500,
        "expected a []interface {}, but received a string",
    );
    refused(
        target(),
        json!({"$setElementOrder/containers": [{"nam": "x"}]}),
        500,
        "map: map[nam:x] does not contain declared merge key: name",
    );
    refused(
        target(),
        json!({"$setElementOrder/bogus": []}),
        500,
        "unable to find api field in struct Thing for the json field \"bogus\"",
    );
    refused(target(), json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list");
    refused(
        json!({}),
        json!({"$setElementOrder/finalizers": [], "finalizers": []}),
        500,
        "no elements in any of the given slices",
    );
}

#[test]
fn values_without_a_known_type_cannot_merge() {
    refused(
        json!({"extra": {"a": ["x"]}}),
        json!({"extra": {"a": ["y"]}}),
        500,
        "merging an object in json but data type is not struct, instead is: map",
    );
}

#[test]
fn undecodable_patches_are_bad_requests() {
    let message = |text: &str| apply(&json!({}), text.as_bytes(), Checking::Ignore, &schema()).unwrap_err().message;
    assert_eq!(message("[]"), "json: cannot unmarshal array into Go value of type map[string]interface {}");
    assert_eq!(message("x"), "invalid character 'x' looking for beginning of value");
    check(json!({"labels": {"a": "1"}}), Value::Null, json!({"labels": {"a": "1"}}));
}

fn names() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::btree_set("[a-e]", 0..5)
        .prop_map(|names| names.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn containers(names: &[String], image: &str) -> Value {
    names.iter().map(|name| json!({"name": name, "image": image})).collect()
}

proptest! {
    #[test]
    fn element_order_wins_for_all_items_it_names(current in names(), order in names()) {
        let target = json!({"containers": containers(&current, "i")});
        let patch = json!({"$setElementOrder/containers": containers(&order, "")});
        prop_assume!(!current.is_empty());
        let result = patched(&target, &patch).unwrap();
        let seen: Vec<&str> =
            result["containers"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        let mut expected: Vec<&str> = current.iter().map(String::as_str).collect();
        expected.sort_unstable();
        prop_assert_eq!(sorted, expected);
        let ordered: Vec<&&str> = seen.iter().filter(|name| order.iter().any(|other| other == *name)).collect();
        let wanted: Vec<&String> = order.iter().filter(|name| current.contains(name)).collect();
        prop_assert_eq!(format!("{ordered:?}"), format!("{wanted:?}"));
    }

    #[test]
    fn merged_lists_hold_the_union_and_the_patch_wins(current in names(), change in names()) {
        let result = patched(
            &json!({"containers": containers(&current, "old")}),
            &json!({"containers": containers(&change, "new")}),
        ).unwrap();
        for item in result["containers"].as_array().unwrap() {
            let name = item["name"].as_str().unwrap().to_owned();
            let image = if change.contains(&name) { "new" } else { "old" };
            prop_assert_eq!(item["image"].as_str().unwrap(), image);
            prop_assert!(change.contains(&name) || current.contains(&name));
        }
        let union = current.iter().chain(&change).collect::<std::collections::BTreeSet<_>>().len();
        prop_assert_eq!(result["containers"].as_array().unwrap().len(), union);
    }

    #[test]
    fn hostile_patches_never_panic(text in "\\{(\"(\\$patch|\\$retainKeys|\\$setElementOrder/containers|containers|finalizers|\\$deleteFromPrimitiveList/finalizers|labels)\":(null|\"delete\"|\"replace\"|1|\\[\\]|\\[1\\]|\\[null\\]|\\[\\{\\}\\]|\\[\"a\"\\]|\\[\\{\"name\":\"a\",\"\\$patch\":\"delete\"\\}\\]|\\{\"a\":1\\}),){0,4}\"z\":0\\}") {
        let target = json!({"containers": [{"name": "a"}], "finalizers": ["a"], "labels": {"a": "1"}});
        let _ = apply(&target, text.as_bytes(), Checking::Strict, &schema());
    }
}
