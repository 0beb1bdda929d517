//! The whole of it under virtual time: embedded API, stand-ins, simulated cloud, controllers.

mod advice;
mod basin;
mod buffers;
mod classes;
mod crash;
mod demo;
mod disruption;
mod fuse;
mod health;
mod launches;
mod leadership;
mod ledger;
mod limits;
mod node_groups;
mod panics;
mod rivalry;
mod scale_up;
mod static_pools;
mod stock;
mod termination;
mod two_controllers;
mod unreadable;
mod waves;
mod yard;
mod zones;
