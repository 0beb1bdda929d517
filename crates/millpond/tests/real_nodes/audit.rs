//! What an API server has answered to one user, by its audit log.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use millpond_testkit::Scratch;
use serde_json::{Value, json};

/// For requests that controllers make by themselves, such as the renewal of a Lease.
const PATIENCE: Duration = Duration::from_mins(1);
/// The API server appends to a file, which cannot be waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The API group, the resource with its subresource, the verb.
pub(crate) type Right = (String, String, String);

/// An audit log of the requests of one user. It is there before its API server.
pub(crate) struct AuditLog {
    scratch: Scratch,
}

impl AuditLog {
    pub(crate) fn of(user: &str) -> Result<Self> {
        let scratch = Scratch::new("audit")?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": [user]}, {"level": "None"}],
        });
        std::fs::write(scratch.path().join("policy.json"), policy.to_string()).context("write the audit policy")?;
        Ok(Self { scratch })
    }

    fn file(&self) -> PathBuf {
        self.scratch.path().join("audit.jsonl")
    }

    /// Flags of kube-apiserver.
    pub(crate) fn flags(&self) -> [String; 2] {
        let policy = self.scratch.path().join("policy.json");
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", self.file().display())]
    }

    /// Waits until a request needed the right, or the time is up.
    pub(crate) fn wait_for(&self, right: &Right) -> Result<()> {
        let give_up = Instant::now() + PATIENCE;
        while !self.rights()?.contains(right) {
            ensure!(Instant::now() < give_up, "no request has needed {right:?}");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The rights that were needed so far; fails if a request was forbidden.
    pub(crate) fn rights(&self) -> Result<BTreeSet<Right>> {
        let text = std::fs::read_to_string(self.file()).context("read the audit log")?;
        let mut rights = BTreeSet::new();
        // The last line may still be on its way.
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            ensure!(event["responseStatus"]["code"] != 403, "a right is missing: {event}");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["objectRef"];
            if object.is_object() {
                let subresource = object["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
                let resource = text(&object["resource"]) + &subresource;
                rights.insert((text(&object["apiGroup"]), resource, text(&event["verb"])));
            }
        }
        Ok(rights)
    }
}

/// What the roles of one kind in a list of objects allow.
pub(crate) fn granted(objects: &Value, kind: &str) -> BTreeSet<Right> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let items = objects["items"].as_array().into_iter().flatten();
    let rules = items.filter(|object| object["kind"] == kind).filter_map(|role| role["rules"].as_array()).flatten();
    let mut granted = BTreeSet::new();
    for rule in rules {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                granted.extend(texts(&rule["verbs"]).into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    granted
}
