//! Who may do what, asked of this server and of the real one.

mod questions;
mod random;
mod real;
mod replay;
mod rules;
