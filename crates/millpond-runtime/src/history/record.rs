//! One decision: what was decided, why, and what came of it. Plain values.

use serde::{Deserialize, Serialize};

/// Nano-dollars per hour; differences may be negative.
pub type Nanos = i64;

/// What kind of decision it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionKind {
    /// Nodes for pods that wait.
    Provision,
    /// Nodes go because they are empty or cost more than their pods need.
    Consolidate,
    /// Nodes go because they are no longer what their pool asks for.
    Drift,
    /// Nodes go because of their age.
    Expire,
    /// A node goes because it is unhealthy.
    Repair,
    /// The provider takes a machine back, or has lost it.
    Interrupt,
    /// A group of nodes gets another size.
    ScaleGroup,
    /// A machine gets a host.
    MatchHost,
    /// A CI request gets its nodes.
    GrantRequest,
    /// Something cannot be done.
    Refuse,
    /// Something is not tried for a while.
    BackOff,
    /// Advice was given instead of acting.
    Advice,
    /// A user acted, or another controller.
    Human,
}

impl DecisionKind {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Provision,
        Self::Consolidate,
        Self::Drift,
        Self::Expire,
        Self::Repair,
        Self::Interrupt,
        Self::ScaleGroup,
        Self::MatchHost,
        Self::GrantRequest,
        Self::Refuse,
        Self::BackOff,
        Self::Advice,
        Self::Human,
    ];

    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Consolidate => "consolidate",
            Self::Drift => "drift",
            Self::Expire => "expire",
            Self::Repair => "repair",
            Self::Interrupt => "interrupt",
            Self::ScaleGroup => "scale-group",
            Self::MatchHost => "match-host",
            Self::GrantRequest => "grant-request",
            Self::Refuse => "refuse",
            Self::BackOff => "back-off",
            Self::Advice => "advice",
            Self::Human => "human",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An object that a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind, such as `NodeClaim`.
    pub kind: String,
    /// Its namespace; empty for objects of the whole cluster.
    #[serde(default)]
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// An object.
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One step of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Action {
    /// What is done: create, delete, resize …
    pub verb: String,
    /// With which object.
    pub object: ObjectRef,
    /// The node that belongs to the object, once it is known.
    pub node: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// The instance type.
    pub instance_type: Option<String>,
    /// The zone.
    pub zone: Option<String>,
    /// How it is bought.
    pub capacity_type: Option<String>,
    /// What it costs.
    pub price_nanos: Option<Nanos>,
    /// Why.
    pub reason: String,
    /// Pods that come to the node, or leave it, as `namespace/name`.
    pub pods: Vec<String>,
    /// Pods whose names are not kept.
    pub more_pods: usize,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of an action, and when. Seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outcome {
    /// The object was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<i64>,
    /// A provider started the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launched: Option<i64>,
    /// The machine became a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registered: Option<i64>,
    /// The node takes pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i64>,
    /// The drain began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaving: Option<i64>,
    /// No pod that had to leave is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<i64>,
    /// The object is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<i64>,
    /// Why it came to nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Outcome {
    /// Takes over what another one knows; a time that is known stays. Returns whether anything is new.
    pub fn learn(&mut self, more: &Self) -> bool {
        let before = self.clone();
        let keep = |known: &mut Option<i64>, new: Option<i64>| *known = known.or(new);
        keep(&mut self.created, more.created);
        keep(&mut self.launched, more.launched);
        keep(&mut self.registered, more.registered);
        keep(&mut self.ready, more.ready);
        keep(&mut self.leaving, more.leaving);
        keep(&mut self.drained, more.drained);
        keep(&mut self.gone, more.gone);
        if self.failed.is_none() {
            self.failed.clone_from(&more.failed);
        }
        *self != before
    }
}

impl Action {
    /// Whether nothing more can come of it. What was to go and stays after all is done with.
    pub fn is_final(&self) -> bool {
        match self.verb.as_str() {
            "create" => self.outcome.gone.is_some(),
            "delete" => self.outcome.gone.is_some() || self.outcome.failed.is_some(),
            _ => true,
        }
    }
}

/// Pods that get no place, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unplaced {
    /// How many.
    pub pods: usize,
    /// Why.
    pub sentence: String,
}

/// A decision that was carried out or refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Its number; decisions are counted from 1.
    pub number: u64,
    /// When, in seconds since 1970.
    pub at: i64,
    /// What kind of decision it is.
    pub kind: DecisionKind,
    /// Which controller decided.
    pub by: String,
    /// Nothing was done.
    #[serde(default)]
    pub refused: bool,
    /// The snapshot that it was made from; empty where there was none.
    #[serde(default)]
    pub revision: String,
    /// It in one sentence.
    pub sentence: String,
    /// What is done.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Actions that are not kept.
    #[serde(default)]
    pub more_actions: usize,
    /// Pods that it is about and that no action names, as `namespace/name`.
    #[serde(default)]
    pub pods: Vec<String>,
    /// Pods whose names are not kept.
    #[serde(default)]
    pub more_pods: usize,
    /// What all nodes cost before.
    #[serde(default)]
    pub cost_before_nanos: Option<Nanos>,
    /// What they cost when it is done.
    #[serde(default)]
    pub cost_after_nanos: Option<Nanos>,
    /// What any plan costs at least.
    #[serde(default)]
    pub bound_nanos: Option<Nanos>,
    /// Pods that get no place.
    #[serde(default)]
    pub unplaced: Vec<Unplaced>,
}

/// Names of pods that one decision keeps; the others are counted.
const MAX_PODS: usize = 2_000;
/// Actions that one decision keeps; the others are counted.
const MAX_ACTIONS: usize = 1_000;

impl Decision {
    /// A decision without actions; its number comes when it is recorded.
    pub fn new(kind: DecisionKind, by: &str, at: i64, sentence: impl Into<String>) -> Self {
        Self {
            number: 0,
            at,
            kind,
            by: by.to_owned(),
            refused: false,
            revision: String::new(),
            sentence: sentence.into(),
            actions: Vec::new(),
            more_actions: 0,
            pods: Vec::new(),
            more_pods: 0,
            cost_before_nanos: None,
            cost_after_nanos: None,
            bound_nanos: None,
            unplaced: Vec::new(),
        }
    }

    /// Its name: `d-` and its number.
    pub fn id(&self) -> String {
        format!("d-{}", self.number)
    }

    /// The number of a name.
    pub fn number_of(id: &str) -> Option<u64> {
        id.strip_prefix("d-").unwrap_or(id).parse().ok()
    }

    /// Whether some of its actions came to nothing.
    pub fn failed(&self) -> bool {
        self.actions.iter().any(|action| action.outcome.failed.is_some())
    }

    /// What it changes per hour, where both costs are known.
    pub fn delta_nanos(&self) -> Option<Nanos> {
        Some(self.cost_after_nanos? - self.cost_before_nanos?)
    }

    /// All pods that it is about, those without a name included.
    pub fn pods_in_all(&self) -> usize {
        let of_actions: usize = self.actions.iter().map(|action| action.pods.len() + action.more_pods).sum();
        of_actions + self.pods.len() + self.more_pods
    }

    /// The pool that all its actions belong to, if they belong to one.
    pub fn pool(&self) -> Option<&str> {
        let first = self.actions.first()?.pool.as_deref()?;
        self.actions.iter().all(|action| action.pool.as_deref() == Some(first)).then_some(first)
    }

    /// Whether it is about something that a user names: `node/X`, `pod/NAMESPACE/X`, `pool/X`, `host/X`, `request/X`.
    pub fn concerns(&self, subject: &Subject) -> bool {
        let of_kinds = |kinds: &[&str], name: &str| {
            self.actions.iter().any(|action| kinds.contains(&action.object.kind.as_str()) && action.object.name == name)
        };
        match subject {
            Subject::Node(name) => {
                let is_node = |action: &Action| action.node.as_deref() == Some(name);
                self.actions.iter().any(is_node) || of_kinds(&["Node", "NodeClaim", "Machine", "ByoMachine"], name)
            }
            Subject::Pod(name) => {
                let mut all = self.actions.iter().flat_map(|action| &action.pods).chain(&self.pods);
                all.any(|pod| pod == name)
            }
            Subject::Pool(name) => {
                self.actions.iter().any(|action| action.pool.as_deref() == Some(name))
                    || of_kinds(&["NodePool", "MachineDeployment", "MachineSet", "MachinePool"], name)
            }
            Subject::Host(name) => of_kinds(&["ByoHost"], name),
            Subject::Request(name) => of_kinds(&["NodeRequest"], name),
        }
    }

    /// Keeps no more names than a decision may hold.
    pub(super) fn shorten(&mut self) {
        if self.actions.len() > MAX_ACTIONS {
            self.more_actions += self.actions.len() - MAX_ACTIONS;
            let dropped = self.actions.split_off(MAX_ACTIONS);
            self.more_pods += dropped.iter().map(|action| action.pods.len() + action.more_pods).sum::<usize>();
        }
        let mut room = MAX_PODS;
        for action in &mut self.actions {
            action.more_pods += cut(&mut action.pods, &mut room);
        }
        self.more_pods += cut(&mut self.pods, &mut room);
    }
}

/// Takes names from the end of a list until it fits; returns how many.
fn cut(names: &mut Vec<String>, room: &mut usize) -> usize {
    let kept = names.len().min(*room);
    *room -= kept;
    let cut = names.len() - kept;
    names.truncate(kept);
    cut
}

/// What a user asks the history about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A node, also by the name of its claim or machine.
    Node(String),
    /// A pod, as `namespace/name`.
    Pod(String),
    /// A pool of any dialect.
    Pool(String),
    /// A host of the own stock.
    Host(String),
    /// A request for CI nodes.
    Request(String),
}

impl Subject {
    /// Reads `node/X`, `pod/X`, `pod/NAMESPACE/X` and so on; a pod without a namespace is one of `default`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not node/X, pod/X, pool/X, host/X or request/X");
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
        let name = name.to_owned();
        match kind {
            "node" | "nodes" | "no" | "nodeclaim" | "nodeclaims" | "machine" => Ok(Self::Node(name)),
            "pod" | "pods" | "po" if name.contains('/') => Ok(Self::Pod(name)),
            "pod" | "pods" | "po" => Ok(Self::Pod(format!("default/{name}"))),
            "pool" | "pools" | "nodepool" | "nodepools" | "np" => Ok(Self::Pool(name)),
            "host" | "hosts" => Ok(Self::Host(name)),
            "request" | "requests" => Ok(Self::Request(name)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kinds_are_those_of_json() {
        for kind in DecisionKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(DecisionKind::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn a_large_decision_is_shortened_and_counts_what_is_left_out() {
        let mut decision = Decision::new(DecisionKind::Provision, "provisioner", 0, "many");
        let pods = |count: usize| (0..count).map(|pod| format!("default/p{pod}")).collect::<Vec<_>>();
        decision.actions = (0..1_200).map(|_| Action { pods: pods(3), ..Action::default() }).collect();
        decision.pods = pods(5);
        decision.shorten();
        assert_eq!((decision.actions.len(), decision.more_actions), (1_000, 200));
        let named: usize = decision.actions.iter().map(|action| action.pods.len()).sum();
        assert_eq!((named, decision.pods.len()), (2_000, 0));
        assert_eq!(decision.pods_in_all(), 1_200 * 3 + 5);
    }

    #[test]
    fn a_decision_is_found_by_what_it_is_about() {
        let mut decision = Decision::new(DecisionKind::Drift, "disruption", 0, "one node");
        let pods = vec!["shop/web-1".to_owned()];
        let (pool, node) = (Some("general".to_owned()), Some("ip-10-0-0-1".to_owned()));
        let object = ObjectRef::new("NodeClaim", "", "general-x7");
        decision.actions.push(Action { object, node, pool, pods, ..Action::default() });
        for (text, found) in [
            ("node/general-x7", true),
            ("node/ip-10-0-0-1", true),
            ("node/general", false),
            ("pod/shop/web-1", true),
            ("pod/web-1", false),
            ("pool/general", true),
            ("host/general-x7", false),
        ] {
            assert_eq!(decision.concerns(&Subject::parse(text).unwrap()), found, "{text}");
        }
        assert!(Subject::parse("general").is_err() && Subject::parse("node/").is_err());
    }
}
