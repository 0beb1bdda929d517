//! HTTP: paths, parameters, representations, bodies. Knows nothing of objects.

pub(crate) mod body;
pub(crate) mod negotiate;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod warning;

pub use body::ApiBody;
