//! Undoes what was begun, one entry of the journal at a time, and looks whether it is undone.

use std::fs;
use std::io;
use std::path::Path;

use super::processes::Processes;
use super::steps::{UNDO_TIMEOUT, decode, unit_path};
use super::{Executor, StepError, guard, mounts};
use crate::journal::{Undo, write_durably};

impl Executor {
    /// Undoes one entry of the journal of a plan, whose commands have marked what they started.
    pub(super) fn undo(&mut self, undo: &Undo, plan: &str) -> Result<(), StepError> {
        (self.checkpoint)()?;
        match undo {
            Undo::RemoveFile { path } => tolerate_absence(fs::remove_file(self.locate(path)?))?,
            Undo::RestoreFile { path, content, mode } => {
                let (located, content) = (self.locate(path)?, decode(content)?);
                if fs::read(&located).ok().as_ref() != Some(&content) {
                    if let Some(parent) = located.parent() {
                        fs::create_dir_all(parent)?;
                    }
                    write_durably(&located, &content, *mode)?;
                }
            }
            Undo::RemoveDirectory { path } => {
                let located = self.locate(path)?;
                self.unmount(&located, |_| true)?;
                tolerate_absence(fs::remove_dir_all(located))?;
            }
            Undo::PruneDirectory { path, keep } => {
                let located = self.locate(path)?;
                self.unmount(&located, |relative| !relative.is_empty() && !keep.contains(relative))?;
                guard::prune(&located, keep)?;
            }
            Undo::StopUnit { name } => {
                // The unit file is put back or removed by the entry before this one.
                if self.locate(&unit_path(name)?)?.exists() {
                    self.systemctl(&["disable", "--now", name])?;
                }
            }
            Undo::EnableUnit { name } => self.systemctl(&["enable", name])?,
            Undo::ReloadUnits => self.systemctl(&["daemon-reload"])?,
            Undo::StopPods => self.stop_pods(plan)?,
            Undo::Run { argv } => self.run(argv, UNDO_TIMEOUT)?,
        }
        (self.checkpoint)().map_err(StepError::from)
    }

    /// Ends the containers of kubelet, and what the commands of the plan have left running.
    fn stop_pods(&self, plan: &str) -> Result<(), StepError> {
        let pods = Processes::of(&self.root).end_pods();
        let others = Processes::of(Path::new("/")).end_marked(plan);
        if pods && others { Ok(()) } else { Err(StepError::Invalid("processes of pods do not end".to_owned())) }
    }

    /// Unmounts what kubelet mounted below a directory, where `is_ours` says so of the path relative to it: to remove
    /// through a mount would remove a volume's data.
    fn unmount(&self, directory: &Path, is_ours: impl Fn(&str) -> bool) -> Result<(), StepError> {
        for point in mounts::below(directory).into_iter().rev() {
            let relative = point.strip_prefix(directory).ok().and_then(Path::to_str).unwrap_or_default();
            if is_ours(relative) {
                self.run(&["umount".to_owned(), point.display().to_string()], UNDO_TIMEOUT)?;
            }
        }
        Ok(())
    }

    pub(super) fn is_undone(&self, undo: &Undo) -> bool {
        let located = |path: &str| self.locate(path).ok();
        match undo {
            Undo::RemoveFile { path } | Undo::RemoveDirectory { path } => located(path).is_some_and(|it| !it.exists()),
            Undo::RestoreFile { path, content, .. } => {
                let now = located(path).and_then(|it| fs::read(it).ok());
                now.is_some() && now == decode(content).ok()
            }
            Undo::PruneDirectory { path, keep } => located(path).is_some_and(|it| guard::is_pruned(&it, keep)),
            Undo::EnableUnit { name } => self.is_enabled(name).unwrap_or(false),
            Undo::StopUnit { .. } | Undo::ReloadUnits | Undo::StopPods | Undo::Run { .. } => true,
        }
    }
}

fn tolerate_absence(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What is undone, for messages.
pub(super) fn title(undo: &Undo) -> String {
    match undo {
        Undo::RemoveFile { path }
        | Undo::RestoreFile { path, .. }
        | Undo::RemoveDirectory { path }
        | Undo::PruneDirectory { path, .. } => path.clone(),
        Undo::StopUnit { name } | Undo::EnableUnit { name } => name.clone(),
        Undo::ReloadUnits => "the units of systemd".to_owned(),
        Undo::StopPods => "the pods".to_owned(),
        // A script may hold secrets.
        Undo::Run { argv } => argv.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" "),
    }
}
