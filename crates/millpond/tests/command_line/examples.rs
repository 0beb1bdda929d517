//! The examples, each with a transcript of what `plan` and `explain` say about it.
//!
//! `examples/NAME/transcript.txt` holds commands, each after `$ `, and below each what it prints, stdout and stderr.
//! Times are not compared. `MILLPOND_BLESS=1` writes what was seen.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every folder of examples.
fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("examples")).expect("there are examples");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an example").path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    folders
}

fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    assert_eq!(words.next(), Some("millpond"), "`{command}` is a command of ours");
    let output =
        Command::new(env!("CARGO_BIN_EXE_millpond")).args(words).current_dir(root()).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let mut text = text.trim_end().to_owned();
    if let Some(code) = output.status.code().filter(|code| *code != 0) {
        _ = write!(text, "\n(exit code {code})");
    }
    masked(&text)
}

/// How long something took is different every time.
fn masked(text: &str) -> String {
    let time = Regex::new(r"\s*\b[0-9]+(\.[0-9]+)? (ms|s)\b").expect("a good pattern");
    let head = Regex::new(r" +TIME$").expect("a good pattern");
    let line = |line: &str| head.replace(&time.replace(line, " TIME"), " TIME").into_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The commands of a transcript, run anew.
fn replayed(transcript: &str) -> String {
    let commands = transcript.lines().filter_map(|line| line.strip_prefix("$ "));
    commands.map(|command| format!("$ {command}\n{}\n", run(command))).collect::<Vec<_>>().join("\n")
}

#[test]
fn examples_say_what_their_transcripts_say() {
    let bless = std::env::var_os("MILLPOND_BLESS").is_some();
    let folders = examples();
    assert!(folders.len() >= 8, "{folders:?}");
    let mut different = Vec::new();
    for folder in folders {
        let path = folder.join("transcript.txt");
        let written = std::fs::read_to_string(&path).expect("every example has a transcript");
        let seen = replayed(&written);
        assert!(seen.contains("$ millpond "), "{} does nothing", path.display());
        if seen != written {
            different.push(format!("{}:\n{seen}", path.display()));
            if bless {
                std::fs::write(&path, seen).expect("it can be written");
            }
        }
    }
    assert!(bless || different.is_empty(), "{}", different.join("\n"));
}
