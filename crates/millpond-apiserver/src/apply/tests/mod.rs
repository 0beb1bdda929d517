//! Tests of the whole room.

mod laws;
mod pieces;
mod replay;
mod schema;
