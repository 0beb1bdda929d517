//! Tables of cases over small clusters.

mod allowed;
mod consolidation;
mod eligibility;
mod fixture;
mod random;
