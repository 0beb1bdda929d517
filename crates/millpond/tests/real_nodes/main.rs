//! Real kubelets with containerd and runc, on machines of a bridge of their own.
//!
//! | Module | Contents |
//! |---|---|
//! | `embedded` | a kubelet that joins `millpond up` with a token, and the pods on it |
//! | `deployed` | `millpond install controller` on a real cluster, from an image of this build |
//! | `audit` | what an API server answered to one user |
//! | `objects` | what both need |
//!
//! They need root, as all tests with machines do.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod audit;
mod deployed;
mod embedded;
mod objects;

const MILLPOND: &str = env!("CARGO_BIN_EXE_millpond");
/// What pods and nodes are waited for, and for how long at most.
const READY: &str = "--for=condition=Ready";
const PATIENCE: &str = "--timeout=180s";
