//! Tables of cases over small clusters.

mod allowed;
mod bound;
mod consolidation;
mod eligibility;
mod fixture;
mod random;
