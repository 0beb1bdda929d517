//! Whether a command printed what the page shows. What no two runs have in common is made equal first.

use std::sync::LazyLock;

use regex::Regex;

/// Stands for any number of lines.
pub(super) const ELISION: &str = "...";

/// Pattern → what stands in its place. In this order.
static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rules = [
        // Ids and times.
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"\b[0-9a-f]{32}\b", "ID"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r#"(resourceVersion"?: ?"?)\d+"#, "${1}REVISION"),
        (r"\b(revision +)\d+", "${1}REVISION"),
        (r"\b(history above )\d+", "${1}REVISION"),
        (r"\b(process )\d+", "${1}PID"),
        // Names that are made: a template's hash and five random letters, from the alphabet without vowels.
        (r"-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b", "-HASH"),
        (r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-RANDOM"),
        // Places.
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r"\b10\.\d+\.\d+\.\d+", "ADDRESS"),
        // Amounts that depend on the moment.
        (r"\b\d+(\.\d+)? ([KMG]i)?B\b", "SIZE"),
        (r"\b(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)? ?m?s)\b( ago)?|\b\d+[mhd]\b( ago)?", "AGE"),
        (r"\b\d+ (records?|batch(es)?)\b", "N $1"),
        // Columns are as wide as their widest cell.
        (r"[ \t]+", " "),
    ];
    rules.iter().map(|(pattern, place)| (Regex::new(pattern).expect("a valid pattern"), *place)).collect()
});

/// Lines with everything replaced that may differ; empty ones left out.
fn normal<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let line = |line: &str| {
        let replace = |text: String, (pattern, place): &(Regex, &str)| pattern.replace_all(&text, *place).into_owned();
        RULES.iter().fold(line.to_owned(), replace).trim().to_owned()
    };
    lines.map(line).filter(|line| !line.is_empty()).collect()
}

/// Whether the whole output is as the page shows it.
pub(super) fn same(shown: &[String], printed: &str) -> bool {
    let shown = normal(shown.iter().map(String::as_str));
    let printed = normal(printed.lines());
    matches(&shown, &printed)
}

/// Whether what the page shows is there, for a command that may go on printing.
pub(super) fn begins(shown: &[String], printed: &str) -> bool {
    let mut open = shown.to_vec();
    open.push(ELISION.to_owned());
    same(&open, printed)
}

fn matches(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == ELISION => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed.first() == Some(first) && matches(rest, &printed[1..]),
    }
}

#[test]
fn what_no_two_runs_have_in_common_does_not_count() {
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(same(
        &shown("NAME READY AGE\nweb-7c5ddbdf54-x2x4z 1/1 3s"),
        "NAME                   READY   AGE\nweb-65d7bc8d9-9hq8k   1/1     1m5s\n"
    ));
    assert!(same(&shown("https://127.0.0.1:6443 by process 7"), "https://127.0.0.1:40123 by process 4711"));
    assert!(!same(&shown("web 1/1 3s"), "web 0/1 3s"));
    assert!(!same(&shown("demo-small-0"), "demo-large-0"));
    assert!(!same(&shown("a"), "a\nb"));
    assert!(same(&shown("a\n...\nd"), "a\nb\nc\nd"));
    assert!(same(&shown("...\nd"), "d"));
    assert!(!same(&shown("a\n...\nd"), "a\nb\nc"));
    assert!(begins(&shown("a"), "a\nb"));
    assert!(!begins(&shown("a\nb"), "a"));
}
