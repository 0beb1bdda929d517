//! Panics of controllers: reported with the controller and its key, counted, and never dropped with a task.
//!
//! The counts belong to the process, as its panic hook does: controllers of several clusters in one process add up.

use std::any::Any;
use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::meta::Key;

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// How often each controller has panicked.
pub fn counts() -> BTreeMap<&'static str, u64> {
    COUNTS.lock().clone()
}

/// Reports a panic of a controller; gives its message.
pub(crate) fn report(controller: &'static str, key: Option<&Key>, panic: &(dyn Any + Send)) -> String {
    let message = message(panic);
    match key {
        Some(key) => tracing::error!(controller, %key, panic = message, "a controller panicked, will try again"),
        None => tracing::error!(controller, panic = message, "a controller panicked"),
    }
    *COUNTS.lock().entry(controller).or_default() += 1;
    message
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
