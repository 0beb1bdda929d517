//! Reasons in one word, as conditions and scripts have them.

use crate::engine::Reason;

/// The word for a reason; its sentence is its `Display`.
pub fn reason_code(reason: &Reason) -> &'static str {
    match reason {
        Reason::NoLabels => "NoLabels",
        Reason::TooManyNodes(_) => "TooManyNodes",
        Reason::UnknownLabel(_) => "UnknownLabel",
        Reason::ExceedsLimit { .. } => "ExceedsLimit",
        Reason::NotEnoughHosts => "NotEnoughHosts",
        Reason::Declined => "Declined",
        Reason::LaunchFailed => "LaunchFailed",
        Reason::AtLimit { .. } => "AtLimit",
        Reason::NoFreeHost => "NoFreeHost",
        Reason::OutOfCapacity(_) => "OutOfCapacity",
        Reason::NoUpload(_) => "NoUpload",
        Reason::MaxConcurrency(_) => "MaxConcurrency",
        Reason::PrefersProvider(_) => "PrefersProvider",
        Reason::YieldsTo(_) => "YieldsTo",
    }
}
