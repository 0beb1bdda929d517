//! The whole of it under virtual time: embedded API, stand-ins, simulated cloud, controllers.

mod basin;
mod crash;
mod end;
mod fuse;
mod limits;
mod scale_up;
mod stock;
