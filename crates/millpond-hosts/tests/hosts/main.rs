//! The controllers of own hosts on the embedded API, with the stand-in of Cluster API's core and agents that are played.

mod agent;
mod provider;
mod stage;
mod stories;
