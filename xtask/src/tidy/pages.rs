//! Pages of `docs/`: the index of decisions, links, and the paths that the map of the code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::{Finding, SourceFile, Tree};

/// The decisions and their index.
const DECISIONS: &str = "docs/adr";
const INDEX: &str = "docs/adr/README.md";
/// The page that names modules.
const MAP: &str = "docs/ARCHITECTURE.md";
/// `solve/mod.rs`, `market.rs` or `solve/`.
const FILE_OR_FOLDER: &str = r"`((?:[\w.-]+/)*[\w.-]+(?:\.rs|/))`";
/// `solve/mod.rs`: decisions speak of other folders, too.
const FILE_IN_FOLDER: &str = r"`((?:[\w.-]+/)+[\w.-]+\.rs)`";
/// The page that leads to every guide.
const ENTRY: &str = "README.md";
const GUIDES: &str = "docs/guides";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let pages: Vec<_> = tree.files.iter().filter(|file| file.path.extension().is_some_and(|it| it == "md")).collect();
    let paths: BTreeSet<&Path> = tree.files.iter().map(|file| file.path.as_path()).collect();
    let page = |name: &str| pages.iter().find(|file| file.path == Path::new(name)).map_or("", |file| &file.text);
    let decisions: Vec<_> = pages.iter().copied().filter(|file| file.path.starts_with(DECISIONS)).collect();
    let mut findings = check_index(page(INDEX), &decisions);
    let map = pages.iter().filter(|file| file.path == Path::new(MAP));
    findings.extend(map.flat_map(|file| check_named(file, FILE_OR_FOLDER, &paths)));
    findings.extend(decisions.iter().flat_map(|file| check_named(file, FILE_IN_FOLDER, &paths)));
    findings.extend(pages.iter().flat_map(|file| check_links(file, &paths)));
    for guide in paths.iter().filter(|path| path.starts_with(GUIDES)) {
        if !page(ENTRY).contains(&*guide.to_string_lossy()) {
            findings.push(Finding::file(*guide, format!("{ENTRY} does not lead to this guide")));
        }
    }
    findings
}

/// Every decision has a line with its title, and a number that no decision has is named.
fn check_index(index: &str, decisions: &[&SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut numbers = BTreeMap::new();
    for decision in decisions {
        let Some(name) = decision.path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(number) = name.split('-').next().and_then(|number| number.parse::<u32>().ok()) else { continue };
        if let Some(other) = numbers.insert(number, name) {
            findings.push(Finding::file(&decision.path, format!("has the number of {other}")));
        }
        let title = decision.text.lines().next().unwrap_or_default();
        let Some(title) = title.strip_prefix(&format!("# {number}. ")) else {
            findings.push(Finding::line(&decision.path, 1, format!("does not open with `# {number}. Title`")));
            continue;
        };
        if !index.contains(&format!("| [{number}]({name}) | {title} |")) {
            findings.push(Finding::file(INDEX, format!("has no row `| [{number}]({name}) | {title} |`")));
        }
    }
    let last = numbers.keys().next_back().copied().unwrap_or_default();
    let unused = index.split_once("not used: ").and_then(|(_, rest)| rest.split('.').next()).unwrap_or_default();
    let unused: BTreeSet<u32> = unused.split(", ").filter_map(|number| number.parse().ok()).collect();
    let missing = (1..=last).filter(|number| !numbers.contains_key(number) && !unused.contains(number));
    findings.extend(missing.map(|number| {
        Finding::file(INDEX, format!("does not say that number {number} is not used (`not used: 1, 2.`)"))
    }));
    findings
}

/// Files and folders that a page names in backticks exist in some crate.
fn check_named(page: &SourceFile, pattern: &str, paths: &BTreeSet<&Path>) -> Vec<Finding> {
    let pattern = Regex::new(pattern).expect("a constant expression");
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.text.lines()) {
        for named in pattern.captures_iter(line).map(|found| found.extract::<1>().1[0]) {
            let tail = format!("/{named}");
            let is_there = paths.iter().any(|path| format!("/{}", path.display()).contains(&tail));
            if !is_there && !named.contains("NAME") {
                findings.push(Finding::line(&page.path, number, format!("names `{named}`, which no crate has")));
            }
        }
    }
    findings
}

/// Links to files of the tree lead somewhere.
fn check_links(page: &SourceFile, paths: &BTreeSet<&Path>) -> Vec<Finding> {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("a constant expression");
    let mut findings = Vec::new();
    let folder = page.path.parent().unwrap_or(Path::new(""));
    for (number, line) in (1..).zip(page.text.lines()) {
        for found in link.captures_iter(line) {
            let target = found[1].split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let target = plain(&folder.join(target));
            if !paths.iter().any(|path| path.starts_with(&target)) {
                findings.push(Finding::line(
                    &page.path,
                    number,
                    format!("links to `{}`, which is not there", &found[1]),
                ));
            }
        }
    }
    findings
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn decisions_are_in_the_index_without_a_gap() {
        let (first, third) = (file("docs/adr/0001-a.md", "# 1. Bytes\n"), file("docs/adr/0003-c.md", "# 3. Log\n"));
        let both = [&first, &third];
        let index = "Numbers that are not used: 2.\n| [1](0001-a.md) | Bytes |\n| [3](0003-c.md) | Log |\n";
        assert_eq!(shown(&check_index(index, &both)), [""; 0]);
        assert_eq!(
            shown(&check_index("| [1](0001-a.md) | Bytes |\n| [3](0003-c.md) | Trees |\n", &both)),
            [
                "docs/adr/README.md: has no row `| [3](0003-c.md) | Log |`",
                "docs/adr/README.md: does not say that number 2 is not used (`not used: 1, 2.`)"
            ]
        );
        let odd = file("docs/adr/0001-b.md", "# Trees\n");
        assert_eq!(
            shown(&check_index(index, &[&first, &odd])),
            [
                "docs/adr/0001-b.md: has the number of 0001-a.md",
                "docs/adr/0001-b.md:1: does not open with `# 1. Title`"
            ]
        );
    }

    #[test]
    fn the_map_names_what_is_there() {
        let paths = [Path::new("crates/millpond-plan/src/solve/mod.rs"), Path::new("crates/a/src/deep/b.rs")].into();
        let map =
            "see `solve/`, `deep/b.rs` and `millpond-plan/src/solve/`\nnot `deep/c.rs` or `gone/`; `NAME.rs` is any\n";
        assert_eq!(
            shown(&check_named(&file(MAP, map), FILE_OR_FOLDER, &paths)),
            [
                "docs/ARCHITECTURE.md:2: names `deep/c.rs`, which no crate has",
                "docs/ARCHITECTURE.md:2: names `gone/`, which no crate has"
            ]
        );
        assert_eq!(shown(&check_named(&file("docs/adr/1.md", map), FILE_IN_FOLDER, &paths)).len(), 1);
    }

    #[test]
    fn links_lead_somewhere() {
        let paths = [Path::new("README.md"), Path::new("docs/guides/a.md")].into();
        let page = "[a](a.md#part) [b](../../README.md) [c](https://example.org) [d](#here)\n[e](b.md)\n";
        assert_eq!(
            shown(&check_links(&file("docs/guides/a.md", page), &paths)),
            ["docs/guides/a.md:2: links to `b.md`, which is not there"]
        );
        assert_eq!(shown(&check_links(&file("docs/x.md", "[g](guides)"), &paths)), [""; 0]);
    }
}
