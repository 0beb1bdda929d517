//! The two lists beside the suite's pin: what the test command runs, and what
//! cannot pass.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::stack::Engine;

/// One name on each line; `#` starts a comment.
const SELECTION: &str = "tests/karpenter/selection.txt";

/// A list of [`Cannot`].
const CANNOT: &str = "tests/karpenter/cannot.yaml";

/// Names of specs.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) selection: Vec<String>,
    cannot: Vec<Cannot>,
}

/// A spec that cannot pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cannot {
    spec: String,
    /// The engines to compare.
    engines: Vec<Engine>,
    reason: String,
}

impl Lists {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("read `{name}`"));
        Self::parse(&read(SELECTION)?, &read(CANNOT)?)
    }

    fn parse(selection: &str, cannot: &str) -> Result<Self> {
        let lines = selection.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let cannot = serde_saphyr::from_str(cannot).with_context(|| format!("understand `{CANNOT}`"))?;
        Ok(Self { selection: lines.map(String::from).collect(), cannot })
    }

    /// Why the spec cannot pass with this engine, if so.
    pub(super) fn why_not(&self, engine: Engine, spec: &str) -> Option<&str> {
        let entry = self.cannot.iter().find(|entry| entry.spec == spec && entry.engines.contains(&engine))?;
        Some(entry.reason.trim())
    }

    /// Fails if a name is none of the suite's.
    pub(super) fn ensure_known(&self, known: &[String]) -> Result<()> {
        let listed = self.selection.iter().chain(self.cannot.iter().map(|entry| &entry.spec));
        let unknown: Vec<_> = listed.filter(|name| !known.contains(name)).map(String::as_str).collect();
        if !unknown.is_empty() {
            bail!("`{SELECTION}` or `{CANNOT}` name specs that the suite does not have:\n{}", unknown.join("\n"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tree;

    #[test]
    fn a_reason_holds_for_its_engines() {
        let cannot = "- {spec: B, engines: [karpenter], reason: overruns its limits}\n";
        let lists = Lists::parse("# Quick ones.\nA\n\nB\n", cannot).unwrap();
        assert_eq!(lists.selection, ["A", "B"]);
        assert_eq!(lists.why_not(Engine::Karpenter, "B"), Some("overruns its limits"));
        assert_eq!(lists.why_not(Engine::Millpond, "B"), None);
        let error = lists.ensure_known(&["A".into()]).unwrap_err().to_string();
        assert!(error.ends_with(":\nB\nB"), "{error}");
    }

    #[test]
    fn the_selection_is_large_and_can_pass() {
        let lists = Lists::read(&tree::root()).unwrap();
        let names: BTreeSet<_> = lists.selection.iter().collect();
        assert_eq!(names.len(), lists.selection.len());
        assert!(names.len() >= 40, "{}", names.len());
        let cannot: Vec<_> = names.iter().filter(|name| lists.why_not(Engine::Millpond, name).is_some()).collect();
        assert!(cannot.is_empty(), "{cannot:?}");
    }
}
