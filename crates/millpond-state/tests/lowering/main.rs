//! Objects in, snapshots out: the rules of lowering, one table each.

mod files;
mod support;
