//! Why a pod has no place, or has the one that it has.
//!
//! [`verdict`] is the short form that every plan carries for what it cannot place: for each pool the first rule
//! that leaves nothing to buy, and one sentence.

mod funnel;
mod reason;
mod verdict;
mod words;

pub use funnel::Subject;
pub use verdict::verdict;
