//! The scheduler.

pub mod fit;
