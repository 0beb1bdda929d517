//! The simulated cloud as a provider: the conformance suite on it and on broken ones, faults by the seed, its file,
//! its nodes on the embedded API.

mod boot;
mod broken;
mod conformance;
mod faults;
mod file;
mod guide;
mod stage;
