//! Stand-ins on the embedded API, in process and under virtual time.

mod disruption;
mod guide;
mod kubelets;
mod pond;
mod quiet;
mod scheduling;
mod workloads;
