//! The wide set: every conformance spec that needs no container.
//!
//! The list was made by running them all against kube-apiserver; a spec that
//! passes there passes without containers. It lies beside the pins of the
//! suite, since another version has other specs.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Where the list lies in the tree.
const LIST: &str = "tests/realcluster/conformance.txt";

/// Between a name and the reason why the embedded API does not take part.
const REASON: &str = " # ";

/// The specs of the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wide {
    /// Specs for both servers.
    pub(super) common: Vec<String>,
    /// Specs for the real server only, each with the reason.
    pub(super) real_only: Vec<(String, String)>,
}

impl Wide {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("read `{LIST}`"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut wide = Self::default();
        for line in text.lines().filter(|line| line.starts_with('[')) {
            match line.split_once(REASON) {
                Some((name, reason)) => wide.real_only.push((name.trim().into(), reason.trim().into())),
                None => wide.common.push(line.trim().into()),
            }
        }
        wide
    }

    /// Fails if a name of the list is none of the suite's.
    pub(super) fn ensure_known(&self, known: &[String]) -> Result<()> {
        let listed = self.common.iter().chain(self.real_only.iter().map(|(name, _)| name));
        let unknown: Vec<_> = listed.filter(|name| !known.contains(name)).map(String::as_str).collect();
        if !unknown.is_empty() {
            bail!("`{LIST}` names specs that the suite does not have:\n{}", unknown.join("\n"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_names_and_reasons() {
        let text = "# A comment.\n\n[sig-a] One [Conformance]\n[sig-b] Two [Conformance] # no webhooks\n";
        let wide = Wide::parse(text);
        assert_eq!(wide.common, ["[sig-a] One [Conformance]"]);
        assert_eq!(wide.real_only, [("[sig-b] Two [Conformance]".into(), "no webhooks".into())]);
        let error = wide.ensure_known(&["[sig-a] One [Conformance]".into()]).unwrap_err().to_string();
        assert!(error.ends_with("\n[sig-b] Two [Conformance]"), "{error}");
    }
}
