//! The parity table: the effect of every field of a node pool file, for each kind of pool. Planning, its tests and the
//! reference follow it.
//!
//! Tanzu does less, and does not say so: `tanzu` marks what it silently leaves out.

use std::fmt::Write as _;

use super::Path;

/// How a field is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Applied; an update replaces no machines.
    InPlace,
    /// Done; on an update by replacing machines in turn.
    Rollout,
    /// Said and left out, for this reason: it only matters to new pools.
    Ignored(&'static str),
    /// Refused, for this reason.
    Refused(&'static str),
}

/// A field on the three paths, created and updated.
#[derive(Debug)]
pub struct Row {
    /// The field.
    pub field: &'static str,
    /// MachineDeployment: create, update.
    pub plain: [Outcome; 2],
    /// ClusterClass: create, update.
    pub topology: [Outcome; 2],
    /// TanzuKubernetesCluster: create, update.
    pub tanzu: [Outcome; 2],
    /// The cases in which Tanzu ignores the field without an error.
    pub tanzu_leaves_out: &'static str,
}

use Outcome::{Ignored, InPlace, Refused, Rollout};

const NO_CLASS: Outcome = Refused("the cluster has no ClusterClass");
const NO_SUPERVISOR: Outcome = Refused("only clusters of a vSphere supervisor have it");
const BY_CLASS: Outcome = Refused("machines of a supervisor are what their vmClass says");
const NO_VARIABLE: Outcome = Refused("Tanzu's ClusterClass has no variable for it");
const OF_CLUSTER: Outcome = Refused("the release is that of the cluster's topology");
const FOR_NEW: Outcome = Ignored("the pool is there; a base matters to new pools only");
const NO_BASE: Outcome = Refused("pools of a supervisor are not copied from others");

const fn row(
    field: &'static str,
    plain: [Outcome; 2],
    topology: [Outcome; 2],
    tanzu: [Outcome; 2],
    tanzu_leaves_out: &'static str,
) -> Row {
    Row { field, plain, topology, tanzu, tanzu_leaves_out }
}

const fn vsphere(field: &'static str, topology: Outcome, tanzu_leaves_out: &'static str) -> Row {
    row(field, [Rollout, Rollout], [topology, topology], [BY_CLASS, BY_CLASS], tanzu_leaves_out)
}

/// Every field except `name` and `vsphere` itself.
pub const TABLE: &[Row] = &[
    row("replicas", [InPlace, InPlace], [InPlace, InPlace], [InPlace, InPlace], ""),
    row("az", [Rollout, Rollout], [Rollout, Rollout], [Rollout, Rollout], "updates"),
    row("nodeMachineType", [Rollout, Rollout], [Rollout, Rollout], [BY_CLASS, BY_CLASS], "updates"),
    row("workerClass", [NO_CLASS, NO_CLASS], [Rollout, Rollout], [NO_CLASS, NO_CLASS], "elsewhere"),
    row("labels", [Rollout, Rollout], [Rollout, Rollout], [InPlace, InPlace], "nodes, on updates"),
    row("taints", [Rollout, Rollout], [Rollout, Rollout], [InPlace, InPlace], "MachineDeployments"),
    row("vmClass", [NO_SUPERVISOR, NO_SUPERVISOR], [Rollout, Rollout], [Rollout, Rollout], "updates of topologies"),
    row(
        "storageClass",
        [NO_SUPERVISOR, NO_SUPERVISOR],
        [Rollout, Rollout],
        [Rollout, Rollout],
        "updates of topologies",
    ),
    row("tkrResolver", [NO_CLASS, NO_CLASS], [Rollout, Rollout], [NO_CLASS, NO_CLASS], "elsewhere"),
    row("volumes", [NO_SUPERVISOR, NO_SUPERVISOR], [Rollout, Rollout], [Rollout, Rollout], "updates of topologies"),
    row("tkr", [NO_SUPERVISOR, NO_SUPERVISOR], [OF_CLUSTER, OF_CLUSTER], [Rollout, Rollout], "elsewhere"),
    row("nodeDrainTimeout", [InPlace, InPlace], [InPlace, InPlace], [InPlace, InPlace], "elsewhere"),
    row("baseMachineDeployment", [InPlace, FOR_NEW], [InPlace, FOR_NEW], [NO_BASE, FOR_NEW], "always"),
    vsphere("vsphere.cloneMode", Rollout, "updates"),
    vsphere("vsphere.datacenter", Rollout, "updates"),
    vsphere("vsphere.datastore", Rollout, "updates"),
    vsphere("vsphere.storagePolicyName", Rollout, "MachineDeployments; updates"),
    vsphere("vsphere.folder", Rollout, "updates"),
    vsphere("vsphere.network", Rollout, "updates"),
    vsphere("vsphere.nameservers", Rollout, "updates"),
    vsphere("vsphere.tkgIPFamily", NO_VARIABLE, "topologies; updates"),
    vsphere("vsphere.resourcePool", Rollout, "updates"),
    vsphere("vsphere.vcIP", Rollout, "updates"),
    vsphere("vsphere.template", Rollout, "topologies; updates"),
    vsphere("vsphere.memoryMiB", Rollout, "updates"),
    vsphere("vsphere.diskGiB", Rollout, "updates"),
    vsphere("vsphere.numCPUs", Rollout, "updates"),
    vsphere("vsphere.numCoresPerSocket", NO_VARIABLE, "not in its files"),
    vsphere("vsphere.additionalDisksGiB", NO_VARIABLE, "not in its files"),
    vsphere("vsphere.powerOffMode", NO_VARIABLE, "not in its files"),
    vsphere("vsphere.hardwareVersion", Rollout, "not in its files"),
    vsphere("vsphere.customVMXKeys", Rollout, "not in its files"),
    vsphere("vsphere.pciDevices", Rollout, "not in its files"),
];

impl Row {
    /// How the field is treated there.
    pub fn outcome(&self, path: Path, create: bool) -> Outcome {
        let of = match path {
            Path::Plain => self.plain,
            Path::Topology => self.topology,
            Path::Tanzu => self.tanzu,
        };
        of[usize::from(!create)]
    }
}

/// The row of a field.
pub fn row_of(field: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.field == field)
}

/// The table as the reference shows it.
pub fn page() -> String {
    let mut page = String::from(
        "# Node pool files on Cluster API\n\n\
         <!-- Written by `cargo xtask generate` from the table that `millpond pool set` follows; edits are lost. -->\n\n\
         What each field of a node pool file does, on each of the three ways that a cluster keeps its pools. \"in place\"\n\
         replaces no machine; \"rollout\" replaces all machines of the pool in turn; what is refused is refused before\n\
         anything is written. The last column says where `tanzu cluster node-pool set` leaves the field out without a word.\n\n\
         | Field | MachineDeployment: create | update | ClusterClass: create | update | TanzuKubernetesCluster: create | update | Tanzu leaves it out |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut reasons: Vec<&'static str> = Vec::new();
    for row in TABLE {
        let mut cells = Vec::new();
        for path in Path::ALL {
            for create in [true, false] {
                cells.push(match (row.outcome(path, create), create) {
                    (InPlace | Rollout, true) => "yes".to_owned(),
                    (InPlace, false) => "in place".to_owned(),
                    (Rollout, false) => "rollout".to_owned(),
                    (Ignored(reason), _) => format!("ignored {}", mark(&mut reasons, reason)),
                    (Refused(reason), _) => format!("refused {}", mark(&mut reasons, reason)),
                });
            }
        }
        let left_out = if row.tanzu_leaves_out.is_empty() { "–" } else { row.tanzu_leaves_out };
        _ = writeln!(page, "| `{}` | {} | {left_out} |", row.field, cells.join(" | "));
    }
    page.push('\n');
    for (index, reason) in reasons.iter().enumerate() {
        _ = writeln!(page, "{}. {reason}", index + 1);
    }
    page.push_str(
        "\nSome fields depend on the machines: the `vsphere` layer needs machines of vSphere, `nodeMachineType` those of AWS \
         or\nAzure. Labels of the domains `node-role.kubernetes.io`, `node-restriction.kubernetes.io` and \
         `node.cluster.x-k8s.io`\nreach nodes that run without a rollout; all others come with new machines.\n",
    );
    page
}

fn mark(reasons: &mut Vec<&'static str>, reason: &'static str) -> String {
    let index = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    format!("({})", index + 1)
}

#[cfg(test)]
mod tests {
    use millpond_api::capi::pool_file::{FIELDS, VSPHERE_FIELDS};

    use super::*;

    #[test]
    fn every_field_has_a_row() {
        let first = FIELDS.iter().filter(|field| !matches!(**field, "name" | "vsphere")).map(|it| (*it).to_owned());
        let second = VSPHERE_FIELDS.iter().map(|field| format!("vsphere.{field}"));
        let all: Vec<String> = first.chain(second).collect();
        let mut missing: Vec<&String> = all.iter().filter(|field| row_of(field).is_none()).collect();
        missing.sort();
        assert_eq!((missing, TABLE.len()), (vec![], all.len()));
    }
}
