//! The table of parts: which package of which pinned module becomes which
//! binary.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ring::digest::{Context as Digest, SHA256};

use super::{kubernetes_version, modules};

/// A line that is put into a source of another project's module while it is built, where the program has no flag for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addition {
    /// The module.
    pub(super) module: &'static str,
    /// The file within it.
    pub(super) file: &'static str,
    /// The line that it goes before. It is there exactly once, else the build fails.
    pub(super) before: &'static str,
    /// The line to add.
    pub(super) line: &'static str,
}

/// One binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its file name.
    pub name: &'static str,
    /// Folder under `tests/`.
    pub(super) folder: &'static str,
    /// Import path of the package.
    pub(super) package: &'static str,
    /// The package's tests become the binary, not its `main`.
    pub(super) is_test: bool,
    /// The binary tells Kubernetes' version; kubectl complains of one that it
    /// does not know.
    pub(super) tells_version: bool,
    /// Build tags, between commas.
    pub(super) tags: &'static str,
    /// The module whose folder holds [`data_files`](Self::data_files).
    pub(super) data_module: &'static str,
    /// Files that are used together with the binary.
    pub(super) data_files: &'static [&'static str],
    /// The line to add to the sources, if any.
    pub(super) addition: Option<Addition>,
}

impl Part {
    /// The store behind the API server.
    pub const ETCD: Self = Self { name: "etcd", folder: "realcluster/etcd", package: ".", ..Self::KUBERNETES };
    /// The API server.
    pub const KUBE_APISERVER: Self =
        Self { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", ..Self::VERSIONED };
    /// The controllers of the built-in kinds.
    pub const KUBE_CONTROLLER_MANAGER: Self = Self {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        ..Self::VERSIONED
    };
    /// The scheduler.
    pub const KUBE_SCHEDULER: Self =
        Self { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler", ..Self::VERSIONED };
    /// The command line.
    pub const KUBECTL: Self = Self { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", ..Self::VERSIONED };
    /// Kubernetes' end-to-end suite. By far the longest build.
    pub const E2E_TEST: Self =
        Self { name: "e2e.test", package: "k8s.io/kubernetes/test/e2e", is_test: true, ..Self::VERSIONED };
    /// The agent of a node.
    pub const KUBELET: Self = Self { name: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet", ..Self::VERSIONED };
    /// Joins nodes.
    pub const KUBEADM: Self = Self { name: "kubeadm", package: "k8s.io/kubernetes/cmd/kubeadm", ..Self::VERSIONED };
    /// Runs the containers of a node.
    pub const CONTAINERD: Self =
        Self { name: "containerd", package: "github.com/containerd/containerd/v2/cmd/containerd", ..Self::NODE };
    /// Stands between containerd and runc, one for each pod.
    pub const CONTAINERD_SHIM: Self = Self {
        name: "containerd-shim-runc-v2",
        package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        ..Self::NODE
    };
    /// containerd's command line.
    pub const CTR: Self = Self { name: "ctr", package: "github.com/containerd/containerd/v2/cmd/ctr", ..Self::NODE };
    /// Kubelets and pods that pretend.
    pub const KWOK: Self = Self {
        name: "kwok",
        folder: "realcluster/kwok",
        package: "sigs.k8s.io/kwok/cmd/kwok",
        data_module: "sigs.k8s.io/kwok",
        data_files: &[
            "kustomize/stage/node/fast/node-initialize.yaml",
            "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "kustomize/stage/pod/fast/pod-ready.yaml",
            "kustomize/stage/pod/fast/pod-complete.yaml",
            "kustomize/stage/pod/fast/pod-delete.yaml",
        ],
        ..Self::KUBERNETES
    };

    /// Karpenter's scheduler behind a driver of ours, to compare plans with.
    pub const KARPENTER_RIVAL: Self =
        Self { name: "karpenter-rival", folder: "rivals/karpenter", package: ".", ..Self::KUBERNETES };
    /// Karpenter with its KWOK provider, whose nodes are objects and nothing
    /// else; with the CRDs of both, and the instance types.
    pub const KARPENTER: Self = Self {
        name: "karpenter",
        folder: "karpenter",
        package: "sigs.k8s.io/karpenter/kwok",
        data_module: "sigs.k8s.io/karpenter",
        data_files: &[
            "kwok/charts/crds/autoscaling.x-k8s.io_capacitybuffers.yaml",
            "kwok/charts/crds/karpenter.sh_nodeclaims.yaml",
            "kwok/charts/crds/karpenter.sh_nodeoverlays.yaml",
            "kwok/charts/crds/karpenter.sh_nodepools.yaml",
            "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
            "kwok/cloudprovider/instance_types.json",
        ],
        ..Self::KUBERNETES
    };
    /// Karpenter's own end-to-end suite, with the stages that it wants of kwok.
    pub const KARPENTER_SUITE: Self = Self {
        name: "karpenter-regression.test",
        folder: "karpenter",
        package: "sigs.k8s.io/karpenter/test/suites/regression",
        is_test: true,
        data_module: "sigs.k8s.io/karpenter",
        data_files: &["hack/kwok/stages/pod-delete.yaml", "hack/kwok/stages/pod-unhealthy.yaml"],
        ..Self::KUBERNETES
    };

    /// Cluster API's core manager, with its definitions and webhooks. Its webhook server would listen beyond loopback,
    /// and has no flag for that.
    pub const CLUSTER_API: Self = Self {
        name: "cluster-api-core",
        folder: "realcluster/cluster-api",
        package: "sigs.k8s.io/cluster-api/core",
        data_module: "sigs.k8s.io/cluster-api",
        data_files: &[
            "core/config/webhook/manifests.yaml",
            "core/config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesetbindings.yaml",
            "core/config/crd/bases/addons.cluster.x-k8s.io_clusterresourcesets.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_clusterclasses.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinedrainrules.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinehealthchecks.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinepools.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machinesets.yaml",
            "core/config/crd/bases/ipam.cluster.x-k8s.io_ipaddressclaims.yaml",
            "core/config/crd/bases/ipam.cluster.x-k8s.io_ipaddresses.yaml",
            "core/config/crd/bases/runtime.cluster.x-k8s.io_extensionconfigs.yaml",
        ],
        addition: Some(Addition {
            module: "sigs.k8s.io/cluster-api",
            file: "core/main.go",
            before: "Port:     webhookPort,",
            line: "Host: \"127.0.0.1\",",
        }),
        ..Self::KUBERNETES
    };

    /// govmomi's simulator of vCenter, behind a main of ours that adds GPUs and scheduled tasks.
    pub const VCSIM: Self = Self { name: "vcsim", folder: "realcluster/vcsim", package: ".", ..Self::KUBERNETES };

    /// Without the snapshotters that need a C compiler.
    const NODE: Self =
        Self { folder: "realcluster/containerd", tags: "no_btrfs,no_devmapper,no_zfs", ..Self::KUBERNETES };
    const VERSIONED: Self = Self { tells_version: true, ..Self::KUBERNETES };
    const KUBERNETES: Self = Self {
        name: "",
        folder: "realcluster/kubernetes",
        package: "",
        is_test: false,
        tells_version: false,
        tags: "",
        data_module: "",
        data_files: &[],
        addition: None,
    };

    /// The module that pins the part.
    pub(super) fn module_folder(&self) -> PathBuf {
        modules().join(self.folder)
    }

    /// `build` or `test -c`.
    pub(super) fn verb(&self) -> &'static [&'static str] {
        if self.is_test { &["test", "-c"] } else { &["build"] }
    }

    /// The flags that decide what comes out.
    pub(super) fn flags(&self) -> Result<Vec<String>> {
        let mut linker = String::from("-s -w");
        if self.tells_version {
            let version = kubernetes_version()?;
            let mut numbers = version.trim_start_matches('v').split('.');
            let major = numbers.next().unwrap_or_default();
            let minor = numbers.next().unwrap_or_default();
            for (variable, value) in [("gitVersion", version.as_str()), ("gitMajor", major), ("gitMinor", minor)] {
                linker = format!("{linker} -X k8s.io/component-base/version.{variable}={value}");
            }
        }
        let flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", &linker];
        let tags = (!self.tags.is_empty()).then(|| format!("-tags={}", self.tags));
        Ok(flags.map(String::from).into_iter().chain(tags).collect())
    }

    /// Hash of the module's pins, its sources, the flags and the names of the
    /// data files. 64 bits of it:
    /// a cache of one's own builds is not attacked, and short paths read better.
    pub(super) fn key(&self) -> Result<String> {
        let folder = self.module_folder();
        let mut digest = Digest::new(&SHA256);
        for name in ["go.mod", "go.sum"] {
            let path = folder.join(name);
            digest.update(&std::fs::read(&path).with_context(|| format!("read `{}`", path.display()))?);
        }
        for path in sources(&folder)? {
            digest.update(&std::fs::read(&path).with_context(|| format!("read `{}`", path.display()))?);
        }
        let flags = self.flags()?;
        let words = self.verb().iter().copied().chain(flags.iter().map(String::as_str)).chain([self.package]);
        let words = words.chain(self.data_files.iter().copied());
        let added = self.addition.map(|it| [it.module, it.file, it.before, it.line]);
        let words = words.chain(added.into_iter().flatten());
        for word in words {
            digest.update(word.as_bytes());
            digest.update(b"\n");
        }
        let hash = digest.finish();
        let head = hash.as_ref().first_chunk().context("a hash has bytes")?;
        Ok(format!("{:016x}", u64::from_be_bytes(*head)))
    }
}

/// The sources of ours that become part of a binary, sorted: not tests, and not `tools.go`, which only names the
/// packages that a module pins.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("list `{}`", folder.display()))? {
        let name = entry.with_context(|| format!("list `{}`", folder.display()))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_go = Path::new(name).extension().is_some_and(|end| end == "go");
        if is_go && !name.ends_with("_test.go") && name != "tools.go" {
            found.push(folder.join(name));
        }
    }
    found.sort();
    Ok(found)
}

/// Where a data file lies in the part's folder.
pub(super) fn data_name(file: &str) -> PathBuf {
    let name = file.rsplit('/').next().unwrap_or(file);
    PathBuf::from("data").join(name)
}
