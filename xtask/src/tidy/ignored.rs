//! Tests that a plain `cargo test` leaves out: only those that the test
//! command runs in a step of its own.

use regex::Regex;

use super::{Finding, SourceFile, Tree};
use crate::test::{BROWSER_PREFIX, IGNORED_PREFIX};

/// Tests that another test runs in a process of its own, to kill it.
const CHILD_PREFIX: &str = "child_";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(check_file).collect()
}

/// An ignored test of another name would never run; a test of that name that
/// is not ignored would fail where there is no Go or no Chromium.
fn check_file(file: &SourceFile) -> Vec<Finding> {
    let attributes = Regex::new(
        r"(?m)^\s*#\[(?:tokio::)?test\b[^\]]*\](?<more>(?:\s*#\[[^\]]*\])*)\s*(?:async\s+)?fn\s+(?<name>\w+)",
    )
    .expect("a constant expression");
    let mut findings = Vec::new();
    for found in attributes.captures_iter(&file.text) {
        let name = &found["name"];
        let line = 1 + file.text[..found.get_match().end()].matches('\n').count();
        let ignored = found["more"].contains("#[ignore");
        let real = name.starts_with(IGNORED_PREFIX) || name.starts_with(BROWSER_PREFIX);
        if ignored && !real && !name.starts_with(CHILD_PREFIX) {
            let what = format!("`{name}` is ignored, and no step of `cargo xtask test` runs it");
            findings.push(Finding::line(&file.path, line, what));
        }
        if real && !ignored {
            let what = format!("`{name}` needs real parts by its name: mark it with `ignore`");
            findings.push(Finding::line(&file.path, line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_tests_are_those_of_the_real_cluster() {
        let check = |text: &str| {
            let found = check_file(&SourceFile { path: "a.rs".into(), text: text.into() });
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check("#[test]\nfn plain() {}\n"), [""; 0]);
        assert_eq!(check("#[test]\n#[ignore = \"run by another test\"]\nfn child_of_it() {}\n"), [""; 0]);
        assert_eq!(check("#[tokio::test(start_paused = true)]\n#[ignore = \"x\"]\nasync fn real_a() {}\n"), [""; 0]);
        assert_eq!(check("#[test]\n#[ignore = \"x\"]\nfn browser_shows_it() {}\n"), [""; 0]);
        assert_eq!(
            check("\n#[test]\n#[ignore]\nfn forgotten() {}\n"),
            ["a.rs:4: `forgotten` is ignored, and no step of `cargo xtask test` runs it"]
        );
        assert_eq!(
            check("#[test]\n#[ignore]\nfn slow_one() {}\n"),
            ["a.rs:3: `slow_one` is ignored, and no step of `cargo xtask test` runs it"]
        );
        assert_eq!(
            check("#[tokio::test]\nasync fn real_b() {}\n"),
            ["a.rs:2: `real_b` needs real parts by its name: mark it with `ignore`"]
        );
    }
}
