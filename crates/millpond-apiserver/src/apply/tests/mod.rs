//! Tests of the whole room.

mod laws;
mod pieces;
mod real;
mod recording;
mod replay;
mod schema;
