//! Which crate may depend on which, and what every crate's manifest has.

use std::path::PathBuf;

use super::{Finding, Tree};
use crate::cargo::Package;

/// Each crate with the crates of ours that it may depend on. A new arrow needs
/// a record in `docs/adr/`, a new crate a line here.
const ARROWS: &[(&str, &[&str])] = &[
    ("millpond-plan", &[]),
    ("millpond-api", &[]),
    ("millpond-apiserver", &[]),
    ("millpond-runtime", &[]),
    ("millpond-state", &["millpond-plan", "millpond-api"]),
    ("millpond-providers", &["millpond-plan", "millpond-api", "millpond-runtime"]),
    (
        "millpond-controllers",
        &["millpond-plan", "millpond-api", "millpond-runtime", "millpond-state", "millpond-providers"],
    ),
    ("millpond-ci", &["millpond-plan", "millpond-api", "millpond-runtime", "millpond-providers"]),
    ("millpond-hosts", &["millpond-plan", "millpond-api", "millpond-runtime", "millpond-state", "millpond-providers"]),
    ("millpond-gpu", &["millpond-plan", "millpond-api", "millpond-runtime", "millpond-state", "millpond-vsphere"]),
    ("millpond-agent", &["millpond-api"]),
    ("millpond-vsphere", &[]),
    ("millpond-web", &["millpond-plan", "millpond-api", "millpond-state"]),
    ("millpond-sim", ROOMS),
    ("millpond", EVERYTHING),
    ("millpond-bench", ROOMS_AND_SIM),
    // Tools: nothing that ships depends on them.
    ("millpond-testkit", &[]),
    ("xtask", &["millpond-api", "millpond-apiserver", TESTKIT]),
];

/// The crates below the stand-ins.
const ROOMS: &[&str] = &[
    "millpond-plan",
    "millpond-api",
    "millpond-apiserver",
    "millpond-runtime",
    "millpond-state",
    "millpond-providers",
    "millpond-controllers",
    "millpond-hosts",
    "millpond-gpu",
    "millpond-ci",
    "millpond-agent",
    "millpond-vsphere",
    "millpond-web",
];

const ROOMS_AND_SIM: &[&str] = &[
    "millpond-plan",
    "millpond-api",
    "millpond-apiserver",
    "millpond-runtime",
    "millpond-state",
    "millpond-providers",
    "millpond-controllers",
    "millpond-hosts",
    "millpond-gpu",
    "millpond-ci",
    "millpond-agent",
    "millpond-vsphere",
    "millpond-web",
    "millpond-sim",
];

/// All of them, workloads to measure with included.
const EVERYTHING: &[&str] = &[
    "millpond-plan",
    "millpond-api",
    "millpond-apiserver",
    "millpond-runtime",
    "millpond-state",
    "millpond-providers",
    "millpond-controllers",
    "millpond-hosts",
    "millpond-gpu",
    "millpond-ci",
    "millpond-agent",
    "millpond-vsphere",
    "millpond-web",
    "millpond-sim",
    "millpond-bench",
];

const TESTKIT: &str = "millpond-testkit";
/// The tests of any crate may start servers.
const SERVERS: &[&str] = &[TESTKIT, "millpond-apiserver"];
/// The tests of a dialect may run beside the other controllers and the stand-ins.
const STAGE: &[&str] = &["millpond-controllers", "millpond-sim"];
const DIALECTS: &[&str] = &["millpond-hosts", "millpond-gpu", "millpond-ci"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.metadata.packages {
        let manifest = tree.relative(&package.manifest_path);
        findings.extend(check_arrows(package, &manifest));
        let text = tree.files.iter().find(|file| file.path == manifest).map_or("", |file| &file.text);
        if !text.contains("[lints]\nworkspace = true") {
            findings.push(Finding::file(manifest, "does not take the lints of the workspace"));
        }
    }
    findings
}

fn check_arrows(package: &Package, manifest: &PathBuf) -> Vec<Finding> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        return vec![Finding::file(manifest, "a crate that the table of arrows does not know")];
    };
    let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    let refused = ours.filter(|dependency| {
        // A crate's own tests may switch on its features by way of itself.
        let for_tests = dependency.kind.as_deref() == Some("dev")
            && (SERVERS.contains(&dependency.name.as_str())
                || dependency.name == package.name
                || (DIALECTS.contains(&package.name.as_str()) && STAGE.contains(&dependency.name.as_str())));
        !for_tests && !allowed.contains(&dependency.name.as_str())
    });
    refused
        .map(|dependency| {
            let (name, other) = (&package.name, &dependency.name);
            Finding::file(
                manifest,
                format!("`{name}` may not depend on `{other}`; a new arrow needs a record in docs/adr"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Dependency;

    fn findings(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).into(),
                path: name.starts_with("millpond").then(PathBuf::new),
                kind: kind.map(Into::into),
            })
            .collect();
        let (name, version) = (name.into(), String::new());
        let package = Package { name, version, manifest_path: PathBuf::new(), dependencies, targets: Vec::new() };
        check_arrows(&package, &PathBuf::from("Cargo.toml")).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_point_down_only() {
        assert_eq!(findings("millpond-sim", &[("millpond-apiserver", None), ("serde", None)]), [""; 0]);
        assert_eq!(
            findings("millpond-apiserver", &[("millpond-sim", None)]),
            [
                "Cargo.toml: `millpond-apiserver` may not depend on `millpond-sim`; a new arrow needs a record in docs/adr"
            ]
        );
    }

    #[test]
    fn only_tests_may_use_the_testkit() {
        assert_eq!(findings("millpond-apiserver", &[("millpond-testkit", Some("dev"))]), [""; 0]);
        assert_eq!(findings("millpond-apiserver", &[("millpond-testkit", None)]).len(), 1);
        assert_eq!(findings("millpond-plan", &[("millpond-api", Some("dev"))]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_line_is_found() {
        assert_eq!(findings("millpond-new", &[]), ["Cargo.toml: a crate that the table of arrows does not know"]);
    }
}
