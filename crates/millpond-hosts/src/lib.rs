//! Own hosts as machines of Cluster API: hosts of one stock are given to the machines of many pools.
//!
//! ```text
//!   agents ─facts, plan, Lease─▶ ByoHost ─▶ hosts: labels, state, health ─┐
//!                                                                          ▼
//!   Machine ─▶ ByoMachine ─▶ machines: what it needs ─▶ waiting ─▶ assign: all waiting machines × all free hosts
//!                  ▲                                                       │ intent, then claim by compare-and-swap
//!                  └── node, addresses, providerID ◀── agent joins ◀───────┘
//! ```
//!
//! The matcher itself is `millpond_plan::matching`. `inventory` and `state` turn objects into its input and are pure, as
//! is `explain`; the controllers act on what it says. A claim names the machine's UID and an epoch that is never used
//! twice; a host is free again only after its agent has reset it. The agent is `millpond-agent`; Cluster API's core, or
//! its stand-in, makes ByoMachines and deletes them.

pub mod access;
pub mod approval;
mod assign;
pub mod bootstrap;
pub mod capacity;
pub mod clusters;
pub mod explain;
pub mod heartbeats;
pub mod hosts;
pub mod installer;
pub mod inventory;
mod join;
pub mod kinds;
mod machines;
mod nodes;
pub mod provider;
pub mod release;
pub mod report;
pub mod rights;
pub mod run;
mod secrets;
pub mod state;
pub mod stock;
mod text;
pub mod token;
pub mod world;
