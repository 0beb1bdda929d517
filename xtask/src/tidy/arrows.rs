//! Checks which crate depends on which, and the common parts of every crate's manifest.
//!
//! The table of crates in `docs/ARCHITECTURE.md` is the only list: a crate depends on exactly the crates of ours that
//! its row names. Its tests may use more ([`may_test_with`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Finding, Tree};
use crate::cargo::Package;

/// The page with the table.
const PAGE: &str = "docs/ARCHITECTURE.md";
/// The section that holds it.
const SECTION: &str = "## Crates";
/// The last cell in the row of a crate that depends on no crate of the workspace.
const NOTHING: &str = "nothing";

/// The tests of any crate may start servers.
const SERVERS: &[&str] = &["millpond-testkit", "millpond-apiserver"];
/// The tests of a dialect may run beside the other controllers and the stand-ins, and those of the stand-ins beside
/// dialects.
const STAGE: &[&str] = &["millpond-controllers", "millpond-sim"];
const DIALECTS: &[&str] = &["millpond-hosts", "millpond-gpu", "millpond-ci"];

/// Each crate with the crates of ours that it depends on.
type Arrows = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let page = tree.files.iter().find(|file| file.path == Path::new(PAGE)).map_or("", |file| &file.text);
    let arrows = read(page);
    let mut findings = Vec::new();
    for package in &tree.metadata.packages {
        let manifest = tree.relative(&package.manifest_path);
        findings.extend(check_arrows(&arrows, package, &manifest));
        let text = tree.files.iter().find(|file| file.path == manifest).map_or("", |file| &file.text);
        if !text.contains("[lints]\nworkspace = true") {
            findings.push(Finding::file(manifest, "does not take the lints of the workspace"));
        }
    }
    let gone = arrows.keys().filter(|name| !tree.metadata.packages.iter().any(|package| package.name == **name));
    findings
        .extend(gone.map(|name| Finding::file(PAGE, format!("has a row for `{name}`, and there is no such crate"))));
    findings
}

/// The rows of the table. The last cell names crates without their prefix: `plan, api`.
fn read(page: &str) -> Arrows {
    let section = page.split_once(SECTION).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut arrows = Arrows::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(name), Some(below)) = (cells.first(), cells.last()) else { continue };
        let below = below.split(',').map(str::trim).filter(|name| *name != NOTHING);
        arrows.insert(name.trim_matches('`').to_owned(), below.map(|name| format!("millpond-{name}")).collect());
    }
    arrows
}

fn check_arrows(arrows: &Arrows, package: &Package, manifest: &PathBuf) -> Vec<Finding> {
    let name = package.name.as_str();
    let Some(row) = arrows.get(name) else {
        return vec![Finding::file(manifest, format!("`{name}` has no row in the table of crates of {PAGE}"))];
    };
    let ours = || package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    let mut findings = Vec::new();
    for dependency in ours() {
        let other = dependency.name.as_str();
        let is_test = dependency.kind.as_deref() == Some("dev");
        let may = row.contains(other) || (is_test && may_test_with(arrows, name, other));
        if !may {
            let what = format!(
                "`{name}` depends on `{other}`, which its row in {PAGE} does not name; a new arrow needs a record in docs/adr"
            );
            findings.push(Finding::file(manifest, what));
        }
    }
    let depends = |other: &str| ours().any(|it| it.name == other && it.kind.as_deref() != Some("dev"));
    for other in row.iter().filter(|other| !depends(other)) {
        findings.push(Finding::file(PAGE, format!("`{name}` does not depend on `{other}`, as its row says")));
    }
    findings
}

/// Whether the tests of a crate may use another one: servers, itself with more features, all that it stands on, and
/// for a dialect the other controllers.
fn may_test_with(arrows: &Arrows, name: &str, other: &str) -> bool {
    SERVERS.contains(&other)
        || name == other
        || (DIALECTS.contains(&name) && STAGE.contains(&other))
        || (STAGE.contains(&name) && DIALECTS.contains(&other))
        || arrows.get(name).is_some_and(|row| row.iter().any(|below| below == other || stands_on(arrows, below, other)))
}

fn stands_on(arrows: &Arrows, name: &str, other: &str) -> bool {
    arrows.get(name).is_some_and(|row| row.iter().any(|below| below == other || stands_on(arrows, below, other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::Dependency;

    const TABLE: &str = "# A\n\n## Crates\n\n| Crate | Contents | Depends on |\n|---|---|---|\n\
        | `millpond-plan` | plans | nothing |\n\
        | `millpond-api` | kinds | nothing |\n\
        | `millpond-state` | `read/` and more | plan, api |\n\
        | `millpond-sim` | stand-ins | state |\n\n## Other\n\n| `millpond-odd` | x | nothing |\n";

    fn findings(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).into(),
                path: name.starts_with("millpond").then(PathBuf::new),
                kind: kind.map(Into::into),
            })
            .collect();
        let package = Package { name: name.into(), manifest_path: PathBuf::new(), dependencies, targets: Vec::new() };
        check_arrows(&read(TABLE), &package, &PathBuf::from("Cargo.toml")).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_table_is_read_from_its_section_only() {
        let arrows = read(TABLE);
        assert_eq!(
            arrows.keys().collect::<Vec<_>>(),
            ["millpond-api", "millpond-plan", "millpond-sim", "millpond-state"]
        );
        assert_eq!(arrows["millpond-state"].iter().collect::<Vec<_>>(), ["millpond-api", "millpond-plan"]);
        assert!(arrows["millpond-plan"].is_empty());
    }

    #[test]
    fn a_crate_depends_on_what_its_row_names() {
        let row = [("millpond-plan", None), ("millpond-api", None), ("serde", None)];
        assert_eq!(findings("millpond-state", &row), [""; 0]);
        assert_eq!(
            findings("millpond-plan", &[("millpond-sim", None)]),
            ["Cargo.toml: `millpond-plan` depends on `millpond-sim`, which its row in docs/ARCHITECTURE.md does not \
              name; a new arrow needs a record in docs/adr"]
        );
        assert_eq!(
            findings("millpond-state", &row[..1]),
            ["docs/ARCHITECTURE.md: `millpond-state` does not depend on `millpond-api`, as its row says"]
        );
    }

    #[test]
    fn tests_may_use_servers_and_what_is_below() {
        let dev = Some("dev");
        assert_eq!(findings("millpond-plan", &[("millpond-testkit", dev)]), [""; 0]);
        assert_eq!(findings("millpond-plan", &[("millpond-testkit", None)]).len(), 1);
        assert_eq!(findings("millpond-plan", &[("millpond-api", dev)]).len(), 1);
        assert_eq!(findings("millpond-sim", &[("millpond-state", None), ("millpond-plan", dev)]), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(
            findings("millpond-new", &[]),
            ["Cargo.toml: `millpond-new` has no row in the table of crates of docs/ARCHITECTURE.md"]
        );
    }
}
