//! Reasons of conditions and events: the code writes those of the table in `millpond-api`, and the table has no other.
//!
//! Reasons stand in the code as literals, in the forms of [`FORMS`], or in functions that name the variants of an enum
//! ([`NAMING_FILES`]). Stand-ins write the reasons of the parts that they stand in for, so their crates are not read.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use super::{Finding, SourceFile, Tree};

/// The folder of the table.
const TABLE: &str = "crates/millpond-api/src/reasons";

/// A row of the table: `info("Name"` or `act("Name"`, also over two lines.
const ROW: &str = r#"\b(?:info|act)\(\s*"(\w+)""#;

/// Crates whose reasons are their own.
const CRATES: &[&str] = &["millpond-controllers", "millpond-hosts", "millpond-gpu", "millpond-ci", "millpond-agent"];

/// How a reason is written in place.
const FORMS: &[&str] = &[
    // A field of an event, or of a value that becomes a condition.
    r#"\breason:\s*"([A-Z]\w+)""#,
    r#"\blet reason = "([A-Z]\w+)";"#,
    // Helpers that make the reason of an event.
    r#"\b(?:voice|event|event_reason|warning|normal)!?\(\s*(?:[A-Z_]+,\s*)?"([A-Z]\w+)""#,
    r#"\brecord\(\s*[^,()]+,\s*"([A-Z]\w+)""#,
    // Conditions.
    r#"\bCondition::(?:fails|unknown)\(\s*[^,]+,\s*"([A-Z]\w+)""#,
    r#"\bCondition::new\(\s*[^,]+,\s*[^,]+,\s*"([A-Z]\w+)""#,
    r#"\bBlocked::new\(\s*"([A-Z]\w+)""#,
    // What is still missing, with its message.
    r#"\bSome\(\(\s*"([A-Z]\w+)","#,
];

/// Files that name the variants of an enum (`Self::AtLimit => "AtLimit"`) or hold constants, all of them reasons.
const NAMING_FILES: &[&str] = &[
    "crates/millpond-ci/src/view/reasons.rs",
    "crates/millpond-plan/src/gpu.rs",
    "crates/millpond-vsphere/src/error.rs",
];

/// Files with literals of these forms that no object gets, each with the reason.
const NOT_WRITTEN: &[(&str, &str)] =
    &[("crates/millpond-hosts/src/report.rs", "what `millpond explain` prints of hosts")];

/// An arm of such a function.
const ARM: &str = r#"=> "([A-Z]\w+)","#;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let rows = rows(tree);
    let mut findings: Vec<_> = tree.rust().flat_map(|file| check_file(file, &rows)).collect();
    for path in NAMING_FILES {
        if !tree.files.iter().any(|file| file.path == Path::new(path)) {
            findings
                .push(Finding::file(*path, "is expected to name reasons, and is not there: correct `tidy/reasons.rs`"));
        }
    }
    let code: Vec<&str> = tree
        .rust()
        .filter(|file| file.path.starts_with("crates") && !file.path.starts_with(TABLE) && !is_test(&file.path))
        .map(|file| product_code(&file.text))
        .collect();
    for row in &rows {
        let literal = format!("\"{row}\"");
        if !code.iter().any(|text| text.contains(&literal)) {
            findings.push(Finding::file(TABLE, format!("`{row}` is in the table, and no code writes it")));
        }
    }
    findings
}

/// The names in the table.
fn rows(tree: &Tree) -> BTreeSet<String> {
    let row = Regex::new(ROW).expect("a constant expression");
    let files = tree.files.iter().filter(|file| file.path.starts_with(TABLE));
    files.flat_map(|file| captures(&row, &file.text)).map(|(_, name)| name).collect()
}

fn check_file(file: &SourceFile, rows: &BTreeSet<String>) -> Vec<Finding> {
    if is_test(&file.path) || NOT_WRITTEN.iter().any(|(path, _)| file.path == Path::new(path)) {
        return Vec::new();
    }
    let forms = if NAMING_FILES.iter().any(|path| file.path == Path::new(path)) {
        &[ARM][..]
    } else if CRATES.iter().any(|name| file.path.starts_with(Path::new("crates").join(name).join("src"))) {
        FORMS
    } else {
        return Vec::new();
    };
    let code = product_code(&file.text);
    let mut findings = Vec::new();
    for form in forms {
        let form = Regex::new(form).expect("a constant expression");
        for (line, name) in captures(&form, code) {
            if !rows.contains(&name) {
                findings.push(Finding::line(
                    &file.path,
                    line,
                    format!("`{name}` is a reason without a row in {TABLE}"),
                ));
            }
        }
    }
    findings
}

/// What an expression finds, each with its line.
fn captures(expression: &Regex, text: &str) -> Vec<(usize, String)> {
    let line = |end: usize| 1 + text[..end].matches('\n').count();
    expression
        .captures_iter(text)
        .map(|found| (line(found.get(1).map_or(0, |it| it.end())), found[1].to_owned()))
        .collect()
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
}

/// A file without the tests at its end.
fn product_code(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let rows = ["Launched".to_owned()].into();
        let file = SourceFile { path: path.into(), text: text.into() };
        check_file(&file, &rows).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_reason_without_a_row_is_found() {
        let lines = [
            r#"const A: EventReason = EventReason { action: "Launch", reason: "Odd", warning: true };"#,
            r#"voice!(B, "Odd", true);"#,
            r#"const C: Voice = voice("Odd");"#,
            r#"stock.record(machine, "Odd", false, note);"#,
            r#"Condition::fails(conditions::READY, "Odd", message)"#,
            r#"Condition::new(READY, TRUE, "Odd", message)"#,
            r#"return Some(("Odd", "the node is odd".to_owned()));"#,
        ];
        for line in lines {
            let message =
                "crates/millpond-hosts/src/a.rs:1: `Odd` is a reason without a row in crates/millpond-api/src/reasons";
            assert_eq!(found("crates/millpond-hosts/src/a.rs", line), [message], "{line}");
            assert_eq!(found("crates/millpond-hosts/src/a.rs", &line.replace("Odd", "Launched")), [""; 0]);
            assert_eq!(found("crates/millpond-sim/src/a.rs", line), [""; 0], "stand-ins have reasons of others");
            assert_eq!(found("crates/millpond-hosts/src/a/tests.rs", line), [""; 0]);
        }
        assert_eq!(found("crates/millpond-ci/src/view/reasons.rs", "Self::Odd => \"Odd\",\n").len(), 1);
    }

    #[test]
    fn tests_at_the_end_of_a_file_may_invent_reasons() {
        let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    const A: V = V { reason: \"Odd\" };\n}\n";
        assert_eq!(found("crates/millpond-ci/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn rows_are_read_over_line_ends() {
        let row = Regex::new(ROW).unwrap();
        let names: Vec<_> =
            captures(&row, "info(\"A\", x)\nact(\n    \"B\",\n").into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["A", "B"]);
    }
}
