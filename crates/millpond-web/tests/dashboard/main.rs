//! The dashboard by requests in process: over an embedded API, with a cluster that the test describes.

mod changes;
mod live;
mod login;
mod reads;
mod stage;
