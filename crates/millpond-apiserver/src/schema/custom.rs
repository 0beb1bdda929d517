//! Schemas of custom resources: parsed from a CRD, then used to prune, default and validate.

/// Value validation of one schema node.
#[derive(Debug, Clone, Default)]
pub struct Rules {}
