//! Finds a pool by its name.
//!
//! A pool is called by its MachineDeployment, or by that name without the cluster's name in front of it. Where both
//! name different pools, the lookup fails; `md/NAME` is the MachineDeployment of exactly that name.

use millpond_api::capi::names;
use millpond_api::spelling::nearest;
use serde_json::Value;

use super::{Current, Path, RejectedChange, Why, name_of};

/// Prefix of the full name of a MachineDeployment.
const EXACT: &str = "md/";

/// An existing pool.
#[derive(Debug, Clone, Copy)]
pub struct FoundPool<'c> {
    /// Its MachineDeployment; `None` for a new entry of a topology.
    pub deployment: Option<&'c Value>,
    /// Its entry in the Cluster or TanzuKubernetesCluster, if pools are entries.
    pub entry: Option<&'c Value>,
}

/// No pool has the name, or two have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// None.
    Unknown,
    /// Two.
    Ambiguous(String, String),
}

/// Finds a pool.
pub fn find<'c>(current: &'c Current, name: &str) -> Result<FoundPool<'c>, LookupError> {
    match current.path {
        Path::Plain => find_deployment(current, name).map(|it| FoundPool { deployment: Some(it), entry: None }),
        Path::Topology | Path::Tanzu => {
            let short = short_name(&current.cluster, name);
            let of_name = |wanted: &str| entries(current).iter().find(|entry| entry["name"] == wanted);
            let entry = of_name(name).or_else(|| of_name(short)).ok_or(LookupError::Unknown)?;
            let deployment = current.deployments.iter().find(|it| is_of_entry(current, it, entry));
            Ok(FoundPool { deployment, entry: Some(entry) })
        }
    }
}

fn find_deployment<'c>(current: &'c Current, name: &str) -> Result<&'c Value, LookupError> {
    let of_name = |wanted: &str| current.deployments.iter().find(|it| name_of(it) == wanted);
    if let Some(exact) = name.strip_prefix(EXACT) {
        return of_name(exact).ok_or(LookupError::Unknown);
    }
    let full = full_name(&current.cluster, name);
    match (of_name(name), of_name(&full)) {
        (Some(_), Some(_)) => Err(LookupError::Ambiguous(name.to_owned(), full)),
        (Some(found), None) | (None, Some(found)) => Ok(found),
        (None, None) => Err(LookupError::Unknown),
    }
}

/// Whether a MachineDeployment was made from an entry.
pub(super) fn is_of_entry(current: &Current, deployment: &Value, entry: &Value) -> bool {
    let name = entry["name"].as_str().unwrap_or_default();
    match current.path {
        Path::Plain => false,
        Path::Topology => deployment["metadata"]["labels"][names::TOPOLOGY_DEPLOYMENT] == name,
        // A supervisor appends five letters.
        Path::Tanzu => {
            let rest = name_of(deployment).strip_prefix(&format!("{}-", current.cluster));
            let rest = rest.unwrap_or_else(|| name_of(deployment));
            rest == name || rest.rsplit_once('-').is_some_and(|(before, end)| before == name && end.len() == 5)
        }
    }
}

/// The entries of the object that contains the pools.
pub(super) fn entries(current: &Current) -> &[Value] {
    let (object, path) = match current.path {
        Path::Plain => return &[],
        Path::Topology => (&current.object, "/spec/topology/workers/machineDeployments"),
        Path::Tanzu => (&current.tanzu, "/spec/topology/nodePools"),
    };
    let list = object.as_ref().and_then(|object| object.pointer(path)).and_then(Value::as_array);
    list.map_or(&[], |list| list)
}

/// The full name of a new MachineDeployment.
pub(super) fn full_name(cluster: &str, name: &str) -> String {
    format!("{cluster}-{name}")
}

/// The name without the prefix of its cluster.
pub(super) fn short_name<'n>(cluster: &str, name: &'n str) -> &'n str {
    let name = name.strip_prefix(EXACT).unwrap_or(name);
    name.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-')).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// The name of a pool in lists: short, unless two pools would have the same short name.
pub(super) fn display_name(current: &Current, deployment: &Value) -> String {
    let name = name_of(deployment);
    let short = short_name(&current.cluster, name);
    let taken = short != name && current.deployments.iter().any(|other| name_of(other) == short);
    let also_short = current.deployments.iter().any(|other| name_of(other) == full_name(&current.cluster, name));
    match (taken, also_short) {
        (true, _) => name.to_owned(),
        (false, true) => format!("{EXACT}{name}"),
        (false, false) => short.to_owned(),
    }
}

/// All names by which pools can be found.
pub(super) fn all_names(current: &Current) -> Vec<String> {
    match current.path {
        Path::Plain => current.deployments.iter().map(|it| display_name(current, it)).collect(),
        Path::Topology | Path::Tanzu => {
            entries(current).iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect()
        }
    }
}

/// The rejection of a name that matches no pool, or more than one.
pub(super) fn refuse(current: &Current, field: &str, name: &str, missing: &LookupError) -> RejectedChange {
    match missing {
        LookupError::Ambiguous(short, full) => {
            let problem = format!(
                "`{name}` is both the MachineDeployment `{short}` and `{full}` of cluster `{}`",
                current.cluster
            );
            RejectedChange::new(field, problem)
                .hint(format!("write `{EXACT}{short}` for the one, `{full}` for the other"))
                .why(Why::Limit)
        }
        LookupError::Unknown => {
            let all = all_names(current);
            let problem = format!("there is no pool `{name}` in cluster `{}`", current.cluster);
            let hint = match nearest(name, all.iter().map(String::as_str)) {
                Some(like) => format!("did you mean `{like}`?"),
                None if all.is_empty() => "the cluster has no pool at all".to_owned(),
                None => format!("there are: {}", all.join(", ")),
            };
            RejectedChange::new(field, problem).hint(hint).why(Why::NotFound)
        }
    }
}
