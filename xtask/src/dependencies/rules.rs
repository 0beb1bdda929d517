//! The rules of `deny.toml`, and the crates that break them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::graph::{Graph, Package};

/// The sections of `deny.toml` that need no download.
#[derive(Deserialize)]
pub(crate) struct Rules {
    pub(crate) graph: Targets,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

/// The platforms that Millpond is built for.
#[derive(Deserialize)]
pub(crate) struct Targets {
    pub(crate) targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Bans {
    wildcards: Level,
    multiple_versions: Level,
    #[serde(default)]
    deny: Vec<Named>,
    #[serde(default)]
    skip: Vec<Named>,
}

/// A crate, `NAME` or `NAME@VERSION` where the version may be a prefix such as `0.2`.
#[derive(Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    spec: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Level,
    unknown_git: Level,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Deny,
    Warn,
    Allow,
}

/// The registry that cargo uses by default, as lock files name it.
const DEFAULT_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

impl Rules {
    /// One line for each violation, in the order of crate names.
    pub(crate) fn check(&self, graph: &Graph) -> Result<Vec<String>> {
        let mut findings = Vec::new();
        for package in &graph.packages {
            let mut report = |what: String| findings.push(format!("{} {}: {what}", package.name, package.version));
            if self.bans.deny.iter().any(|named| named.matches(package)) {
                report("is banned".into());
            }
            if let Some(name) = self.wildcard(package) {
                report(format!("requires any version of `{name}`"));
            }
            if let Some(source) = self.unknown_source(package) {
                report(format!("comes from `{source}`"));
            }
            if package.source.is_some()
                && let Some(what) = self.license_violation(package)?
            {
                report(what);
            }
        }
        findings.extend(self.duplicates(graph));
        findings.sort();
        Ok(findings)
    }

    /// A dependency without a version that is no path inside the workspace.
    fn wildcard<'a>(&self, package: &'a Package) -> Option<&'a str> {
        // Only manifests of the workspace are ours to change; registries refuse wildcards anyway.
        let ours = self.bans.wildcards == Level::Deny && package.source.is_none();
        let mut requirements = package.dependencies.iter().filter(|_| ours);
        let found = requirements.find(|requirement| requirement.req == "*" && requirement.path.is_none())?;
        Some(&found.name)
    }

    fn unknown_source<'a>(&self, package: &'a Package) -> Option<&'a str> {
        let source = package.source.as_deref()?;
        let level = if source.starts_with("git+") { self.sources.unknown_git } else { self.sources.unknown_registry };
        (level == Level::Deny && source != DEFAULT_REGISTRY).then_some(source)
    }

    fn license_violation(&self, package: &Package) -> Result<Option<String>> {
        let Some(license) = &package.license else {
            return Ok(Some("states no licence".into()));
        };
        // Old manifests separate alternatives by a slash.
        let expression = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX)
            .with_context(|| format!("read the licence `{license}` of {}", package.name))?;
        let allowed = expression.evaluate(|requirement| self.licenses.allow.contains(&requirement.to_string()));
        Ok((!allowed).then(|| format!("its licence `{license}` is not allowed")))
    }

    /// Crates with several versions in the graph, besides those that `skip` names.
    fn duplicates(&self, graph: &Graph) -> Vec<String> {
        if self.bans.multiple_versions != Level::Deny {
            return Vec::new();
        }
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for package in &graph.packages {
            if !self.bans.skip.iter().any(|named| named.matches(package)) {
                versions.entry(&package.name).or_default().push(&package.version);
            }
        }
        let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
        several.map(|(name, versions)| format!("{name}: is there in versions {}", versions.join(", "))).collect()
    }
}

impl Named {
    fn matches(&self, package: &Package) -> bool {
        let Some((name, version)) = self.spec.split_once('@') else { return self.spec == package.name };
        let rest = package.version.strip_prefix(version);
        name == package.name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Requirement;
    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]
        [bans]
        wildcards = "deny"
        multiple-versions = "deny"
        deny = [{ crate = "openssl-sys" }]
        skip = [{ crate = "syn@2" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    fn package(name: &str, version: &str, license: &str) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            license: Some(license.into()),
            source: Some(DEFAULT_REGISTRY.into()),
            dependencies: Vec::new(),
        }
    }

    fn check(packages: &[Package]) -> Vec<String> {
        let rules: Rules = toml::from_str(RULES).unwrap();
        rules.check(&Graph { packages: packages.to_vec() }).unwrap()
    }

    #[test]
    fn a_clean_graph_has_no_findings() {
        let packages = [
            package("syn", "2.0.1", "MIT OR Apache-2.0"),
            package("syn", "3.0.0", "MIT/Apache-2.0"),
            package("wasi", "0.1.0", "Apache-2.0 WITH LLVM-exception"),
            package("dual", "1.0.0", "GPL-3.0-only OR MIT"),
        ];
        assert_eq!(check(&packages), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let mut foreign = package("foreign", "1.0.0", "MIT");
        foreign.source = Some("git+https://example.com/foreign".into());
        let mut ours = package("ours", "1.0.0", "MIT");
        ours.source = None;
        ours.dependencies = vec![Requirement { name: "any".into(), req: "*".into(), path: None }];
        let mut bare = package("bare", "1.0.0", "");
        bare.license = None;
        let packages = [
            package("openssl-sys", "0.9.1", "MIT"),
            package("copyleft", "1.0.0", "GPL-3.0-only AND MIT"),
            package("twice", "1.0.0", "MIT"),
            package("twice", "2.0.0", "MIT"),
            // `syn@2` names the versions 2.x, not 20.x.
            package("syn", "20.0.0", "MIT"),
            package("syn", "3.0.0", "MIT"),
            foreign,
            ours,
            bare,
        ];
        assert_eq!(
            check(&packages),
            [
                "bare 1.0.0: states no licence",
                "copyleft 1.0.0: its licence `GPL-3.0-only AND MIT` is not allowed",
                "foreign 1.0.0: comes from `git+https://example.com/foreign`",
                "openssl-sys 0.9.1: is banned",
                "ours 1.0.0: requires any version of `any`",
                "syn: is there in versions 20.0.0, 3.0.0",
                "twice: is there in versions 1.0.0, 2.0.0",
            ]
        );
    }
}
