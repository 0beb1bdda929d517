//! Any text: the files that every tree has, and no path of a developer's machine.

use std::path::Path;

use regex::Regex;

use super::{Finding, SourceFile, Tree};

/// Files that a newcomer looks for.
const EXPECTED: &[&str] =
    &["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "deny.toml", ".ci/run"];

/// Home folders and the like: a path that means something on one machine only.
const MACHINE_PATH: &str = r#"(?:^|[\s"'`(=:])(/(?:home|Users)/\w+/\S+|/(?:root|work|workspace)/[^\s"'`)]+)"#;

/// Files that may name one, each with the reason.
const MAY_NAME_PATHS: &[(&str, &str)] = &[("xtask/src/tidy/text.rs", "tests what is found")];

/// Where people look variables of the environment up.
const VARIABLES_PAGE: &str = "docs/reference/cli.md";

/// Variables by which one process of a test speaks to the next, only.
const INNER_VARIABLE: &str = "MILLPOND_TEST_";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let expression = Regex::new(MACHINE_PATH).expect("a constant expression");
    let mut findings: Vec<_> = tree.files.iter().flat_map(|file| check_paths(file, &expression)).collect();
    for expected in EXPECTED {
        let found = tree.files.iter().find(|file| file.path == Path::new(expected));
        if found.is_none_or(|file| file.text.trim().is_empty()) {
            findings.push(Finding::file(*expected, "is missing or empty"));
        }
    }
    let page = tree.files.iter().find(|file| file.path == Path::new(VARIABLES_PAGE)).map_or("", |file| &file.text);
    findings.extend(tree.rust().flat_map(|file| check_variables(file, page)));
    findings
}

/// Every variable that the code reads is in the reference.
fn check_variables(file: &SourceFile, page: &str) -> Vec<Finding> {
    let variable = Regex::new(r#""(MILLPOND_[A-Z_]+)""#).expect("a constant expression");
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        for found in variable.captures_iter(line).map(|found| found.extract::<1>().1[0]) {
            if !found.starts_with(INNER_VARIABLE) && !page.contains(&format!("`{found}`")) {
                findings.push(Finding::line(&file.path, number, format!("{VARIABLES_PAGE} does not name `{found}`")));
            }
        }
    }
    findings
}

fn check_paths(file: &SourceFile, expression: &Regex) -> Vec<Finding> {
    if MAY_NAME_PATHS.iter().any(|(path, _)| file.path == Path::new(path)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for found in expression.captures_iter(line) {
            let what = format!("`{}` is a path of one machine", &found[1]);
            findings.push(Finding::line(&file.path, number + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        let expression = Regex::new(MACHINE_PATH).unwrap();
        let check = |text: &str| {
            let file = SourceFile { path: "a.md".into(), text: text.into() };
            check_paths(&file, &expression).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check("see /home/ada/code/x"), ["a.md:1: `/home/ada/code/x` is a path of one machine"]);
        assert_eq!(check("\npath=\"/workspace/code\""), ["a.md:2: `/workspace/code` is a path of one machine"]);
        assert_eq!(check("/etc/kubernetes ~/.cache https://example.org/home/ada/x workspace/code"), [""; 0]);
    }

    #[test]
    fn variables_are_in_the_reference() {
        let file = SourceFile {
            path: "a.rs".into(),
            text: "env(\"MILLPOND_CACHE\");\nenv(\"MILLPOND_SECRET_WISH\");\nenv(\"MILLPOND_TEST_X\");\n".into(),
        };
        let found: Vec<_> =
            check_variables(&file, "| `MILLPOND_CACHE` | x |").iter().map(ToString::to_string).collect();
        assert_eq!(found, ["a.rs:2: docs/reference/cli.md does not name `MILLPOND_SECRET_WISH`"]);
    }
}
