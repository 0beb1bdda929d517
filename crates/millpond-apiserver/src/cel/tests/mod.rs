//! Tests of the whole room.

mod fuzz;
mod limits;
mod real;
mod recording;
mod replay;
