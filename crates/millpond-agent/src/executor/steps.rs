//! One step: the way to undo it is recorded first, then the step is performed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::command::{self, Manner};
use super::processes::MARKER;
use super::{Executor, StepError, guard, owner};
use crate::journal::{Journal, Undo, write_durably};
use crate::plan::{FileStep, RunStep, Step, UnitStep, WaitStep};

/// Where unit files go.
const UNITS: &str = "/etc/systemd/system";
/// Seconds that a command of a reset, or of systemd, may take.
pub(super) const UNDO_TIMEOUT: u64 = 300;
/// Files of guarded directories that are put back with their content are at most so large.
const LIMIT_KEPT_FILE: u64 = 256 * 1024;

impl Executor {
    pub(super) fn locate(&self, path: &str) -> Result<PathBuf, StepError> {
        let relative = path.strip_prefix('/').ok_or_else(|| StepError::Invalid(format!("`{path}` is not absolute")))?;
        let is_plain = Path::new(relative).components().all(|part| matches!(part, std::path::Component::Normal(_)));
        if relative.is_empty() || !is_plain {
            return Err(StepError::Invalid(format!("`{path}` is not a plain path")));
        }
        Ok(self.root.join(relative))
    }

    /// Records how to undo a step, unless an earlier attempt or step recorded that for the same target.
    pub(super) fn prepare(&mut self, step: &Step, journal: &mut Journal) -> Result<(), StepError> {
        match step {
            Step::WriteFile(file) => {
                self.prepare_file(&file.path, journal)?;
                if file.append && journal.before.is_none() {
                    journal.before = Some(STANDARD.encode(read_or_empty(&self.locate(&file.path)?)?));
                }
            }
            Step::SystemdUnit(unit) => {
                // The last one of the unit's to be undone: systemd has to know the unit that is enabled.
                if !is_known(journal, &unit_path(&unit.name)?) && self.is_enabled(&unit.name)? {
                    push(journal, Undo::EnableUnit { name: unit.name.clone() });
                }
                push(journal, Undo::ReloadUnits);
                self.prepare_file(&unit_path(&unit.name)?, journal)?;
                push(journal, Undo::StopUnit { name: unit.name.clone() });
            }
            Step::Run(run) if !run.undo.is_empty() => push(journal, Undo::Run { argv: run.undo.clone() }),
            Step::Guard(step) => step.paths.iter().try_for_each(|path| self.prepare_directory(path, journal))?,
            Step::Pods => push(journal, Undo::StopPods),
            Step::Run(_) | Step::WaitFor(_) => {}
        }
        Ok(())
    }

    fn prepare_file(&self, path: &str, journal: &mut Journal) -> Result<(), StepError> {
        if is_known(journal, path) {
            return Ok(());
        }
        let located = self.locate(path)?;
        self.prepare_parents(path, journal);
        match fs::metadata(&located) {
            Ok(_) => push(journal, restore(path, &located)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                push(journal, Undo::RemoveFile { path: path.to_owned() });
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether a target wants the unit.
    pub(super) fn is_enabled(&self, unit: &str) -> Result<bool, StepError> {
        let targets = match fs::read_dir(self.locate(UNITS)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        for target in targets {
            let path = target?.path();
            let is_target = path.extension().is_some_and(|end| end == "wants");
            if is_target && fs::symlink_metadata(path.join(unit)).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The topmost directory that has to be made for a path.
    fn prepare_parents(&self, path: &str, journal: &mut Journal) {
        let missing = Path::new(path).ancestors().skip(1).take_while(|parent| {
            parent.to_str().is_some_and(|parent| parent != "/" && self.locate(parent).is_ok_and(|it| !it.exists()))
        });
        if let Some(topmost) = missing.last().and_then(Path::to_str) {
            push(journal, Undo::RemoveDirectory { path: topmost.to_owned() });
        }
    }

    fn prepare_directory(&self, path: &str, journal: &mut Journal) -> Result<(), StepError> {
        let is_guarded = |undo: &Undo| matches!(undo, Undo::RemoveDirectory { path: known } | Undo::PruneDirectory { path: known, .. } if known == path);
        if journal.undo.iter().any(is_guarded) {
            return Ok(());
        }
        let located = self.locate(path)?;
        if !located.is_dir() {
            self.prepare_parents(path, journal);
            push(journal, Undo::RemoveDirectory { path: path.to_owned() });
            return Ok(());
        }
        let keep = guard::entries(&located)?;
        let files = keep.iter().map(|name| format!("{path}/{name}"));
        let mut restores = Vec::new();
        for file in files.filter(|file| !is_known(journal, file)) {
            let located = self.locate(&file)?;
            let metadata = fs::symlink_metadata(&located)?;
            if metadata.is_file() && metadata.len() <= LIMIT_KEPT_FILE {
                restores.push(restore(&file, &located)?);
            }
        }
        push(journal, Undo::PruneDirectory { path: path.to_owned(), keep });
        restores.into_iter().for_each(|undo| push(journal, undo));
        Ok(())
    }

    pub(super) fn execute(&mut self, step: &Step, journal: &Journal) -> Result<(), StepError> {
        (self.checkpoint)()?;
        match step {
            Step::WriteFile(file) => self.write_file(file, journal)?,
            Step::Run(RunStep { argv, timeout_seconds, .. }) => self.run(argv, *timeout_seconds)?,
            Step::SystemdUnit(unit) => self.start_unit(unit)?,
            Step::WaitFor(WaitStep { path, timeout_seconds }) => self.wait_for(path, *timeout_seconds)?,
            Step::Guard(_) | Step::Pods => {}
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

    pub(super) fn systemctl(&self, words: &[&str]) -> Result<(), StepError> {
        let argv: Vec<String> = std::iter::once("systemctl").chain(words.iter().copied()).map(str::to_owned).collect();
        self.run(&argv, UNDO_TIMEOUT)
    }

    pub(super) fn run(&self, argv: &[String], timeout: u64) -> Result<(), StepError> {
        let marker = Some((MARKER, self.marker.as_str()));
        let manner = Manner { path: self.path.as_deref(), marker, cancel: &self.cancel };
        Ok(command::run(argv, manner, Duration::from_secs(timeout))?)
    }

    fn wait_for(&self, path: &str, seconds: u64) -> Result<(), StepError> {
        let located = self.locate(path)?;
        let limit = Duration::from_secs(seconds);
        let appeared = command::poll(limit, &self.cancel, || located.exists().then_some(()));
        appeared.ok_or_else(|| StepError::Timeout { path: path.to_owned(), seconds })
    }
}

/// Whether the journal says already how the file was before.
fn is_known(journal: &Journal, path: &str) -> bool {
    journal.undo.iter().any(|undo| match undo {
        Undo::RemoveFile { path: known } | Undo::RestoreFile { path: known, .. } => known == path,
        _ => false,
    })
}

/// How a file is put back as it is now.
fn restore(path: &str, located: &Path) -> io::Result<Undo> {
    let mode = fs::metadata(located)?.permissions().mode() & 0o7777;
    Ok(Undo::RestoreFile { path: path.to_owned(), content: STANDARD.encode(fs::read(located)?), mode })
}

fn push(journal: &mut Journal, undo: Undo) {
    if !journal.undo.contains(&undo) {
        journal.undo.push(undo);
    }
}

pub(super) fn unit_path(name: &str) -> Result<String, StepError> {
    let is_name = !name.is_empty() && !name.starts_with('-') && !name.contains('/');
    if is_name { Ok(format!("{UNITS}/{name}")) } else { Err(StepError::Invalid(format!("`{name}` is no unit name"))) }
}

pub(super) fn decode(content: &str) -> Result<Vec<u8>, StepError> {
    STANDARD.decode(content).map_err(|error| StepError::Invalid(format!("content is not base64: {error}")))
}

fn read_or_empty(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
