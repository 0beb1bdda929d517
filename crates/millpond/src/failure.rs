//! How a failed command ends: what failed, why, what to do, and the exit code that scripts read.

use std::process::ExitCode;

/// Exit codes beyond 0 and 1 (see the README).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// There is nothing of that name.
    NotFound = 3,
    /// Conflict or limit: somebody else has what this needs.
    Conflict = 4,
}

/// A failure with an exit code and advice of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: Option<Code>,
    pub(crate) hint: Option<String>,
}

/// Prints a failure to stderr and gives its exit code.
#[expect(clippy::print_stderr, reason = "the one place where errors are told to a person")]
pub(crate) fn report(problem: &anyhow::Error) -> ExitCode {
    eprintln!("{}", describe(problem));
    let code = of(problem).and_then(|failure| failure.code).map_or(1, |code| code as u8);
    ExitCode::from(code)
}

fn of(problem: &anyhow::Error) -> Option<&Failure> {
    // Not by way of `chain`, which does not show what was attached with `context`.
    problem.downcast_ref::<Failure>()
}

/// What failed, why, and what to do.
pub(crate) fn describe(problem: &anyhow::Error) -> String {
    let mut text = String::from("error: ");
    for (depth, cause) in problem.chain().enumerate() {
        if depth > 0 {
            text.push_str("\n  caused by: ");
        }
        text.push_str(&cause.to_string());
    }
    if let Some(hint) = of(problem).and_then(|failure| failure.hint.as_deref()) {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    text
}
