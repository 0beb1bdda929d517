//! The store: every object in memory, every write in a durable log.

pub mod log;
