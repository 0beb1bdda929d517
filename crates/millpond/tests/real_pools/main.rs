//! Pools on a real cluster: kube-apiserver, etcd, kube-scheduler, kube-controller-manager and kwok, with
//! `millpond controller` beside them.
//!
//! | Room | Holds |
//! |---|---|
//! | `stack` | the cluster, the controllers, and what watches tell of both |
//! | `table` | what settings of pools do, each in short |
//! | `kills` | controllers that are killed while nodes come and go |

mod kills;
mod stack;
mod table;
