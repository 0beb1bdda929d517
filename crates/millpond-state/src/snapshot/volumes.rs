//! Constraints of a pod's volumes: the nodes that can reach them, and the attach limits.

use std::collections::HashMap;

use millpond_plan::model::{PodClass, Problem, TypeId};
use millpond_plan::requirement::Requirements;

use super::SnapshotBuilder;
use super::pools::Catalogs;
use crate::state::{ClaimEntry, ClaimRef, PodEntry, PodPhase, StorageClassEntry};

/// Prefix of the resource that counts the volumes attached by a driver.
const ATTACHABLE: &str = "attachable-volumes-csi-";

/// The volume limit of nodes without one. Above any number of volumes on a node, and small enough to be summed up over
/// a cluster.
const UNLIMITED: i64 = 1_000_000;

/// Volumes without a provisioner: they exist, or not.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Drivers that took over from what kubelet once did itself.
const MIGRATED: [(&str, &str); 6] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// Pods that hold a claim which only one pod may use, by namespace and claim.
pub(super) type Users<'s> = HashMap<(&'s str, &'s str), &'s str>;

/// What a claim requires of a node.
struct Wanted {
    /// Alternatives of which one must hold; empty if any node will do.
    terms: Vec<Requirements>,
    driver: Option<Box<str>>,
}

impl SnapshotBuilder<'_> {
    pub(super) fn claim_users<'p>(&self, pods: &[(&'p str, &'p str, &'p PodEntry)]) -> Users<'p> {
        let mut users = Users::new();
        for (namespace, name, entry) in pods {
            let holds = matches!(entry.phase, PodPhase::Bound | PodPhase::Terminating);
            for claim in entry.claims.iter().filter(|_| holds) {
                let found = self.state.volume_claims.get(*namespace).and_then(|claims| claims.get(&claim.name));
                if found.is_some_and(|found| found.one_pod) {
                    users.insert((namespace, &claim.name), name);
                }
            }
        }
        users
    }

    /// Adds what the claims ask for, or why they never will be there.
    pub(super) fn add_volumes(
        &mut self,
        namespace: &str,
        pod: &str,
        claims: &[ClaimRef],
        users: &Users<'_>,
        class: &mut PodClass,
    ) {
        for claim in claims {
            let used = users.get(&(namespace, &*claim.name)).is_some_and(|user| *user != pod);
            let wanted = if used { Err(Problem::ClaimInUse(claim.name.clone())) } else { self.claim(namespace, claim) };
            match wanted {
                Ok(Wanted { terms, driver }) => {
                    if !terms.is_empty() && !class.volume_terms.contains(&terms) {
                        class.volume_terms.push(terms);
                    }
                    if let Some(driver) = driver {
                        let resource = self.snapshot.resources.intern(&format!("{ATTACHABLE}{driver}"));
                        class.requests.set(resource, class.requests.get(resource) + 1);
                    }
                }
                Err(problem) => _ = class.problem.get_or_insert(problem),
            }
        }
    }

    fn claim(&self, namespace: &str, claim: &ClaimRef) -> Result<Wanted, Problem> {
        let found = self.state.volume_claims.get(namespace).and_then(|claims| claims.get(&claim.name));
        let Some(entry) = found.or(claim.template.as_deref()) else {
            return Err(Problem::ClaimMissing(claim.name.clone()));
        };
        if entry.volume.is_empty() {
            return self.unbound(&claim.name, entry);
        }
        match self.state.volumes.get(&entry.volume) {
            Some(volume) => Ok(Wanted { terms: volume.terms.clone(), driver: volume.driver.clone() }),
            None => Err(Problem::ClaimUnbound(claim.name.clone())),
        }
    }

    /// A claim without a volume: one is made where the pod goes, if its class waits for that.
    fn unbound(&self, name: &str, entry: &ClaimEntry) -> Result<Wanted, Problem> {
        let classes = &self.state.storage_classes;
        let (class_name, class): (&str, Option<&StorageClassEntry>) = match &entry.class {
            Some(class) if class.is_empty() => return Err(Problem::ClaimUnbound(name.into())),
            Some(class) => (class, classes.get(class)),
            None => {
                let default = classes.iter().find(|(_, class)| class.is_default);
                default.map_or(("", None), |(name, class)| (name, Some(class)))
            }
        };
        let Some(class) = class else {
            let missing = if class_name.is_empty() { "(the cluster's default)" } else { class_name };
            return Err(Problem::StorageClassMissing(missing.into()));
        };
        if !class.waits {
            return Err(Problem::ClaimUnbound(name.into()));
        }
        if &*class.provisioner == NO_PROVISIONER {
            return self.free_volumes(name, class_name);
        }
        let migrated = MIGRATED.iter().find(|(old, _)| **old == *class.provisioner).map(|(_, driver)| *driver);
        let driver = migrated.unwrap_or(&class.provisioner);
        Ok(Wanted { terms: class.terms.clone(), driver: Some(driver.into()) })
    }

    /// The places of volumes of a class that no claim has.
    fn free_volumes(&self, claim: &str, class: &str) -> Result<Wanted, Problem> {
        let mut free: Vec<(&str, &[Requirements])> = Vec::new();
        for (name, volume) in &self.state.volumes {
            if !volume.claimed && &*volume.class == class {
                free.push((name, &volume.terms));
            }
        }
        free.sort_unstable_by_key(|(name, _)| *name);
        if free.is_empty() {
            return Err(Problem::ClaimUnbound(claim.into()));
        }
        let anywhere = free.iter().any(|(_, terms)| terms.is_empty());
        let terms = if anywhere { Vec::new() } else { free.iter().flat_map(|(_, terms)| terms.to_vec()).collect() };
        Ok(Wanted { terms, driver: None })
    }

    /// Limits on attached volumes of nodes and types, for the drivers that pods use.
    pub(super) fn attach_limits(&mut self, catalogs: &Catalogs) {
        let state = self.state;
        let snapshot = &mut self.snapshot;
        let asked: Vec<_> = snapshot
            .resources
            .iter()
            .filter_map(|(id, name)| Some((id, name.strip_prefix(ATTACHABLE)?.to_owned())))
            .collect();
        if asked.is_empty() {
            return;
        }
        for (index, of) in snapshot.types.iter_mut().enumerate() {
            let most = catalogs.most_volumes.get(&TypeId::from(index)).copied();
            for (id, _) in &asked {
                if of.allocatable.get(*id) == 0 {
                    of.allocatable.set(*id, most.unwrap_or(UNLIMITED));
                }
            }
        }
        for node in &mut snapshot.nodes {
            let drivers = state.attachable.get(node.name.as_str()).map_or(&[][..], Vec::as_slice);
            for (id, driver) in &asked {
                let said = drivers.iter().find(|(name, _)| **name == **driver).map(|(_, count)| *count);
                let reported = node.allocatable.get(*id);
                let count = match said {
                    Some(Some(count)) => i64::from(count),
                    // A driver without a count has no limit. One that is not there yet is taken to come.
                    Some(None) => UNLIMITED,
                    None if reported > 0 => reported,
                    None => UNLIMITED,
                };
                node.allocatable.set(*id, count);
            }
        }
    }
}
