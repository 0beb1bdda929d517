//! Tables of cases over small clusters.

mod allowed;
mod bound;
mod buffers;
mod consolidation;
mod domains;
mod eligibility;
mod fixture;
mod random;
mod scheduling_order;
