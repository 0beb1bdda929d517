//! The resources that are served right now: the built-ins, and those of CRDs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::resource::Resource;

/// All served resources at one moment.
#[derive(Debug, Default)]
pub struct Resources {
    /// Rises with every change; caches of discovery and OpenAPI go by it.
    pub generation: u64,
    /// Groups by name, the core group first (its name is empty).
    pub groups: BTreeMap<Arc<str>, Group>,
}

/// One API group.
#[derive(Debug, Default)]
pub struct Group {
    /// Versions, preferred one first.
    pub versions: Vec<GroupVersion>,
}

/// One version of a group.
#[derive(Debug)]
pub struct GroupVersion {
    /// Its name.
    pub version: Arc<str>,
    /// Resources by plural name.
    pub resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

impl Resources {
    fn of(all: impl Iterator<Item = Arc<Resource>>, generation: u64) -> Self {
        let mut groups: BTreeMap<Arc<str>, Group> = BTreeMap::new();
        for resource in all {
            let group = groups.entry(resource.group.clone()).or_default();
            let at = group.versions.iter().position(|version| version.version == resource.version);
            let at = at.unwrap_or_else(|| {
                group.versions.push(GroupVersion { version: resource.version.clone(), resources: BTreeMap::new() });
                group.versions.len() - 1
            });
            group.versions[at].resources.insert(resource.plural.clone(), resource);
        }
        for group in groups.values_mut() {
            group.versions.sort_by_key(|version| Reverse(version_priority(&version.version)));
        }
        Self { generation, groups }
    }

    /// The resource behind a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.get(plural)
    }

    /// One version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&GroupVersion> {
        self.groups.get(group)?.versions.iter().find(|candidate| *candidate.version == *version)
    }

    /// The resource of a kind.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.values().find(|resource| *resource.kind == *kind)
    }

    /// Every resource in its preferred version, once per collection.
    pub fn preferred(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(|group| {
            let mut seen = std::collections::BTreeSet::new();
            let all = group.versions.iter().flat_map(|version| version.resources.values());
            all.filter(move |resource| seen.insert(resource.plural.clone())).collect::<Vec<_>>()
        })
    }
}

/// Kubernetes' order of versions: stable before beta before alpha, higher numbers first, others by name.
pub(crate) fn version_priority(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u32 = rest[..digits].parse().ok()?;
        let (stage, minor) = match &rest[digits..] {
            "" => (3, ""),
            tail => tail.strip_prefix("beta").map(|n| (2, n)).or_else(|| tail.strip_prefix("alpha").map(|n| (1, n)))?,
        };
        Some((stage, major, if minor.is_empty() { 0 } else { minor.parse().ok()? }))
    });
    match parsed {
        Some((stage, major, minor)) => (stage, major, minor, Reverse(String::new())),
        None => (0, 0, 0, Reverse(version.to_owned())),
    }
}

/// The changing set of resources.
#[derive(Debug)]
pub struct Registry {
    builtins: Vec<Arc<Resource>>,
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Resources of each CRD by its name (`plural.group`).
    custom: BTreeMap<String, Vec<Arc<Resource>>>,
    current: Arc<Resources>,
}

impl Registry {
    /// A registry of the given built-ins.
    pub fn new(builtins: Vec<Resource>) -> Self {
        let builtins: Vec<Arc<Resource>> = builtins.into_iter().map(Arc::new).collect();
        let current = Arc::new(Resources::of(builtins.iter().cloned(), 1));
        Self { builtins, inner: RwLock::new(Inner { custom: BTreeMap::new(), current }) }
    }

    /// The resources served now.
    pub fn current(&self) -> Arc<Resources> {
        self.inner.read().current.clone()
    }

    /// Takes in what a CRD defines now, in place of what it had; `None` stops serving it.
    ///
    /// `current` is called while the registry is locked: two writers of one CRD may finish in either order, and the
    /// later one must not restore what the store no longer holds.
    pub fn refresh(&self, crd_name: &str, current: impl FnOnce() -> Option<Vec<Resource>>) {
        let mut inner = self.inner.write();
        match current() {
            Some(resources) => {
                inner.custom.insert(crd_name.to_owned(), resources.into_iter().map(Arc::new).collect());
            }
            None if inner.custom.remove(crd_name).is_none() => return,
            None => {}
        }
        self.rebuild(&mut inner);
    }

    fn rebuild(&self, inner: &mut Inner) {
        let all = self.builtins.iter().chain(inner.custom.values().flatten()).cloned();
        inner.current = Arc::new(Resources::of(all, inner.current.generation + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = ["v1beta1", "v10", "foo1", "v2", "v11alpha2", "v1", "v3beta2", "v12alpha1", "foo10"];
        versions.sort_by_key(|version| Reverse(version_priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v3beta2", "v1beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]);
    }
}
