//! ValidatingAdmissionPolicies, from their creation to their refusals.

use serde_json::{Value, json};

use super::Api;
use crate::auth::Identity;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn policy(spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "demo"},
        "spec": {"matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"],
        }]}},
    });
    policy["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    policy
}

fn binding(actions: Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "demo"}, "spec": {"policyName": "demo", "validationActions": actions},
    })
}

async fn with(spec: Value, actions: Value) -> Api {
    let api = Api::start().await;
    api.accept("POST", &format!("{GROUP}/validatingadmissionpolicies"), &policy(spec)).await;
    api.accept("POST", &format!("{GROUP}/validatingadmissionpolicybindings"), &binding(actions)).await;
    api
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn a_policy_refuses_what_its_expression_does_not_allow() {
    let validations = json!([{
        "expression": "object == null || !has(object.data) || object.data.all(key, key.startsWith('ok-'))",
        "messageExpression": "'wrong keys in ' + object.metadata.name",
    }]);
    let api = with(json!({"validations": validations}), json!(["Deny"])).await;
    api.accept("POST", MAPS, &map("good", json!({"ok-1": "x"}))).await;
    let (code, answer) = api.send("POST", MAPS, &map("bad", json!({"no": "x"}))).await;
    let why = "ValidatingAdmissionPolicy 'demo' with binding 'demo' denied request: wrong keys in bad";
    assert_eq!(code, 422);
    assert_eq!(answer["message"], format!("configmaps \"bad\" is forbidden: {why}"));
    assert_eq!(answer["reason"], "Invalid");
    assert_eq!(answer["details"]["causes"][0]["message"], why);
    let (code, _) = api.send("PATCH", &format!("{MAPS}/good"), &json!({"data": {"no": "x"}})).await;
    assert_eq!(code, 422, "updates, too");
    api.accept("DELETE", &format!("{MAPS}/good"), &Value::Null).await;
    api.accept("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/demo"), &Value::Null).await;
    api.accept("POST", MAPS, &map("bad", json!({"no": "x"}))).await;
}

/// What is stored and has no effect says so when it is created.
#[tokio::test]
async fn webhooks_are_stored_with_a_warning() {
    let api = Api::start().await;
    let webhooks = |kind: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "demo"}});
    for (plural, kind) in [
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    ] {
        let warnings = api.warnings("POST", &format!("{GROUP}/{plural}"), &webhooks(kind)).await;
        assert_eq!(
            warnings,
            ["299 - \"this API server calls no webhooks: the configuration is stored and has no effect\""]
        );
    }
    let none = api.warnings("POST", MAPS, &map("quiet", json!({}))).await;
    assert_eq!(none, [""; 0]);
}

#[tokio::test]
async fn only_the_named_user_touches_an_object() {
    let spec = json!({
        "matchConditions": [{"name": "hosts", "expression": "request.userInfo.username.startsWith('millpond:host:')"}],
        "variables": [
            {"name": "host", "expression": "request.userInfo.username.substring(14)"},
            {"name": "own", "expression": "variables.host == request.name"},
        ],
        "validations": [{"expression": "variables.own", "message": "a host writes its own object", "reason": "Forbidden"}],
    });
    let api = with(spec, json!(["Deny"])).await;
    api.accept("POST", MAPS, &map("anything", json!({}))).await;
    let rights = json!({
        "metadata": {"name": "hosts"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "millpond:host:a"}],
    });
    api.accept("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rights).await;
    let host = Identity::new("millpond:host:a".to_owned(), Vec::new());
    let client = kube::Client::new(api.server.service_for(host), "default");
    let theirs = Api { server: api.server.clone(), client };
    theirs.accept("POST", MAPS, &map("a", json!({}))).await;
    let refusal = theirs.refuse("POST", MAPS, &map("ab", json!({}))).await;
    let why = "configmaps \"ab\" is forbidden: ValidatingAdmissionPolicy 'demo' with binding 'demo' denied request: a host writes its own object";
    assert_eq!(refusal, (403, why.to_owned()));
    assert_eq!(theirs.refuse("DELETE", &format!("{MAPS}/anything"), &Value::Null).await.0, 403);
}

#[tokio::test]
async fn a_warning_lets_it_pass_and_an_error_refuses_unless_ignored() {
    let api =
        with(json!({"validations": [{"expression": "false", "message": "told"}]}), json!(["Warn", "Audit"])).await;
    api.accept("POST", MAPS, &map("warned", json!({}))).await;

    let broken = json!([{"expression": "object.data.missing == 'x'"}]);
    let api = with(json!({"validations": broken.clone()}), json!(["Deny"])).await;
    let (code, message) = api.refuse("POST", MAPS, &map("a", json!({"k": "v"}))).await;
    assert_eq!(code, 422);
    assert!(
        message.ends_with("expression 'object.data.missing == 'x'' resulted in error: no such key: missing"),
        "{message}"
    );
    let api = with(json!({"validations": broken, "failurePolicy": "Ignore"}), json!(["Deny"])).await;
    api.accept("POST", MAPS, &map("a", json!({"k": "v"}))).await;
}

#[tokio::test]
async fn expressions_must_compile_to_what_they_are_for() {
    let api = Api::start().await;
    let path = format!("{GROUP}/validatingadmissionpolicies");
    for (expression, why) in [
        ("object.", "Syntax error"),
        ("'text'", "must evaluate to bool"),
        ("unknown == 1", "undeclared reference to 'unknown'"),
        ("request.nosuch == 'x'", "undefined field 'nosuch'"),
    ] {
        let (code, message) =
            api.refuse("POST", &path, &policy(json!({"validations": [{"expression": expression}]}))).await;
        assert_eq!(code, 422, "{expression}");
        assert!(
            message.contains("spec.validations[0].expression: Invalid value") && message.contains(why),
            "{message}"
        );
    }
}

#[tokio::test]
async fn parameters_are_what_the_binding_names() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
        "validations": [{"expression": "object.metadata.name == params.data.name"}],
    });
    let api = Api::start().await;
    api.accept("POST", &format!("{GROUP}/validatingadmissionpolicies"), &policy(spec)).await;
    let mut bound = binding(json!(["Deny"]));
    bound["spec"]["paramRef"] = json!({"name": "settings", "parameterNotFoundAction": "Deny"});
    api.accept("POST", &format!("{GROUP}/validatingadmissionpolicybindings"), &bound).await;
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    let secrets = "/api/v1/namespaces/default/secrets";
    let (_, message) = api.refuse("POST", secrets, &secret("one")).await;
    assert!(message.contains("no params found for policy binding"), "{message}");
    api.accept("POST", MAPS, &map("settings", json!({"name": "one"}))).await;
    api.accept("POST", secrets, &secret("one")).await;
    assert_eq!(api.refuse("POST", secrets, &secret("two")).await.0, 422);
}
