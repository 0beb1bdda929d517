//! Pools on a real cluster: kube-apiserver, etcd, kube-scheduler, kube-controller-manager and kwok, with
//! `millpond controller` beside them.
//!
//! | Room | Holds |
//! |---|---|
//! | `gate` | what the controllers write goes through it: it counts, and shuts with a write |
//! | `rights` | the rules of `millpond install rbac` beside the requests that the controllers made |
//! | `stack` | the cluster, the controllers, and what watches tell of both |
//! | `table` | what settings of pools do, each in short |
//! | `kills` | controllers that are killed while nodes come and go |
//! | `gpu_jobs` | the Deployment of the GPUInfo tutorial: its controller, account and environment, on this cluster |
//! | `waves` | pods of one `kubectl apply` that come over seconds |

mod gate;
mod gpu_jobs;
mod kills;
mod rights;
mod stack;
mod table;
mod waves;
