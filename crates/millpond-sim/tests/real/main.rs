//! Stand-ins compared with the real parts: the same scenario on a real API server, once with
//! kube-scheduler and kube-controller-manager, once with stand-ins.

mod controllers;
mod party;
mod scheduler;
