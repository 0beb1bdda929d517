//! Applies a plan step by step, and undoes it: `steps` does one step and writes down its undo, `undo` undoes it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::journal::{Journal, JournalFile, Outcome, Undo};
use crate::plan::{Plan, Step};
use crate::redact;

mod command;
mod guard;
mod mounts;
mod owner;
mod processes;
mod steps;
mod undo;
mod verify;

pub use command::CommandError;
use processes::Processes;

/// Why a plan was not applied, or not undone.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The plan belongs to a claim that is over.
    #[error("the plan is of epoch {plan}, the host is at epoch {host}")]
    OldEpoch {
        /// Epoch of the plan.
        plan: i64,
        /// Epoch of the host.
        host: i64,
    },
    /// Another plan was applied and has to be undone first.
    #[error("the plan of epoch {epoch} has not been reset")]
    NotReset {
        /// Epoch of that plan.
        epoch: i64,
    },
    /// The journal could not be read or written.
    #[error("the journal failed")]
    Journal(#[source] io::Error),
    /// A step failed.
    #[error("step {number} ({title}) failed")]
    Step {
        /// Number of the step, from 1.
        number: usize,
        /// What the step does.
        title: String,
        /// Why.
        #[source]
        cause: StepError,
    },
    /// An undo failed; the reset can be repeated.
    #[error("the reset failed at {what}")]
    Undo {
        /// What was undone.
        what: String,
        /// Why.
        #[source]
        cause: StepError,
    },
    /// The reset ran, but something is still there.
    #[error("after the reset {0}")]
    NotClean(String),
    /// The agent was stopped or got another plan. Nothing is lost: the next attempt continues.
    #[error("the work was interrupted")]
    Interrupted,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A file could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The plan says something that cannot be done.
    #[error("{0}")]
    Invalid(String),
    /// A file did not appear.
    #[error("`{path}` did not appear within {seconds} s")]
    Timeout {
        /// The file.
        path: String,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// Applies plans on a host.
pub struct Executor {
    root: PathBuf,
    path: Option<String>,
    journal: JournalFile,
    checkpoint: Box<dyn FnMut() -> io::Result<()>>,
    observer: Box<dyn FnMut(&Journal)>,
    cancel: Arc<AtomicBool>,
    /// Step of the plan that runs, in the words of [`processes::MARKER`].
    marker: String,
}

impl Executor {
    /// An executor on the host under `root`, with its journal in `state`.
    pub fn new(root: &Path, state: &Path) -> Result<Self, ExecutorError> {
        let journal = JournalFile::open(state).map_err(ExecutorError::Journal)?;
        Ok(Self {
            root: root.to_owned(),
            path: None,
            journal,
            checkpoint: Box::new(|| Ok(())),
            observer: Box::new(|_| ()),
            cancel: Arc::default(),
            marker: String::new(),
        })
    }

    /// Looks for commands in these directories instead of those of the agent.
    pub fn with_path(self, path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Calls `checkpoint` before and after everything that changes the disk. An error stops the executor there, as if
    /// the agent had been killed.
    pub fn with_checkpoint(self, checkpoint: impl FnMut() -> io::Result<()> + 'static) -> Self {
        Self { checkpoint: Box::new(checkpoint), ..self }
    }

    /// Calls `observer` with every journal that was written.
    pub fn with_observer(self, observer: impl FnMut(&Journal) + 'static) -> Self {
        Self { observer: Box::new(observer), ..self }
    }

    /// Stops as soon as the flag is set, and ends the command that runs.
    pub fn with_cancel(self, cancel: Arc<AtomicBool>) -> Self {
        Self { cancel, ..self }
    }

    /// The journal as it is on the disk.
    pub fn journal(&self) -> Result<Journal, ExecutorError> {
        self.journal.load().map_err(ExecutorError::Journal)
    }

    /// Applies a plan, from the step on that an earlier attempt did not finish.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), ExecutorError> {
        let mut journal = self.journal()?;
        match &journal.plan {
            Some(begun) if begun == plan && !journal.resetting => {}
            _ if plan.epoch <= journal.epoch => {
                return Err(ExecutorError::OldEpoch { plan: plan.epoch, host: journal.epoch });
            }
            Some(begun) => return Err(ExecutorError::NotReset { epoch: begun.epoch }),
            None => {
                journal = begun(plan);
                self.save(&journal)?;
            }
        }
        self.continue_with(journal)
    }

    /// Continues with the plan of the journal, if one was begun and is not being undone.
    pub fn resume(&mut self) -> Result<(), ExecutorError> {
        let journal = self.journal()?;
        if journal.plan.is_none() || journal.resetting { Ok(()) } else { self.continue_with(journal) }
    }

    /// Writes down that the plan of an epoch cannot even be made, so that the epoch counts as used.
    pub fn refuse(&mut self, machine_uid: &str, epoch: i64, why: &str) -> Result<(), ExecutorError> {
        let journal = self.journal()?;
        if journal.plan.is_some() || epoch <= journal.epoch {
            return Err(ExecutorError::OldEpoch { plan: epoch, host: journal.epoch });
        }
        let mut journal = begun(&Plan { machine_uid: machine_uid.to_owned(), epoch, ..Plan::default() });
        fail(&mut journal, why);
        self.save(&journal)
    }

    fn continue_with(&mut self, mut journal: Journal) -> Result<(), ExecutorError> {
        let Some(plan) = journal.plan.clone() else { return Ok(()) };
        let hash = plan.hash();
        for (index, step) in plan.steps.iter().enumerate().skip(journal.done) {
            self.marker = format!("{}/{}", plan_marker(&hash), index + 1);
            let done = self.begin(step, &mut journal).and_then(|()| self.execute(step, &journal));
            if self.cancel.load(Ordering::Relaxed) && done.is_err() {
                return Err(ExecutorError::Interrupted);
            }
            if let Err(cause) = done {
                let error = ExecutorError::Step { number: index + 1, title: step.title(), cause };
                fail(&mut journal, &describe(&error));
                self.save(&journal)?;
                return Err(error);
            }
            (journal.done, journal.before) = (index + 1, None);
            if let Some(outcome) = &mut journal.outcome {
                (outcome.done, outcome.failure) = (journal.done, None);
            }
            self.save(&journal)?;
        }
        Ok(())
    }

    /// Ends what a killed agent left running of the step, and writes down how to undo it.
    fn begin(&mut self, step: &Step, journal: &mut Journal) -> Result<(), StepError> {
        if matches!(step, Step::Run(_)) && !Processes::of(Path::new("/")).end_marked(&self.marker) {
            return Err(StepError::Invalid("the command still runs from an earlier attempt".to_owned()));
        }
        self.prepare(step, journal)?;
        self.save(journal).map_err(|error| match error {
            ExecutorError::Journal(error) => StepError::Io(error),
            other => StepError::Invalid(other.to_string()),
        })
    }

    /// Undoes everything that was begun, newest first, and verifies it. It can be repeated.
    pub fn reset(&mut self) -> Result<(), ExecutorError> {
        let mut journal = self.journal()?;
        let Some(plan) = journal.plan.clone() else { return Ok(()) };
        if !journal.resetting {
            journal.resetting = true;
            self.save(&journal)?;
        }
        let hash = plan.hash();
        // A command of an earlier attempt must not work beside this one.
        self.marker = format!("{}/reset", plan_marker(&hash));
        Processes::of(Path::new("/")).end_marked(&self.marker);
        for undo in journal.undo.iter().rev() {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(ExecutorError::Interrupted);
            }
            self.undo(undo, plan_marker(&hash)).map_err(|cause| match cause {
                StepError::Command(CommandError::Interrupted { .. }) => ExecutorError::Interrupted,
                cause => ExecutorError::Undo { what: undo::title(undo), cause },
            })?;
        }
        for undo in &journal.undo {
            if !self.is_undone(undo) {
                return Err(ExecutorError::NotClean(format!("{} is not as it was before", undo::title(undo))));
            }
        }
        if journal.undo.contains(&Undo::StopPods)
            && let Some(leftover) = verify::leftover(&self.root)
        {
            return Err(ExecutorError::NotClean(leftover));
        }
        self.save(&Journal { epoch: journal.epoch, outcome: journal.outcome, ..Journal::default() })
    }

    /// Lets no plan of an epoch up to this one begin any more.
    pub fn raise_epoch(&mut self, epoch: i64) -> Result<(), ExecutorError> {
        let mut journal = self.journal()?;
        if epoch <= journal.epoch {
            return Ok(());
        }
        journal.epoch = epoch;
        self.save(&journal)
    }

    fn save(&mut self, journal: &Journal) -> Result<(), ExecutorError> {
        (self.checkpoint)().map_err(ExecutorError::Journal)?;
        self.journal.save(journal).map_err(ExecutorError::Journal)?;
        (self.observer)(journal);
        (self.checkpoint)().map_err(ExecutorError::Journal)
    }
}

/// The journal of a plan of which nothing is done.
fn begun(plan: &Plan) -> Journal {
    let outcome =
        Outcome { hash: plan.hash(), steps: plan.steps.len(), installation: plan.installation, ..Outcome::default() };
    Journal { epoch: plan.epoch, plan: Some(plan.clone()), outcome: Some(outcome), ..Journal::default() }
}

fn fail(journal: &mut Journal, why: &str) {
    journal.outcome.get_or_insert_default().failure = Some(redact::secrets(why));
}

/// The first letters of a hash tell plans apart.
fn plan_marker(hash: &str) -> &str {
    hash.get(..16).unwrap_or(hash)
}

/// An error with its causes in one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let told = source.to_string();
        // Transparent errors say the same as their cause.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = source.source();
    }
    text
}
