//! Servers for tests: the real Kubernetes, and Millpond's own binary, started
//! on loopback and gone when the test is.
//!
//! ```text
//!  tests/realcluster/*/go.mod ──► real::Parts ──► cache of binaries
//!                                     │
//!            ┌────────────────────────┼───────────────────────┐
//!            ▼                        ▼                       ▼
//!       RealCluster              Controllers               Kubectl
//!    etcd, kube-apiserver   kube-controller-manager,    drives any server
//!            │               kube-scheduler, kwok;             │
//!            │               ClusterApi: its core manager      │
//!            └──── kubeconfig ────────┴──── kubeconfig ────────┘
//!                                     ▲
//!                             EmbeddedServer (`millpond up`)
//!                                     ▲
//!                  RealNode: kubelet, containerd and runc on a machine of `machines`;
//!                  SystemMachine of `machines`: the same under a systemd of its own
//! ```
//!
//! Everything that a server says goes to files in a folder of its own; the
//! end of the log is part of the error when a server does not come up. Set
//! `MILLPOND_KEEP` to keep those folders.
//!
//! Children never outlive the process that started them, not even when it is
//! killed or holds them in a `static`: see `child_reaper.rs`.
//!
//! Tests that need the real parts are named `real_…` and marked `#[ignore]`,
//! so that a plain `cargo test` counts them as ignored, and
//! `cargo test -- --ignored real_` (a step of `cargo xtask test`) runs them.
//!
//! This crate contains no tests; it only starts and stops what they need.

mod browser;
mod child_reaper;
mod cluster_api;
mod controllers;
mod embedded;
mod kubeconfig;
mod kubectl;
pub mod machines;
mod oci;
mod openstack;
mod pki;
mod probe;
mod process;
pub mod real;
mod real_cluster;
mod real_node;
mod scratch;
mod sshd;
mod system_node;
mod zookeeper;

pub use browser::Browser;
pub use cluster_api::ClusterApi;
pub use controllers::{Controllers, ControllersBuilder};
pub use embedded::EmbeddedServer;
pub use kubeconfig::Access;
pub use kubectl::Kubectl;
pub use oci::Image;
pub use openstack::OpenStack;
pub use process::{Process, Waited, free_port};
pub use real_cluster::{RealCluster, RealClusterBuilder};
pub use real_node::{BUSYBOX, NodePrograms, RealNode, kubelet_configuration};
pub use scratch::Scratch;
pub use sshd::Sshd;
pub use system_node::system_kubelet_configuration;
pub use zookeeper::ZooKeeper;
