//! Lowers objects to the planner's values, each object by itself.

pub(crate) mod node;
pub(crate) mod pod;
pub(crate) mod requests;
pub(crate) mod select;
