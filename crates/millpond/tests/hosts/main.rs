//! Own hosts: agents as processes on machines of their own (namespaces and overlays), with stand-ins for kubelet and
//! kubeadm, against `millpond up`. The tests play the controllers where they write claims by hand.
//!
//! They need root; without it they say so and fail, as they would without `ip` or `unshare`.

#![expect(clippy::unwrap_used, reason = "what a test needs and does not get ends it")]

mod crash;
mod entry;
mod kubeadm;
mod life;
mod machines;
mod node;
mod real;
mod rights;
mod seed;
mod stage;

/// This binary plays kubelet on the machines of the tests.
#[test]
fn stand_in() {
    if millpond_testkit::machines::is_stand_in() {
        millpond_testkit::machines::kubelet().unwrap();
    }
}
