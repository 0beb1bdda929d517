//! Builds a snapshot of all objects. Dependencies between objects are resolved here.

mod advisor;
mod budgets;
mod buffers;
mod cluster_limits;
mod feedback;
mod groups;
mod nodes;
mod options;
mod pods;
pub(crate) mod pools;
mod types;
mod volumes;
mod workloads;

use std::fmt;
use std::sync::Arc;

use millpond_plan::model::{Pool, Seconds, Snapshot};

pub use buffers::buffer_of;
pub use groups::{Group, GroupMachine};
pub use options::{DefaultSpread, Options, PoolsOf};
pub(crate) use types::Lowered;
pub use types::add_types;

use self::pools::Catalogs;
use crate::groups::NodeGroups;
use crate::read::{Severity, shorten_quoted};
use crate::state::{Origin, Overlays, State};

/// A remark about an object in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// How bad.
    pub severity: Severity,
    /// Where the object stands that it is about.
    pub origin: Option<Origin>,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Origin { file, line, column }) = &self.origin {
            write!(f, "{file}:{line}:{column}: ")?;
        }
        f.write_str(&self.message)
    }
}

/// A snapshot, and what is worth saying about it.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// In the order of the objects' names.
    pub notes: Vec<Note>,
}

impl State {
    /// Takes a snapshot. Equal states give equal snapshots, in whatever order their objects came.
    pub fn snapshot(&self, now: Seconds, options: &Options) -> Taken {
        let mut snapshot = self.tables.clone();
        snapshot.now = now;
        snapshot.revision = options.revision.clone().unwrap_or_else(|| format!("state-{}", self.changes()));
        snapshot.limits = self.limits(options, &mut snapshot.resources);
        let overlays = self.overlays(options);
        let mut taking = SnapshotBuilder { state: self, options, overlays, snapshot, notes: Vec::new() };
        taking.note_conflicts();
        taking.namespaces();
        let mut catalogs = Catalogs::default();
        if options.pools_of.has_node_pools() {
            taking.pools(&mut catalogs);
        }
        taking.advisor_pools(&mut catalogs);
        let members = taking.node_groups();
        taking.default_pool(&mut catalogs);
        taking.default_types(&mut catalogs);
        taking.nodes(&catalogs, &members);
        taking.limit_groups(&members);
        if !options.without_pods {
            taking.pods();
        }
        taking.attach_limits(&catalogs);
        taking.refused_pools();
        taking.mark_feedback();
        let SnapshotBuilder { snapshot, mut notes, .. } = taking;
        notes.dedup();
        Taken { snapshot, notes }
    }
}

impl State {
    /// Node groups of Cluster API, by kind, namespace and name.
    pub fn node_groups(&self, options: &NodeGroups) -> Vec<Group<'_>> {
        groups::gather(self, options)
    }
}

/// A snapshot in the making.
struct SnapshotBuilder<'s> {
    state: &'s State,
    options: &'s Options,
    /// Overlays among the objects; further ones are in the options.
    overlays: Arc<Overlays>,
    snapshot: Snapshot,
    notes: Vec<Note>,
}

impl SnapshotBuilder<'_> {
    fn namespaces(&mut self) {
        for (name, labels) in &self.state.namespaces {
            let name = self.snapshot.symbols.intern(name);
            self.snapshot.namespaces.insert(name, labels.clone());
        }
    }

    /// Pools that get no nodes whatever happens: they are shown, and that is all.
    fn refused_pools(&mut self) {
        let chosen = self.options.pools_of.has_node_pools();
        for (name, (requirements, why)) in self.state.refused_pools.iter().filter(|_| chosen) {
            let (requirements, not_ready) = (requirements.clone(), Some(why.clone()));
            self.snapshot.add_pool(Pool { requirements, not_ready, ..Pool::new(&**name) });
        }
    }

    fn note_conflicts(&mut self) {
        for (name, conflict) in &Arc::clone(&self.overlays).unused {
            let origin = self.state.overlays.get(name.as_str()).and_then(|(_, origin)| origin.as_ref());
            self.warn(origin, format!("overlay `{name}` is not used: {conflict}"));
        }
    }

    fn warn(&mut self, origin: Option<&Origin>, message: String) {
        let message = shorten_quoted(&message);
        self.notes.push(Note { severity: Severity::Warning, origin: origin.cloned(), message });
    }
}
