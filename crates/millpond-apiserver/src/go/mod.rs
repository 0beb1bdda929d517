//! Go's notations, where messages and rules of Kubernetes depend on them.
//!
//! Quoted strings, numbers and JSON as `fmt`, `strconv` and `encoding/json` print them; regular expressions,
//! durations, dates, addresses and URLs as Go's standard library parses them. Pure functions, no Kubernetes.

pub(crate) mod mail;
pub(crate) mod net;
pub(crate) mod regexp;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod url;
