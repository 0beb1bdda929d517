//! Tables of cases over small clusters.

mod allowed;
mod eligibility;
pub(super) mod fixture;
