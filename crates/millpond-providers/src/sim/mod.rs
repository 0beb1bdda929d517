//! The simulated cloud: instances that exist on paper, and Node objects that are real.
//!
//! ```text
//!            Provider                                     kube::Client
//!  controllers ──▶ SimProvider ── calls ──▶ Cloud            ▲
//!                   │   ▲      slow, lost,   │  State: pure   │ Node objects, once an
//!                   │   │      refused       │  Journal: file │ instance has booted
//!                   │   └──── events ────────┤                │
//!                   └── run(stop) ◀── work ──┴────────────────┘
//! ```
//!
//! - [`Cloud`] is what a data centre and its API would be: instances by token, stock, quotas, faults by a
//!   [`Script`]. It knows no Kubernetes, and outlives the controllers: in memory behind an `Arc`, or in a file.
//! - [`SimProvider`] is what Millpond sees of it, and the task that boots instances: the Node object of an instance
//!   is made once its registration delay is over. Kubelets (stand-ins, kwok) take it from there.
//!
//! When an instance ends, its Node object stays: taking it away is a controller's work, as on clouds without a node
//! controller. An interruption with `nodeGone` takes it away.

mod boot;
mod calls;
mod chance;
mod cloud;
mod journal;
mod market;
mod millis;
mod provider;
mod record;
mod rules;
mod state;

pub use cloud::Cloud;
pub use journal::OpenError;
pub use millpond_api::sim_script::Script;
pub use provider::{NAME, SimProvider};

#[cfg(test)]
mod tests;
