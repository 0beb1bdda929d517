//! The simulated cloud under faults.
