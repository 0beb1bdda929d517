//! Words: the names of files, and what comments and pages say. `docs/GLOSSARY.md` lists what is not used.

use std::path::Path;

use regex::{Regex, RegexBuilder};

use super::{Finding, SourceFile, Tree};

const GLOSSARY: &str = "docs/GLOSSARY.md";
/// Sections of the glossary: the words in backticks in the first column are refused.
const WORDS: &str = "## Words that are not used";
const NAMES: &str = "## Names of files and modules that are not used";

/// Files that may use a refused word, each with the reason.
const MAY_USE: &[(&str, &str)] = &[
    (GLOSSARY, "lists them"),
    ("xtask/src/tidy/words.rs", "tests what is found"),
    ("docs/conformance.md", "quotes a name of another project's test"),
    ("docs/reference/kinds.md", "is about the user `nobody`"),
];

/// Files and folders that may have a refused name, each with the reason.
const MAY_BE_CALLED: &[(&str, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let glossary = tree.files.iter().find(|file| file.path == Path::new(GLOSSARY)).map_or("", |file| &file.text);
    let (words, names) = (refused(glossary, WORDS), refused(glossary, NAMES));
    if words.is_empty() || names.is_empty() {
        return vec![Finding::file(GLOSSARY, format!("has no `{WORDS}` or no `{NAMES}`"))];
    }
    let text = any_of(&words);
    let pages = tree.files.iter().filter(|file| file.path.extension().is_some_and(|it| it == "md"));
    let mut findings: Vec<_> = tree.rust().chain(pages).flat_map(|file| check_text(file, &text)).collect();
    findings.extend(tree.rust().filter_map(|file| check_name(&file.path, &names)));
    for (path, _) in MAY_USE.iter().chain(MAY_BE_CALLED) {
        if !tree.files.iter().any(|file| file.path == Path::new(path)) {
            findings.push(Finding::file(*path, "stands in a list of `tidy/words.rs`, and is not there"));
        }
    }
    findings
}

/// The words in backticks in the first column of a section's table.
fn refused(glossary: &str, section: &str) -> Vec<String> {
    let Some((_, rest)) = glossary.split_once(&format!("{section}\n")) else { return Vec::new() };
    let table = rest.split("\n## ").next().unwrap_or_default();
    let first_cells = table.lines().filter(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

fn any_of(words: &[String]) -> Regex {
    let words: Vec<_> = words.iter().map(|word| regex::escape(word)).collect();
    let pattern = format!(r"\b(?:{})\b", words.join("|"));
    RegexBuilder::new(&pattern).case_insensitive(true).build().expect("words make an expression")
}

/// Comments of a Rust file, the lines of a page.
fn check_text(file: &SourceFile, words: &Regex) -> Vec<Finding> {
    if MAY_USE.iter().any(|(path, _)| file.path == Path::new(path)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        let text = if file.is_rust() { comment(line) } else { line };
        if let Some(found) = words.find(text) {
            let what = format!("`{}`: name the actor ({GLOSSARY})", found.as_str());
            findings.push(Finding::line(&file.path, number, what));
        }
    }
    findings
}

/// What stands behind `//`, unless that is within a text such as an address.
fn comment(line: &str) -> &str {
    match line.find("//") {
        Some(at) if line[..at].matches('"').count() % 2 == 0 => &line[at..],
        _ => "",
    }
}

fn check_name(path: &Path, names: &[String]) -> Option<Finding> {
    let parts = path.components().filter_map(|part| part.as_os_str().to_str());
    let name = parts.map(|part| part.trim_end_matches(".rs")).find(|part| names.iter().any(|name| name == part))?;
    let is_listed = MAY_BE_CALLED.iter().any(|(listed, _)| path.starts_with(listed));
    (!is_listed).then(|| Finding::file(path, format!("`{name}` says nothing of what is in it ({GLOSSARY})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "## Words that are not used\n\n| Not | But |\n|---|---|\n| `somebody`, `nobody` | `who` |\n| room | x |\n\n\
        ## Names of files and modules that are not used\n\n| Not | But |\n|---|---|\n| `think` | `evaluate` |\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile { path: path.into(), text: text.into() };
        check_text(&file, &any_of(&refused(PAGE, WORDS))).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_glossary_says_what_is_refused() {
        assert_eq!(refused(PAGE, WORDS), ["somebody", "nobody"]);
        assert_eq!(refused(PAGE, NAMES), ["think"]);
        assert_eq!(refused(PAGE, "## Other"), [""; 0]);
    }

    #[test]
    fn comments_and_pages_name_the_actor() {
        let message = "a.rs:2: `Nobody`: name the actor (docs/GLOSSARY.md)";
        assert_eq!(found("a.rs", "let a = 1;\nlet b = 2; // Nobody reads it.\n"), [message]);
        assert_eq!(found("a.rs", "let nobody = \"https://nobody.org\";\n/// No bodysomebody.\n"), [""; 0]);
        assert_eq!(found("docs/a.md", "Somebody waits.\n").len(), 1);
        assert_eq!(found(GLOSSARY, "Somebody waits.\n"), [""; 0]);
    }

    #[test]
    fn files_and_folders_have_names_that_say_something() {
        let names = ["think".to_owned()];
        let shown = |path: &str| check_name(Path::new(path), &names).map(|it| it.to_string());
        assert_eq!(
            shown("crates/a/src/think.rs").as_deref(),
            Some("crates/a/src/think.rs: `think` says nothing of what is in it (docs/GLOSSARY.md)")
        );
        assert!(shown("crates/a/src/think/mod.rs").is_some());
        assert_eq!(shown("crates/a/src/rethink.rs"), None);
    }
}
