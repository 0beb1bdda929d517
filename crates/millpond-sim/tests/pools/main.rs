//! The whole of it under virtual time: embedded API, stand-ins, simulated cloud, controllers.

mod advice;
mod basin;
mod crash;
mod demo;
mod disruption;
mod end;
mod fuse;
mod health;
mod limits;
mod rivalry;
mod scale_up;
mod static_pools;
mod stock;
mod unreadable;
