//! ValidatingAdmissionPolicies: rules in CEL on what may be written, deleted or connected to.
//!
//! Policies and bindings are compiled once and follow the store, as roles do. A request that no policy is about costs two
//! comparisons of numbers. The sentences and the order of events are those of kube-apiserver's plugin; the variable
//! `authorizer` is not there.

mod compiled;
mod matching;

use std::sync::Arc;

use http::StatusCode;
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) use self::compiled::problems;
use self::compiled::{Condition, Policy, Validation};
use crate::builtin::json::Fields;
use crate::cel::{Error, Evaluated, Program, Value as CelValue};
use crate::handlers::call::Call;
use crate::selector::LabelSelector;
use crate::status::{ApiError, Cause};
use crate::store::Store;

const COLLECTIONS: [&str; 2] = [
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
];
/// Cost limit of one expression.
const CALL_LIMIT: u64 = 1_000_000;
/// Cost limit of all expressions of a policy for one request.
const BUDGET: u64 = 10_000_000;
/// Work limit of all expressions of a policy for one request: about a second.
const WORK: u64 = 30_000_000;
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

/// The policies of a server.
pub(crate) struct Policies {
    store: Store,
    changes: [watch::Receiver<u64>; 2],
    current: RwLock<(u64, Arc<[Bound]>)>,
}

/// A policy with its bindings.
struct Bound {
    policy: Policy,
    bindings: Vec<Value>,
}

/// The request to be admitted.
pub(crate) struct Admission<'a> {
    pub(crate) operation: &'static str,
    pub(crate) subresource: &'a str,
    pub(crate) name: &'a str,
    /// The new object; null for a delete.
    pub(crate) object: &'a Value,
    /// The object before; null for a create.
    pub(crate) old: &'a Value,
}

impl Policies {
    pub(crate) fn new(store: Store) -> Self {
        let changes = COLLECTIONS.map(|collection| store.subscribe(&Arc::from(collection)));
        Self { current: RwLock::new((0, read(&store))), changes, store }
    }

    /// The policies as of now.
    fn current(&self) -> Arc<[Bound]> {
        let latest = self.changes.iter().map(|change| *change.borrow()).max().unwrap_or_default();
        {
            let current = self.current.read();
            if current.0 >= latest {
                return current.1.clone();
            }
        }
        let bound = read(&self.store);
        *self.current.write() = (latest, bound.clone());
        bound
    }
}

/// Reads and compiles everything that is bound.
fn read(store: &Store) -> Arc<[Bound]> {
    let list = |collection: &str| {
        let listing = store.list(collection, "", None, 0, |_, _| true);
        listing.items.into_iter().map(|(_, object)| object.to_value()).collect::<Vec<_>>()
    };
    let bindings = list(COLLECTIONS[1]);
    let bound = list(COLLECTIONS[0]).into_iter().filter_map(|policy| {
        let name = policy.at("metadata").text("name");
        let own = bindings.iter().filter(|binding| binding.at("spec").text("policyName") == name);
        let bindings: Vec<Value> = own.cloned().collect();
        (!bindings.is_empty()).then(|| Bound { policy: Policy::of(&policy), bindings })
    });
    bound.collect()
}

/// Holds a request against all policies. Warnings and annotations go to the call.
pub(crate) fn check(call: &mut Call, admission: &Admission<'_>) -> Result<(), ApiError> {
    let policies = call.server.policies.current();
    if policies.is_empty() || COLLECTIONS.contains(&&*call.resource.storage) {
        return Ok(());
    }
    let mut refusal = None;
    let request = std::cell::OnceCell::new();
    for Bound { policy, bindings } in &*policies {
        if !matching::matches(policy.spec.at("matchConstraints"), call, admission) {
            continue;
        }
        for binding in bindings {
            if !matching::matches(binding.at("spec").at("matchResources"), call, admission) {
                continue;
            }
            let request = request.get_or_init(|| request_value(call, admission));
            let judged = judge(call, policy, binding, admission, request);
            take(call, policy, binding, judged, &mut refusal);
        }
    }
    refusal.map_or(Ok(()), |refusal: Denial| Err(refusal.into_error(call, admission.name)))
}

/// The result of a policy for a request.
#[derive(Default)]
struct Judgement {
    /// Failed validations: number, message, reason.
    failures: Vec<(usize, String, Box<str>)>,
    annotations: Vec<(Box<str>, String)>,
}

impl Judgement {
    fn failure(message: String) -> Self {
        Self { failures: vec![(0, message, Box::default())], annotations: Vec::new() }
    }
}

/// The first refusal.
struct Denial {
    message: String,
    reason: Box<str>,
}

impl Denial {
    fn into_error(self, call: &Call, name: &str) -> ApiError {
        let mut error = ApiError::forbidden(&call.resource.group, &call.resource.plural, name, &self.message);
        (error.reason, error.code) = match &*self.reason {
            "Forbidden" => ("Forbidden", StatusCode::FORBIDDEN),
            "Unauthorized" => ("Unauthorized", StatusCode::UNAUTHORIZED),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
            _ => ("Invalid", StatusCode::UNPROCESSABLE_ENTITY),
        };
        let cause = Cause { reason: "", message: self.message, field: String::new() };
        error.details.get_or_insert_default().causes = vec![cause];
        error
    }
}

/// Does with a judgement what the binding says.
fn take(call: &mut Call, policy: &Policy, binding: &Value, judged: Judgement, refusal: &mut Option<Denial>) {
    let name = binding.at("metadata").text("name");
    let actions = binding.at("spec").items("validationActions");
    for (index, message, reason) in judged.failures {
        for action in actions.iter().filter_map(Value::as_str) {
            match action {
                "Deny" => {
                    refusal.get_or_insert_with(|| Denial {
                        message: format!(
                            "ValidatingAdmissionPolicy '{}' with binding '{name}' denied request: {message}",
                            policy.name
                        ),
                        reason: reason.clone(),
                    });
                }
                "Warn" => call.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{name}': {message}",
                    policy.name
                )),
                "Audit" => {
                    let failure = json!([{
                        "message": message, "policy": policy.name, "binding": name, "expressionIndex": index,
                        "validationActions": actions,
                    }]);
                    let key = "validation.policy.admission.k8s.io/validation_failure".to_owned();
                    call.annotations.insert(key, failure.to_string());
                }
                _ => {}
            }
        }
    }
    for (key, mut value) in judged.annotations {
        while value.len() > MAX_ANNOTATION_BYTES {
            value.pop();
        }
        call.annotations.insert(format!("{}/{key}", policy.name), value);
    }
}

/// Evaluates a policy for each of its parameters.
fn judge(call: &Call, policy: &Policy, binding: &Value, admission: &Admission<'_>, request: &Value) -> Judgement {
    let failed = |message: String| {
        if policy.fails_closed() { Judgement::failure(message) } else { Judgement::default() }
    };
    if let Some(problem) = &policy.problem {
        return failed(problem.clone());
    }
    let params = match parameters(call, &policy.spec, binding) {
        Ok(params) => params,
        Err(problem) => return failed(format!("failed to configure binding: {problem}")),
    };
    let namespace = (call.resource.namespaced)
        .then(|| call.server.store.get("namespaces", call.namespace()))
        .flatten()
        .map_or(Value::Null, |namespace| namespace.to_value());
    let mut all = Judgement::default();
    for param in params {
        let mut evaluation = Evaluation::new(admission, request, &namespace, &param);
        match evaluation.judge(policy) {
            Ok(judged) => {
                all.failures.extend(judged.failures);
                all.annotations.extend(judged.annotations);
            }
            Err(problem) => all.failures.extend(failed(problem).failures),
        }
    }
    all
}

/// The objects that a binding names as parameters; one null where the policy has none.
fn parameters(call: &Call, spec: &Value, binding: &Value) -> Result<Vec<Value>, String> {
    let kind = spec.at("paramKind");
    if kind.is_null() {
        return Ok(vec![Value::Null]);
    }
    let reference = binding.at("spec").at("paramRef");
    if reference.is_null() {
        return Ok(vec![Value::Null]);
    }
    let version = kind.text("apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resources = call.server.registry.current();
    let resource = resources.of_kind(group, version, kind.text("kind"));
    let resource = resource.ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'", kind.text("kind"))
    })?;
    let prefix = if resource.namespaced {
        let own = reference.text("namespace");
        let namespace = if own.is_empty() { call.namespace() } else { own };
        if namespace.is_empty() {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        format!("{namespace}/")
    } else {
        String::new()
    };
    let name = reference.text("name");
    let selector = LabelSelector::from_object(reference.at("selector")).unwrap_or_default();
    let listing = call.server.store.list(&resource.storage, &prefix, None, 0, |object, key| {
        if name.is_empty() { selector.matches(|label| object.label(label)) } else { key[prefix.len()..] == *name }
    });
    let found: Vec<Value> = listing.items.iter().map(|(_, object)| object.to_value()).collect();
    if found.is_empty() && reference.text("parameterNotFoundAction") != "Allow" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

/// `request`, as expressions see it.
fn request_value(call: &Call, admission: &Admission<'_>) -> Value {
    let resource = &call.resource;
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let mut user = json!({});
    let identity = &call.identity;
    for (field, value, is_empty) in [
        ("username", json!(identity.user), identity.user.is_empty()),
        ("uid", json!(identity.uid), identity.uid.is_empty()),
        ("groups", json!(identity.groups), identity.groups.is_empty()),
        ("extra", json!(identity.extra), identity.extra.is_empty()),
    ] {
        if !is_empty {
            user[field] = value;
        }
    }
    let mut request = json!({
        "uid": "", "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural,
        "operation": admission.operation, "userInfo": user, "dryRun": call.query.dry_run,
    });
    for (field, text) in [
        ("name", admission.name),
        ("namespace", call.namespace()),
        ("subResource", admission.subresource),
        ("requestSubResource", admission.subresource),
    ] {
        if !text.is_empty() {
            request[field] = json!(text);
        }
    }
    request
}

/// The evaluation of one policy for one request.
struct Evaluation<'a> {
    values: Vec<(Arc<str>, CelValue<'a>)>,
    variables: Vec<(Arc<str>, Evaluated<'a>)>,
    cost: u64,
    work: u64,
}

impl<'a> Evaluation<'a> {
    fn new(admission: &Admission<'a>, request: &'a Value, namespace: &'a Value, params: &'a Value) -> Self {
        let values = [
            ("object", admission.object),
            ("oldObject", admission.old),
            ("request", request),
            ("namespaceObject", namespace),
            ("params", params),
        ];
        let values = values.into_iter().map(|(name, value)| (name.into(), CelValue::untyped(value))).collect();
        Self { values, variables: Vec::new(), cost: BUDGET, work: WORK }
    }

    fn judge(&mut self, policy: &'a Policy) -> Result<Judgement, String> {
        if !self.conditions_hold(&policy.conditions)? {
            return Ok(Judgement::default());
        }
        for variable in &policy.variables {
            let value = self.run(&variable.program);
            self.variables.push((variable.name.clone(), value));
        }
        let mut judged = Judgement::default();
        for (index, validation) in policy.validations.iter().enumerate() {
            match self.run(&validation.program) {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => judged.failures.push((index, self.message(validation), validation.reason.clone())),
                Err(problem) if policy.fails_closed() => {
                    judged.failures.push((index, self.problem(&validation.source, &problem), Box::default()));
                }
                Err(_) => {}
            }
        }
        for annotation in &policy.audit_annotations {
            match self.run(&annotation.program) {
                Ok(value) => {
                    if let Some(text) = value.as_text().map(str::trim).filter(|text| !text.is_empty()) {
                        judged.annotations.push((annotation.name.clone(), text.to_owned()));
                    }
                }
                Err(problem) if policy.fails_closed() => {
                    judged.failures.push((0, self.problem(&annotation.source, &problem), Box::default()));
                }
                Err(_) => {}
            }
        }
        Ok(judged)
    }

    /// Whether all conditions hold. One that does not is the answer, even where others cannot be evaluated.
    fn conditions_hold(&mut self, conditions: &'a [Condition]) -> Result<bool, String> {
        let mut problems = Vec::new();
        for condition in conditions {
            match self.run(&condition.program) {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(problem) => problems.push(self.problem(&condition.source, &problem)),
            }
        }
        match &*problems {
            [] => Ok(true),
            [one] => Err(one.clone()),
            several => Err(format!("[{}]", several.join(", "))),
        }
    }

    fn run(&mut self, program: &'a Program) -> Evaluated<'a> {
        let good = self.variables.iter().filter_map(|(name, value)| Some((name.clone(), value.clone().ok()?)));
        let mut values: Vec<(Arc<str>, Evaluated<'a>)> = vec![("variables".into(), Ok(CelValue::named(good)))];
        values.extend(self.values.iter().map(|(name, value)| (name.clone(), Ok(value.clone()))));
        let (value, cost) = program.evaluate(values, self.cost.min(CALL_LIMIT), &mut self.work);
        self.cost = self.cost.saturating_sub(cost);
        value
    }

    /// The sentence for an expression without a value.
    fn problem(&self, source: &str, problem: &Error) -> String {
        let of_variable = self.variables.iter().find_map(|(name, value)| {
            let problem = value.as_ref().err()?;
            source
                .contains(&format!("variables.{name}"))
                .then(|| format!("composited variable {:?} fails to evaluate: {problem}", &**name))
        });
        let problem = of_variable.unwrap_or_else(|| problem.to_string());
        format!("expression '{source}' resulted in error: {problem}")
    }

    fn message(&mut self, validation: &'a Validation) -> String {
        let made = validation.message_program.as_ref().and_then(|program| self.run(program).ok());
        let made = made.as_ref().and_then(CelValue::as_text).map(str::trim).unwrap_or_default();
        if !made.is_empty() && made.len() <= MAX_MESSAGE_BYTES && !made.contains('\n') {
            return made.to_owned();
        }
        if !validation.message.is_empty() {
            return validation.message.to_string();
        }
        format!("failed expression: {}", validation.source)
    }
}
