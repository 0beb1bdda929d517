//! Applies a plan step by step, and undoes it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::journal::{Journal, JournalFile, Undo, write_durably};
use crate::plan::{FileStep, Plan, RunStep, Step, UnitStep, WaitStep};

mod command;
mod owner;

pub use command::CommandError;

/// Where unit files go.
const UNITS: &str = "/etc/systemd/system";
/// Seconds that a command of a reset may take.
const UNDO_TIMEOUT: u64 = 300;

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
    #[error("after the reset {0} is not as it was before")]
    NotClean(String),
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
}

impl Executor {
    /// An executor on the host under `root`, with its journal in `state`.
    pub fn new(root: &Path, state: &Path) -> Result<Self, ExecutorError> {
        let journal = JournalFile::open(state).map_err(ExecutorError::Journal)?;
        Ok(Self { root: root.to_owned(), path: None, journal, checkpoint: Box::new(|| Ok(())) })
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
                journal = Journal { epoch: plan.epoch, plan: Some(plan.clone()), ..Journal::default() };
                self.save(&journal)?;
            }
        }
        self.resume(journal)
    }

    fn resume(&mut self, mut journal: Journal) -> Result<(), ExecutorError> {
        let steps = journal.plan.as_ref().map(|plan| plan.steps.clone()).unwrap_or_default();
        for (index, step) in steps.iter().enumerate().skip(journal.done) {
            let failed = |cause| ExecutorError::Step { number: index + 1, title: step.title(), cause };
            self.prepare(step, &mut journal).map_err(failed)?;
            self.save(&journal)?;
            self.execute(step, &journal).map_err(failed)?;
            (journal.done, journal.before) = (index + 1, None);
            self.save(&journal)?;
        }
        Ok(())
    }

    /// Undoes everything that was begun, newest first, and verifies it. It can be repeated.
    pub fn reset(&mut self) -> Result<(), ExecutorError> {
        let mut journal = self.journal()?;
        if journal.plan.is_none() {
            return Ok(());
        }
        if !journal.resetting {
            journal.resetting = true;
            self.save(&journal)?;
        }
        for undo in journal.undo.iter().rev() {
            self.undo(undo).map_err(|cause| ExecutorError::Undo { what: describe(undo), cause })?;
        }
        for undo in &journal.undo {
            if !self.is_undone(undo) {
                return Err(ExecutorError::NotClean(describe(undo)));
            }
        }
        self.save(&Journal { epoch: journal.epoch, ..Journal::default() })
    }

    fn save(&mut self, journal: &Journal) -> Result<(), ExecutorError> {
        (self.checkpoint)().map_err(ExecutorError::Journal)?;
        self.journal.save(journal).map_err(ExecutorError::Journal)?;
        (self.checkpoint)().map_err(ExecutorError::Journal)
    }

    fn locate(&self, path: &str) -> Result<PathBuf, StepError> {
        let relative = path.strip_prefix('/').ok_or_else(|| StepError::Invalid(format!("`{path}` is not absolute")))?;
        let is_plain = Path::new(relative).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if relative.is_empty() || !is_plain {
            return Err(StepError::Invalid(format!("`{path}` is not a plain path")));
        }
        Ok(self.root.join(relative))
    }

    /// Writes down how to undo a step, unless an earlier attempt or step did so for the same thing.
    fn prepare(&mut self, step: &Step, journal: &mut Journal) -> Result<(), StepError> {
        match step {
            Step::WriteFile(file) => {
                self.prepare_file(&file.path, journal)?;
                if file.append && journal.before.is_none() {
                    journal.before = Some(STANDARD.encode(read_or_empty(&self.locate(&file.path)?)?));
                }
            }
            Step::SystemdUnit(unit) => {
                self.prepare_file(&unit_path(&unit.name)?, journal)?;
                push(journal, Undo::StopUnit { name: unit.name.clone() });
            }
            Step::Run(run) if !run.undo.is_empty() => push(journal, Undo::Run { argv: run.undo.clone() }),
            Step::Run(_) | Step::WaitFor(_) => {}
        }
        Ok(())
    }

    fn prepare_file(&self, path: &str, journal: &mut Journal) -> Result<(), StepError> {
        let is_known = |undo: &Undo| match undo {
            Undo::RemoveFile { path: known } | Undo::RestoreFile { path: known, .. } => known == path,
            _ => false,
        };
        if journal.undo.iter().any(is_known) {
            return Ok(());
        }
        let located = self.locate(path)?;
        let missing = Path::new(path).ancestors().skip(1).take_while(|parent| {
            parent.to_str().is_some_and(|parent| parent != "/" && self.locate(parent).is_ok_and(|it| !it.exists()))
        });
        if let Some(topmost) = missing.last().and_then(Path::to_str) {
            push(journal, Undo::RemoveDirectory { path: topmost.to_owned() });
        }
        let path = path.to_owned();
        match fs::metadata(&located) {
            Ok(metadata) => {
                let (content, mode) = (STANDARD.encode(fs::read(&located)?), metadata.permissions().mode() & 0o7777);
                push(journal, Undo::RestoreFile { path, content, mode });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => push(journal, Undo::RemoveFile { path }),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn execute(&mut self, step: &Step, journal: &Journal) -> Result<(), StepError> {
        (self.checkpoint)()?;
        match step {
            Step::WriteFile(file) => self.write_file(file, journal)?,
            Step::Run(RunStep { argv, timeout_seconds, .. }) => self.run(argv, *timeout_seconds)?,
            Step::SystemdUnit(unit) => self.start_unit(unit)?,
            Step::WaitFor(WaitStep { path, timeout_seconds }) => self.wait_for(path, *timeout_seconds)?,
        }
        (self.checkpoint)().map_err(StepError::from)
    }

    fn write_file(&self, file: &FileStep, journal: &Journal) -> Result<(), StepError> {
        let located = self.locate(&file.path)?;
        let content = decode(&file.content)?;
        let content = match &journal.before {
            Some(before) if file.append => [decode(before)?, content].concat(),
            _ => content,
        };
        if let Some(parent) = located.parent() {
            fs::create_dir_all(parent)?;
        }
        write_durably(&located, &content, file.mode)?;
        if !file.owner.is_empty() {
            owner::change(&self.root, &located, &file.owner)?;
        }
        Ok(())
    }

    fn start_unit(&self, unit: &UnitStep) -> Result<(), StepError> {
        let located = self.locate(&unit_path(&unit.name)?)?;
        if let Some(parent) = located.parent() {
            fs::create_dir_all(parent)?;
        }
        write_durably(&located, unit.content.as_bytes(), 0o644)?;
        self.systemctl(&["daemon-reload"])?;
        self.systemctl(&["enable", "--now", &unit.name])
    }

    fn systemctl(&self, words: &[&str]) -> Result<(), StepError> {
        let argv: Vec<String> = std::iter::once("systemctl").chain(words.iter().copied()).map(str::to_owned).collect();
        self.run(&argv, UNDO_TIMEOUT)
    }

    fn run(&self, argv: &[String], timeout: u64) -> Result<(), StepError> {
        Ok(command::run(argv, self.path.as_deref(), std::time::Duration::from_secs(timeout))?)
    }

    fn wait_for(&self, path: &str, seconds: u64) -> Result<(), StepError> {
        let located = self.locate(path)?;
        let appeared = command::poll(std::time::Duration::from_secs(seconds), || located.exists().then_some(()));
        appeared.ok_or_else(|| StepError::Timeout { path: path.to_owned(), seconds })
    }

    fn undo(&mut self, undo: &Undo) -> Result<(), StepError> {
        (self.checkpoint)()?;
        match undo {
            Undo::RemoveFile { path } => tolerate_absence(fs::remove_file(self.locate(path)?))?,
            Undo::RestoreFile { path, content, mode } => {
                let located = self.locate(path)?;
                if let Some(parent) = located.parent() {
                    fs::create_dir_all(parent)?;
                }
                write_durably(&located, &decode(content)?, *mode)?;
            }
            Undo::RemoveDirectory { path } => {
                let located = self.locate(path)?;
                self.unmount_below(&located)?;
                tolerate_absence(fs::remove_dir_all(located))?;
            }
            Undo::StopUnit { name } => {
                // The unit file is put back or removed by the entry before this one.
                if self.locate(&unit_path(name)?)?.exists() {
                    self.systemctl(&["disable", "--now", name])?;
                }
            }
            Undo::Run { argv } => self.run(argv, UNDO_TIMEOUT)?,
        }
        (self.checkpoint)().map_err(StepError::from)
    }

    /// Unmounts what kubelet mounted below a directory; removing through a mount would remove a volume's data.
    fn unmount_below(&self, directory: &Path) -> Result<(), StepError> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|point| Path::new(point).starts_with(directory));
        for point in points.collect::<Vec<_>>().into_iter().rev() {
            self.run(&["umount".to_owned(), point.to_owned()], UNDO_TIMEOUT)?;
        }
        Ok(())
    }

    fn is_undone(&self, undo: &Undo) -> bool {
        let located = |path: &str| self.locate(path).ok();
        match undo {
            Undo::RemoveFile { path } | Undo::RemoveDirectory { path } => located(path).is_some_and(|it| !it.exists()),
            Undo::RestoreFile { path, content, .. } => {
                let now = located(path).and_then(|it| fs::read(it).ok());
                now.is_some() && now == decode(content).ok()
            }
            Undo::StopUnit { .. } | Undo::Run { .. } => true,
        }
    }
}

fn push(journal: &mut Journal, undo: Undo) {
    if !journal.undo.contains(&undo) {
        journal.undo.push(undo);
    }
}

fn unit_path(name: &str) -> Result<String, StepError> {
    let is_name = !name.is_empty() && !name.starts_with('-') && !name.contains('/');
    if is_name { Ok(format!("{UNITS}/{name}")) } else { Err(StepError::Invalid(format!("`{name}` is no unit name"))) }
}

fn decode(content: &str) -> Result<Vec<u8>, StepError> {
    STANDARD.decode(content).map_err(|error| StepError::Invalid(format!("content is not base64: {error}")))
}

fn read_or_empty(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

fn tolerate_absence(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn describe(undo: &Undo) -> String {
    match undo {
        Undo::RemoveFile { path } | Undo::RestoreFile { path, .. } | Undo::RemoveDirectory { path } => path.clone(),
        Undo::StopUnit { name } => name.clone(),
        Undo::Run { argv } => argv.join(" "),
    }
}
