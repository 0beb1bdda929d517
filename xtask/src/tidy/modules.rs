//! Rust files: each opens with its docs, none is dead, few are long.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use regex::Regex;

use super::{Finding, SourceFile, Tree};

/// A file that is longer is two files, or stands in [`LONG_FILES`].
const LINE_LIMIT: usize = 900;

/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<_> = tree.rust().flat_map(check_file).collect();
    let roots: Vec<_> = tree
        .metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets)
        .map(|target| tree.relative(&target.src_path))
        .collect();
    let sources: HashMap<_, _> = tree.rust().map(|file| (file.path.as_path(), file.text.as_str())).collect();
    let reached = reach(&roots, &sources);
    let dead = sources.keys().filter(|path| !reached.contains(**path));
    findings.extend(dead.map(|path| Finding::file(*path, "no crate has this file as a module")));
    for (path, _) in LONG_FILES {
        let text = sources.get(Path::new(path));
        if text.is_none_or(|text| text.lines().count() <= LINE_LIMIT) {
            findings.push(Finding::file(*path, "stands in the list of long files, and is none"));
        }
    }
    findings
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = file.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if !first.starts_with("//!") {
        findings.push(Finding::file(&file.path, "does not open with `//!`: what does this module hold?"));
    }
    let lines = file.text.lines().count();
    let listed = LONG_FILES.iter().any(|(path, _)| Path::new(path) == file.path);
    if lines > LINE_LIMIT && !listed {
        findings.push(Finding::file(&file.path, format!("has {lines} lines; the limit is {LINE_LIMIT}")));
    }
    findings
}

/// The files that are reached from the roots of the crates through `mod name;`,
/// `#[path]` and `include!`.
fn reach<'a>(roots: &[PathBuf], sources: &HashMap<&'a Path, &'a str>) -> BTreeSet<PathBuf> {
    let declaration = Regex::new(
        r#"(?m)(?:#\[path\s*=\s*"(?<path>[^"]+)"\]\s*)?^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(?<name>\w+)\s*;|include!\(\s*"(?<included>[^"]+)"\s*\)"#,
    )
    .expect("a constant expression");
    let mut reached: BTreeSet<PathBuf> = BTreeSet::new();
    let mut waiting: Vec<(PathBuf, bool)> = roots.iter().map(|root| (root.clone(), true)).collect();
    while let Some((path, is_root)) = waiting.pop() {
        let Some(text) = sources.get(path.as_path()) else { continue };
        if !reached.insert(path.clone()) {
            continue;
        }
        let here = path.parent().unwrap_or(Path::new("")).to_path_buf();
        // Modules of `a.rs` lie in `a/`; those of a root or `mod.rs` beside it.
        let beside = is_root || path.ends_with("mod.rs");
        let below = if beside { here.clone() } else { path.with_extension("") };
        for found in declaration.captures_iter(text) {
            if let Some(file) = found.name("included").or(found.name("path")) {
                waiting.push((here.join(file.as_str()), false));
            } else {
                let name = &found["name"];
                waiting.push((below.join(format!("{name}.rs")), false));
                waiting.push((below.join(name).join("mod.rs"), false));
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_followed_and_dead_files_are_not_reached() {
        let sources = [
            ("c/src/lib.rs", "//! Docs.\nmod a;\npub(crate) mod b;\n#[cfg(test)]\nmod inline { }\n"),
            ("c/src/a.rs", "mod deep;\n"),
            ("c/src/a/deep.rs", "include!(\"table.rs\");"),
            ("c/src/a/table.rs", ""),
            ("c/src/b/mod.rs", "#[path = \"odd-name.rs\"]\nmod odd;\nmod c;"),
            ("c/src/b/odd-name.rs", ""),
            ("c/src/b/c.rs", ""),
            ("c/src/dead.rs", "mod a;"),
            ("c/src/deep.rs", ""),
        ];
        let sources: HashMap<_, _> = sources.iter().map(|(path, text)| (Path::new(*path), *text)).collect();
        let reached = reach(&["c/src/lib.rs".into()], &sources);
        let mut dead: Vec<_> = sources.keys().copied().filter(|path| !reached.contains(*path)).collect();
        dead.sort();
        assert_eq!(dead, [Path::new("c/src/dead.rs"), Path::new("c/src/deep.rs")]);
    }

    #[test]
    fn a_file_opens_with_its_docs_and_is_not_too_long() {
        let check = |text: String| check_file(&SourceFile { path: "a.rs".into(), text }).len();
        assert_eq!(check("//! Docs.\n".into()), 0);
        assert_eq!(check("use std::fs;\n".into()), 1);
        assert_eq!(check(format!("//! Docs.\n{}", "\n".repeat(LINE_LIMIT))), 1);
    }
}
