//! README and guides run as tests, so that they cannot rot.
//!
//! - A block marked `console` is a terminal. `$ command` is run by bash, in the guide's own home folder, one after the
//!   other; lines with `> ` below it continue the command. The other lines are its output, stdout and stderr, and are
//!   compared after [`compare`]'s normalising; a line `...` stands for any number of lines.
//! - `millpond up` (also as `cargo run --release -- up`) keeps running, and so does a command that a line `^C` follows.
//!   A line `^C` interrupts what was started last; lines below it are what is printed then.
//! - A block marked `yaml file=NAME` is saved under that name, for the commands that follow.
//! - `console not-run: REASON` is shown and not run.
//! - A command that fails must show its error.
//!
//! `MILLPOND_BLESS=1` writes the outputs that were seen into the guides.

mod compare;
mod parse;
mod session;

use std::path::{Path, PathBuf};

use millpond_testkit::real::{Part, Parts};

use parse::Guide;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Pages that are beside what they speak of.
const OTHERS: [&str; 2] = ["README.md", "examples/ci/README.md"];

/// The README and other pages, then every guide.
fn pages() -> Vec<(String, String)> {
    let folder = root().join("docs/guides");
    let entries = std::fs::read_dir(&folder).expect("there are guides");
    let mut names: Vec<_> =
        entries.map(|entry| format!("docs/guides/{}", entry.expect("a guide").file_name().display())).collect();
    names.sort();
    names.splice(0..0, OTHERS.map(ToOwned::to_owned));
    let read = |name: &String| std::fs::read_to_string(root().join(name)).expect("a page is text");
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

#[test]
fn guides_are_written_to_be_run() {
    let problems: Vec<_> = pages()
        .into_iter()
        .flat_map(|(name, text)| {
            Guide::parse(&text).problems.into_iter().map(move |problem| format!("{name}:{problem}"))
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
#[ignore = "needs kubectl, one of the real parts"]
fn real_guides_run_as_written() {
    let parts = Parts::ensure_each(&[Part::KUBECTL]).expect("kubectl is there");
    let kubectl = parts.path(&Part::KUBECTL).expect("kubectl has a place");
    let bless = std::env::var_os("MILLPOND_BLESS").is_some();
    let failures: Vec<_> = std::thread::scope(|scope| {
        let run = |(name, text): (String, String)| {
            let kubectl = &kubectl;
            scope.spawn(move || {
                let outcome = session::run(&Guide::parse(&text), kubectl).expect("a session starts");
                if bless {
                    std::fs::write(root().join(&name), outcome.blessed(&text)).expect("the page can be written");
                }
                outcome.failures.iter().map(|failure| format!("{name}:{failure}")).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = pages().into_iter().map(run).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the guide ran")).collect()
    });
    assert!(failures.is_empty(), "{} commands differ:\n\n{}", failures.len(), failures.join("\n\n"));
}
