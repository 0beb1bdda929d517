//! Label and field selectors: parsing, checking and matching. Pure text and values, no store.

mod field;
mod label;
mod label_parser;

pub use field::{FieldOperator, FieldRequirement, FieldSelector};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};
