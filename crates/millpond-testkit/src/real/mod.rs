//! The real parts of Kubernetes, and rivals to compare with: built once from
//! `tests/realcluster/`, `tests/rivals/` and `tests/karpenter/` into a cache
//! outside the tree, then found there.
//!
//! The cache lies at `$MILLPOND_CACHE`, or `$XDG_CACHE_HOME/millpond`, or
//! `~/.cache/millpond`. A part's folder is named after the hash of everything
//! that decides what is built, so that another pin is another folder and two
//! trees on one machine share what they have in common. Old folders may be
//! removed at any time.

mod build;
pub(crate) mod debian;
mod part;
pub mod python;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub use part::Part;

/// The parts of a control plane with its client.
pub const CLUSTER_PARTS: &[Part] =
    &[Part::ETCD, Part::KUBE_APISERVER, Part::KUBECTL, Part::KUBE_CONTROLLER_MANAGER, Part::KUBE_SCHEDULER, Part::KWOK];

/// The parts of a real node, besides `runc` and network plugins from Debian.
pub const NODE_PARTS: &[Part] = &[Part::KUBELET, Part::KUBEADM, Part::CONTAINERD, Part::CONTAINERD_SHIM, Part::CTR];

/// The folder of binaries.
#[derive(Clone, Debug)]
pub struct Parts {
    cache: PathBuf,
}

impl Parts {
    /// Finds every part of a cluster in the cache, and builds what is missing.
    pub fn ensure() -> Result<Self> {
        Self::ensure_each(CLUSTER_PARTS)
    }

    /// Finds the given parts in the cache, and builds what is missing.
    pub fn ensure_each(wanted: &[Part]) -> Result<Self> {
        let parts = Self::locate()?;
        for part in wanted {
            if !parts.has(part)? {
                parts.build(part)?;
            }
        }
        Ok(parts)
    }

    /// Finds the cache and builds nothing.
    pub fn locate() -> Result<Self> {
        let base = cache_base(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(Into::into))
            .context("no place for the cache of real parts\nhint: set `MILLPOND_CACHE` to a folder")?;
        Ok(Self { cache: base.join("real") })
    }

    /// Whether a part is there already.
    pub fn has(&self, part: &Part) -> Result<bool> {
        Ok(self.path(part)?.exists())
    }

    /// The binary of a part, whether it is there or not.
    pub fn path(&self, part: &Part) -> Result<PathBuf> {
        Ok(self.folder(part)?.join(part.name))
    }

    /// The data files of a part (kwok's stages, Karpenter's CRDs), in the order
    /// of its table.
    pub fn data_files(&self, part: &Part) -> Result<Vec<PathBuf>> {
        let folder = self.folder(part)?;
        Ok(part.data_files.iter().map(|file| folder.join(part::data_name(file))).collect())
    }

    /// Fails, with what to do about it, if there is no Go to build with.
    pub fn can_build() -> Result<()> {
        build::ensure_go()
    }

    /// Vets and tests the Go sources of a part that is written here.
    pub fn check_sources(part: &Part) -> Result<()> {
        build::ensure_go()?;
        build::check(part).with_context(|| format!("check {}", part.name))
    }

    /// Builds a part, or waits for another process that does.
    pub fn build(&self, part: &Part) -> Result<()> {
        build::ensure_go()?;
        let _lock = lock_cache(&self.cache, part.name)?;
        if self.has(part)? {
            return Ok(());
        }
        build::build(part, &self.folder(part)?).with_context(|| format!("build {}", part.name))
    }

    /// The folder that all parts are in.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    fn folder(&self, part: &Part) -> Result<PathBuf> {
        Ok(self.cache.join(format!("{}-{}", part.name, part.key()?)))
    }
}

/// Waits for other processes that make the same part. The lock ends with the file.
fn lock_cache(cache: &Path, name: &str) -> Result<File> {
    std::fs::create_dir_all(cache).with_context(|| format!("create `{}`", cache.display()))?;
    let lock = cache.join(format!(".{name}.lock"));
    let lock = File::create(&lock).with_context(|| format!("create `{}`", lock.display()))?;
    lock.lock().context("lock the cache of real parts")?;
    Ok(lock)
}

/// The version of Kubernetes that the parts are pinned to, as `v1.2.3`.
pub fn kubernetes_version() -> Result<String> {
    pinned_version("realcluster/kubernetes", "k8s.io/kubernetes")
}

/// The version of Karpenter and its suite, as `v1.2.3`.
pub fn karpenter_version() -> Result<String> {
    pinned_version("karpenter", "sigs.k8s.io/karpenter")
}

fn pinned_version(folder: &str, module: &str) -> Result<String> {
    let file = modules().join(folder).join("go.mod");
    let text = std::fs::read_to_string(&file).with_context(|| format!("read `{}`", file.display()))?;
    let pinned = text.split_whitespace().skip_while(|word| *word != module).nth(1);
    match pinned {
        Some(version) if version.starts_with('v') => Ok(version.to_owned()),
        _ => bail!("`{}` requires no version of {module}", file.display()),
    }
}

/// The Go modules that pin the parts, each in a folder of its own below this one.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn cache_base(env: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    env("MILLPOND_CACHE")
        .or_else(|| Some(env("XDG_CACHE_HOME")?.join("millpond")))
        .or_else(|| Some(env("HOME")?.join(".cache").join("millpond")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_environment_says() {
        let all = [("MILLPOND_CACHE", "/m"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        let base = |known: &[(&str, &str)]| {
            let found = |name: &str| Some(known.iter().find(|(key, _)| *key == name)?.1.into());
            cache_base(found)
        };
        assert_eq!(base(&all), Some("/m".into()));
        assert_eq!(base(&all[1..]), Some("/x/millpond".into()));
        assert_eq!(base(&all[2..]), Some("/h/.cache/millpond".into()));
        assert_eq!(base(&[]), None);
    }

    #[test]
    fn versions_are_those_of_the_pins() {
        assert!(kubernetes_version().unwrap().starts_with("v1."));
        assert!(karpenter_version().unwrap().starts_with("v1."));
    }

    #[test]
    fn every_part_has_a_key_of_its_own() {
        let sets = CLUSTER_PARTS.iter().chain(NODE_PARTS);
        let mut keys: Vec<_> = sets.map(|part| part.key().unwrap()).collect();
        keys.push(Part::E2E_TEST.key().unwrap());
        for part in [Part::KARPENTER_RIVAL, Part::KARPENTER, Part::KARPENTER_SUITE, Part::CLUSTER_API, Part::VCSIM] {
            keys.push(part.key().unwrap());
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), CLUSTER_PARTS.len() + NODE_PARTS.len() + 6);
    }
}
