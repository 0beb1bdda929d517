//! Decisions as JSON for scripts and pages. Fields are only ever added.

use serde_json::{Value, json};

use super::record::Decision;

impl Decision {
    /// A row of a list.
    pub fn summary(&self) -> Value {
        json!({
            "id": self.id(),
            "at": self.at,
            "kind": self.kind.name(),
            "refused": self.refused,
            "sentence": self.sentence,
            "pool": self.pool(),
            "nodes": self.actions.len() + self.more_actions,
            "pods": self.pods_in_all(),
            "deltaPerHourNanos": self.delta_nanos(),
            "failed": self.failed(),
        })
    }

    /// All of it.
    pub fn detail(&self, has_snapshot: bool) -> Value {
        let mut all = self.summary();
        all["revision"] = json!(self.revision);
        all["by"] = json!(self.by);
        all["actions"] = json!(self.actions);
        all["moreActions"] = json!(self.more_actions);
        all["podsOf"] = json!(self.pods);
        all["morePods"] = json!(self.more_pods);
        all["costBeforeNanos"] = json!(self.cost_before_nanos);
        all["costAfterNanos"] = json!(self.cost_after_nanos);
        all["boundNanos"] = json!(self.bound_nanos);
        all["unplaced"] = json!(self.unplaced);
        all["hasSnapshot"] = json!(has_snapshot);
        all["command"] = json!(format!("millpond history {}", self.id()));
        all
    }
}
