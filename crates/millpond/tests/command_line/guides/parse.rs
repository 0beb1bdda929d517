//! A page of Markdown as steps: files to save, commands to run, outputs to expect.

/// A page.
#[derive(Debug, Default)]
pub(super) struct Guide {
    pub(super) steps: Vec<Step>,
    /// What cannot be run as it is written, each with its line.
    pub(super) problems: Vec<String>,
    /// Blocks that are not run, with a reason.
    left_out: usize,
}

/// One thing that the reader does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Line in the page, counted from 1.
    pub(super) line: usize,
    pub(super) action: Action,
    /// What the page says is printed.
    pub(super) output: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Saves a file.
    Save { name: String, text: String },
    /// Runs a command to its end.
    Run(String),
    /// Starts a command that stays.
    Start(String),
    /// Ctrl-C to what was started last.
    Interrupt,
}

impl Step {
    /// Index of the first line of output in the page.
    pub(super) fn output_start(&self) -> usize {
        match &self.action {
            Action::Run(command) | Action::Start(command) => self.line + command.matches('\n').count(),
            _ => self.line,
        }
    }
}

/// A fenced block.
struct Block<'a> {
    line: usize,
    info: &'a str,
    lines: Vec<&'a str>,
}

impl Guide {
    pub(super) fn parse(text: &str) -> Self {
        let mut guide = Self::default();
        for block in blocks(text) {
            guide.add(&block);
        }
        // A page on machines or clusters of the reader has reasons in the place of commands that run.
        let runs = guide.steps.iter().any(|step| matches!(step.action, Action::Run(_) | Action::Start(_)));
        if !runs && guide.left_out == 0 {
            guide.problem(1, "has no command that can be run");
        }
        guide.check_servers();
        guide.check_files();
        for (number, line) in (1..).zip(text.lines()) {
            let command = line.strip_prefix("    ").map(str::trim_start);
            if command.is_some_and(|line| ["millpond ", "kubectl ", "cargo "].iter().any(|name| line.starts_with(name)))
            {
                guide.problem(number, "an indented command is not run: use a block marked `console`");
            }
        }
        guide
    }

    fn problem(&mut self, line: usize, what: &str) {
        self.problems.push(format!("{line}: {what}"));
    }

    fn add(&mut self, block: &Block<'_>) {
        let (language, more) = block.info.split_once(' ').unwrap_or((block.info, ""));
        if let Some(reason) = more.strip_prefix("not-run:") {
            if reason.split_whitespace().count() < 3 {
                self.problem(block.line, "`not-run:` wants a reason");
            }
            self.left_out += 1;
            return;
        }
        match (language, more) {
            ("console", "") => self.add_console(block),
            ("yaml", _) => match more.strip_prefix("file=") {
                Some(name) => {
                    let action = Action::Save { name: name.to_owned(), text: block.lines.join("\n") + "\n" };
                    self.steps.push(Step { line: block.line, action, output: Vec::new() });
                }
                None => self.problem(block.line, "a YAML block is `file=NAME`, or `not-run:` with a reason"),
            },
            ("sh" | "bash" | "shell" | "console", _) => {
                self.problem(block.line, "commands stand in blocks marked `console`, behind `$ `");
            }
            _ => {}
        }
    }

    fn add_console(&mut self, block: &Block<'_>) {
        let first = self.steps.len();
        for (line, text) in (block.line + 1..).zip(&block.lines) {
            if let Some(command) = text.strip_prefix("$ ") {
                let action = if stays(command) { Action::Start } else { Action::Run };
                self.steps.push(Step { line, action: action(command.to_owned()), output: Vec::new() });
            } else if *text == "^C" {
                if let Some(Step { action, .. }) = self.steps[first..].last_mut()
                    && let Action::Run(command) = action
                {
                    *action = Action::Start(std::mem::take(command));
                }
                self.steps.push(Step { line, action: Action::Interrupt, output: Vec::new() });
            } else if let Some(step) = self.steps[first..].last_mut() {
                match (&mut step.action, text.strip_prefix("> ")) {
                    (Action::Run(command), Some(more)) if step.output.is_empty() => {
                        command.push('\n');
                        command.push_str(more);
                    }
                    _ => step.output.push((*text).to_owned()),
                }
            } else {
                self.problem(line, "output without a command above it");
            }
        }
        if self.steps.len() == first {
            self.problem(block.line, "a `console` block without a command");
        }
    }

    /// Only by its words is it known that a command that stays has come up.
    fn check_servers(&mut self) {
        let silent = |step: &&Step| matches!(step.action, Action::Start(_)) && step.output.is_empty();
        let lines: Vec<_> = self.steps.iter().filter(silent).map(|step| step.line).collect();
        lines.into_iter().for_each(|line| self.problem(line, "a command that stays shows what it prints"));
    }

    /// A file that no command uses shows nothing.
    fn check_files(&mut self) {
        let mut problems = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let Action::Save { name, .. } = &step.action else { continue };
            let uses = |step: &Step| match &step.action {
                Action::Run(command) | Action::Start(command) => command.contains(name),
                _ => false,
            };
            if !self.steps[index..].iter().any(uses) {
                problems.push((step.line, format!("no command uses `{name}`")));
            }
        }
        problems.iter().for_each(|(line, what)| self.problem(*line, what));
    }
}

/// Whether a command serves until it is stopped.
fn stays(command: &str) -> bool {
    let command = command.strip_prefix("cargo run --release --").map_or(command, str::trim_start);
    let words: Vec<_> = command.strip_prefix("millpond ").unwrap_or(command).split(' ').collect();
    words[0] == "up" || (words[0] == "ci" && words.last() == Some(&"builder"))
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => open = Some(Block { line: number, info: info.trim(), lines: Vec::new() }),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    blocks.extend(open);
    blocks
}

#[test]
fn a_page_becomes_steps() {
    let page = "Text.\n```yaml file=a.yaml\nkind: A\n```\n```console\n$ kubectl apply -f - <<END\n> b\n> END\ncreated\n\n$ true\n```\n\
                ```console\n$ millpond up\nup\n```\n```console\n$ kubectl get a --watch a.yaml\none\n^C\n```\n```console\n^C\nbye\n```\n";
    let guide = Guide::parse(page);
    assert_eq!(guide.problems, [""; 0]);
    let step = |line, action, output: &[&str]| Step {
        line,
        action,
        output: output.iter().map(|line| (*line).into()).collect(),
    };
    assert_eq!(
        guide.steps,
        [
            step(2, Action::Save { name: "a.yaml".into(), text: "kind: A\n".into() }, &[]),
            step(6, Action::Run("kubectl apply -f - <<END\nb\nEND".into()), &["created", ""]),
            step(11, Action::Run("true".into()), &[]),
            step(14, Action::Start("millpond up".into()), &["up"]),
            step(18, Action::Start("kubectl get a --watch a.yaml".into()), &["one"]),
            step(20, Action::Interrupt, &[]),
            step(23, Action::Interrupt, &["bye"]),
        ]
    );
    assert_eq!(guide.steps[1].output_start(), 8);
}

#[test]
fn what_would_not_run_is_a_problem() {
    let problems = |page: &str| Guide::parse(page).problems;
    let runs = "```console\n$ true\n```\n";
    assert_eq!(problems("Text.\n"), ["1: has no command that can be run"]);
    assert_eq!(
        problems(&format!("{runs}```sh\nls\n```\n")),
        ["4: commands stand in blocks marked `console`, behind `$ `"]
    );
    assert_eq!(problems(&format!("{runs}```console not-run: later\n$ x\n```\n")), ["4: `not-run:` wants a reason"]);
    assert_eq!(problems(&format!("{runs}```console not-run: it never ends\n$ x\n```\n")), [""; 0]);
    assert_eq!(problems(&format!("{runs}```yaml file=a.yaml\nkind: A\n```\n")), ["4: no command uses `a.yaml`"]);
    assert_eq!(
        problems(&format!("{runs}```yaml\nkind: A\n```\n")),
        ["4: a YAML block is `file=NAME`, or `not-run:` with a reason"]
    );
    assert_eq!(problems(&format!("{runs}```console\nlost\n$ true\n```\n")), ["5: output without a command above it"]);
    assert_eq!(
        problems(&format!("{runs}\n    kubectl get x\n")),
        ["5: an indented command is not run: use a block marked `console`"]
    );
    assert_eq!(problems("```console\n$ millpond up\n```\n"), ["2: a command that stays shows what it prints"]);
}
