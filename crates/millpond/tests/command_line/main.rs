//! The binary as people meet it: what it says when something is wrong, and the guides, run as they are written.

mod ci;
mod ci_builder;
mod convert;
mod examples;
mod guides;
mod history;
mod live;
mod mistakes;
mod plan;
mod ports;
mod schema;
