//! One reader with one guide: a home folder, a shell that remembers, and servers in other terminals.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use millpond_testkit::{Process, Scratch, Waited, free_port};

use super::compare::{begins, same};
use super::parse::{Action, Guide, Step};

/// Only a command that hangs takes so long.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs `$1` where the last one ended, with what it exported, and remembers both. Functions and options of the
/// shell are forgotten; no guide needs them.
const SHELL: &str = r#"
. "$SESSION/environment"
cd "$(cat "$SESSION/folder")"
eval "$1"
code=$?
export -p > "$SESSION/environment"
pwd > "$SESSION/folder"
exit $code
"#;

/// The same for a command that stays: it takes the shell's place, so that a signal reaches it.
const TERMINAL: &str = r#"
. "$SESSION/environment"
cd "$(cat "$SESSION/folder")"
eval "exec $1"
"#;

/// How a guide went.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Commands that did not do what the guide shows, each with its line.
    pub(super) failures: Vec<String>,
    /// Output in the page, as the index of its first line and its length, and what was seen instead.
    seen: Vec<(usize, usize, String)>,
}

impl Outcome {
    /// The page, with what was seen.
    pub(super) fn blessed(&self, page: &str) -> String {
        let mut lines: Vec<_> = page.lines().map(str::to_owned).collect();
        for (start, length, seen) in self.seen.iter().rev() {
            lines.splice(*start..start + length, seen.lines().map(str::to_owned));
        }
        lines.join("\n") + "\n"
    }
}

/// Does everything that the guide says.
pub(super) fn run(guide: &Guide, kubectl: &Path) -> Result<Outcome> {
    let mut session = Session::start(kubectl)?;
    let mut outcome = Outcome::default();
    for step in &guide.steps {
        let (printed, trouble) = session.take(step)?;
        if let Some(trouble) = trouble {
            outcome.failures.push(format!(
                "{}: {trouble}\n--- shown:\n{}\n--- printed:\n{printed}",
                step.line,
                step.output.join("\n")
            ));
            outcome.seen.push((step.output_start(), step.output.len(), printed));
        }
    }
    Ok(outcome)
}

struct Session {
    /// Last first: they are dropped before the folder that they write into.
    running: Vec<(Process, usize)>,
    commands: usize,
    port: u16,
    home: PathBuf,
    state: PathBuf,
    path: String,
    _scratch: Scratch,
}

impl Session {
    fn start(kubectl: &Path) -> Result<Self> {
        let scratch = Scratch::new("guide")?;
        let (home, state, bin) =
            (scratch.path().join("home"), scratch.path().join("session"), scratch.path().join("bin"));
        for folder in [&home, &state, &bin] {
            std::fs::create_dir(folder).with_context(|| format!("create `{}`", folder.display()))?;
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_millpond"), bin.join("millpond")).context("link millpond")?;
        std::os::unix::fs::symlink(kubectl, bin.join("kubectl")).context("link kubectl")?;
        // Who reads a page has the tree.
        std::os::unix::fs::symlink(super::root().join("examples"), home.join("examples")).context("link examples")?;
        std::fs::write(state.join("environment"), "")?;
        std::fs::write(state.join("folder"), home.display().to_string())?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        Ok(Self { running: Vec::new(), commands: 0, port: free_port()?, home, state, path, _scratch: scratch })
    }

    /// Does one step; gives what was printed, and what is wrong with it.
    fn take(&mut self, step: &Step) -> Result<(String, Option<String>)> {
        match &step.action {
            Action::Save { name, text } => {
                std::fs::write(self.home.join(name), text).with_context(|| format!("save `{name}`"))?;
                Ok((String::new(), None))
            }
            Action::Run(command) => self.run(command, &step.output),
            // A server that is refused does not stay.
            Action::Start(command) if shows_error(&step.output) => self.run(command, &step.output),
            Action::Start(command) => self.begin(command, &step.output),
            Action::Interrupt => self.interrupt(&step.output),
        }
    }

    fn run(&mut self, command: &str, shown: &[String]) -> Result<(String, Option<String>)> {
        let mut process = self.spawn(SHELL, command)?;
        let waited = process.wait_for(LIMIT, |_| false)?;
        let printed = self.readable(&process.printed());
        let trouble = match waited {
            Waited::Ended(status) => judge(status.success(), shown, &printed),
            _ => Some("does not end".to_owned()),
        };
        Ok((printed, trouble.map(|trouble| format!("`{command}` {trouble}"))))
    }

    fn begin(&mut self, command: &str, shown: &[String]) -> Result<(String, Option<String>)> {
        let mut process = self.spawn(TERMINAL, command)?;
        let home = self.home.display().to_string();
        let waited = process.wait_for(LIMIT, |printed| begins(shown, &printed.replace(&home, "~")))?;
        let printed = self.readable(&process.printed());
        let trouble = match waited {
            Waited::Satisfied => None,
            Waited::Ended(status) => judge(status.success(), shown, &printed),
            Waited::TimedOut => Some("does not print what is shown".to_owned()),
        };
        // What comes later belongs to the line `^C`.
        self.running.push((process, printed.len()));
        Ok((printed, trouble.map(|trouble| format!("`{command}` {trouble}"))))
    }

    fn interrupt(&mut self, shown: &[String]) -> Result<(String, Option<String>)> {
        let Some((mut process, before)) = self.running.pop() else {
            return Ok((String::new(), Some("`^C`, and nothing is running".to_owned())));
        };
        process.interrupt()?;
        let ended = matches!(process.wait_for(LIMIT, |_| false)?, Waited::Ended(_));
        let printed = self.readable(&process.printed()).split_off(before);
        // A watch may have gone on before it was interrupted; a server says how it ends.
        let trouble = match ended {
            false => Some("`^C` does not end it".to_owned()),
            true if shown.is_empty() || same(shown, &printed) => None,
            true => Some("`^C` ends it with other words".to_owned()),
        };
        Ok((printed, trouble))
    }

    fn spawn(&mut self, shell: &str, command: &str) -> Result<Process> {
        self.commands += 1;
        let command = command.replace("cargo run --release --", "millpond");
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", shell, "bash", &command])
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", &self.path)
            .env("SESSION", &self.state)
            .env("MILLPOND_PORT", self.port.to_string())
            // A person's own preferences must not decide a test.
            .env("KUBERC", "off")
            .env("LC_ALL", "C.UTF-8");
        Process::spawn(&format!("command-{}", self.commands), &mut bash, &self.state)
    }

    /// What was printed, as the guide would show it.
    fn readable(&self, printed: &str) -> String {
        let home = self.home.display().to_string();
        printed.replace(&home, "~").replace(&format!("127.0.0.1:{}", self.port), "127.0.0.1:6443")
    }
}

fn judge(success: bool, shown: &[String], printed: &str) -> Option<String> {
    let trouble = match (same(shown, printed), success, shows_error(shown)) {
        (false, ..) => "prints something else",
        (true, true, true) => "succeeds, and the guide shows an error",
        (true, false, false) => "fails, and the guide shows no error",
        _ => return None,
    };
    Some(trouble.to_owned())
}

/// Errors as millpond and kubectl word them.
fn shows_error(shown: &[String]) -> bool {
    shown.iter().any(|line| line.to_lowercase().starts_with("error") || line.contains(" is invalid: "))
}
