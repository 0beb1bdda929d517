//! The end of a failed command: message, cause, hint, and the exit code for scripts.

use std::io;
use std::process::ExitCode;

/// Every exit code with its meaning, for the reference.
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done; for `up`: stopped by Ctrl-C or SIGTERM, everything on disk"),
    (1, "failed; the message says why"),
    (
        Code::Usage as u8,
        "usage: an unknown command or option, or an invalid value; for `plan --detailed-exitcode`: done, and the plan changes something",
    ),
    (Code::NotFound as u8, "no object has that name"),
    (Code::Conflict as u8, "conflict or limit: a directory, port or file that is in use"),
    (Code::Timeout as u8, "timeout: it takes longer than `--timeout` allows, and goes on by itself"),
    (Code::NotAllowed as u8, "not allowed: this user may not read or write there"),
    (Code::Unplaced as u8, "for `plan --detailed-exitcode`: done, and some pods get no place"),
];

/// Exit codes beyond 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// What was asked makes no sense.
    Usage = 2,
    /// There is nothing of that name.
    NotFound = 3,
    /// Conflict or limit: another client or process has what this needs.
    Conflict = 4,
    /// It took too long.
    Timeout = 5,
    /// The operating system does not let this user.
    NotAllowed = 6,
    /// A plan leaves pods without a place.
    Unplaced = 7,
}

impl Code {
    /// The exit code for what the operating system refused, where it has one of its own.
    pub(crate) fn of_io(problem: &io::Error) -> Option<Self> {
        match problem.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Some(Self::NotAllowed),
            io::ErrorKind::AddrInUse => Some(Self::Conflict),
            _ => None,
        }
    }
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
    // Not through `chain`, which does not show what was attached with `context`.
    problem.downcast_ref::<Failure>()
}

/// The error in one line with its causes, then the hint.
pub(crate) fn describe(problem: &anyhow::Error) -> String {
    if let Some(refused) = connection_refused(problem) {
        return refused;
    }
    let causes: Vec<_> = problem.chain().map(ToString::to_string).collect();
    let hint = of(problem).and_then(|failure| failure.hint.as_deref());
    let hint = hint
        .map(|hint| {
            format!(
                "
hint: {hint}"
            )
        })
        .unwrap_or_default();
    format!("error: {}{hint}", causes.join(": "))
}

/// The message for a refused connection to a cluster, instead of the wording of each library.
fn connection_refused(problem: &anyhow::Error) -> Option<String> {
    let refused = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if of(problem).is_some() || !problem.chain().any(refused) {
        return None;
    }
    let tried = problem.to_string();
    Some(format!(
        "error: {tried}: connection refused\n\
         hint: no API server listens on the address of the kubeconfig; `millpond up` starts one, `--kubeconfig FILE` names another"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_says_what_to_do() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let problem = anyhow::Error::new(refused).context("cannot list /api/v1/pods");
        let text = describe(&problem);
        assert!(text.starts_with("error: cannot list /api/v1/pods: connection refused\nhint: "), "{text}");
        let other = anyhow::Error::new(io::Error::from(io::ErrorKind::TimedOut)).context("cannot list");
        assert_eq!(describe(&other), "error: cannot list: timed out");
    }
}
