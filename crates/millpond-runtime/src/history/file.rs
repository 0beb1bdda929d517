//! The files of the history: JSON lines that are appended, and compressed snapshots.
//!
//! Lines are not synchronized to the disk: after a power cut the last decisions may be missing, which costs an
//! explanation and no node.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record::{Decision, Outcome};

/// Snapshots that are kept: of the last decisions, and as many again of failed ones.
const MAX_SNAPSHOTS: usize = 64;
/// Bytes of compressed snapshots that are kept in memory.
const MAX_MEMORY: usize = 16 << 20;
/// Bytes of compressed snapshots that are kept on disk.
const MAX_DISK: usize = 256 << 20;
/// The file is rewritten when it is longer than twice what is kept, and this.
const SLACK: usize = 1 << 20;
/// How hard snapshots are compressed: the least, which is a fifth of the size already.
const LEVEL: u8 = 1;
/// A longer snapshot is not unpacked.
const MAX_SNAPSHOT: usize = 1 << 30;

const FILE: &str = "decisions.jsonl";
const SNAPSHOTS: &str = "snapshots";

/// The files of a history cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use `{path}`")]
pub struct HistoryError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> HistoryError {
    let path = path.to_owned();
    move |source| HistoryError { path, source }
}

/// What a line of the file says.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line<'l> {
    /// A decision.
    Decision(&'l Decision),
    /// What came of one of its actions.
    Outcome {
        /// The decision.
        number: u64,
        /// The place of the action.
        at: usize,
        /// The node of its object.
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<&'l str>,
        /// All that is known.
        outcome: &'l Outcome,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum OwnedLine {
    Decision(Decision),
    Outcome {
        number: u64,
        at: usize,
        #[serde(default)]
        node: Option<String>,
        outcome: Outcome,
    },
}

/// Bytes of a decision in the file.
pub(super) fn length(decision: &Decision) -> usize {
    line(&Line::Decision(decision)).len()
}

fn line(line: &Line<'_>) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The decisions in the file of a directory, the oldest first; none if there is no file.
pub fn read(directory: &Path) -> Result<Vec<Decision>, HistoryError> {
    let path = directory.join(FILE);
    match File::open(&path) {
        Ok(file) => read_lines(BufReader::new(file)).map(|(decisions, _)| decisions).map_err(at(&path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(at(&path)(error)),
    }
}

/// The snapshot of a decision in a directory, if it is kept there.
pub fn read_snapshot(directory: &Path, number: u64) -> Result<Option<String>, HistoryError> {
    let path = directory.join(SNAPSHOTS).join(format!("d-{number}"));
    match fs::read(&path) {
        Ok(bytes) => Ok(unpack(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(&path)(error)),
    }
}

/// Decisions, and the length of the lines that are whole.
fn read_lines(mut lines: impl BufRead) -> io::Result<(Vec<Decision>, u64)> {
    let (mut decisions, mut length) = (BTreeMap::<u64, Decision>::new(), 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = lines.read_until(b'\n', &mut bytes)?;
        if bytes.last() != Some(&b'\n') {
            // The end, or a line that was not finished.
            return Ok((decisions.into_values().collect(), length));
        }
        length += read as u64;
        match serde_json::from_slice(&bytes) {
            Ok(OwnedLine::Decision(decision)) => drop(decisions.insert(decision.number, decision)),
            Ok(OwnedLine::Outcome { number, at, node, outcome }) => {
                if let Some(action) = decisions.get_mut(&number).and_then(|it| it.actions.get_mut(at)) {
                    action.node = node.or(action.node.take());
                    action.outcome = outcome;
                }
            }
            // Of another version, or damaged: the others are still good.
            Err(_) => {}
        }
    }
}

/// Removes the files of a directory.
pub(super) fn clear(directory: &Path) -> Result<(), HistoryError> {
    let (file, snapshots) = (directory.join(FILE), directory.join(SNAPSHOTS));
    let gone = |removed: io::Result<()>, path: &Path| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    };
    gone(fs::remove_file(&file), &file)?;
    gone(fs::remove_dir_all(&snapshots), &snapshots)
}

/// The file that decisions are appended to, or none.
pub(super) struct Log {
    file: Option<(PathBuf, File)>,
    length: usize,
}

impl Log {
    pub(super) fn none() -> Self {
        Self { file: None, length: 0 }
    }

    pub(super) fn open(directory: &Path) -> Result<(Vec<Decision>, Self), HistoryError> {
        fs::create_dir_all(directory).map_err(at(directory))?;
        let path = directory.join(FILE);
        let file = owned().read(true).append(true).create(true).open(&path).map_err(at(&path))?;
        let (decisions, whole) = read_lines(BufReader::new(&file)).map_err(at(&path))?;
        file.set_len(whole).map_err(at(&path))?;
        Ok((decisions, Self { file: Some((path, file)), length: usize::try_from(whole).unwrap_or(usize::MAX) }))
    }

    /// Appends a line; returns its length.
    pub(super) fn append(&mut self, what: &Line<'_>) -> usize {
        let bytes = line(what);
        if let Some((path, file)) = &mut self.file {
            match file.write_all(&bytes) {
                Ok(()) => self.length += bytes.len(),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "the decision history is kept in memory only from now on");
                    self.file = None;
                }
            }
        }
        bytes.len()
    }

    /// Whether most of the file is about what is not kept any more.
    pub(super) fn is_long(&self, kept: usize) -> bool {
        self.file.is_some() && self.length > 2 * kept + SLACK
    }

    /// Writes only these decisions; the file is replaced at once.
    pub(super) fn rewrite<'d>(&mut self, decisions: impl Iterator<Item = &'d Decision>) {
        let Some((path, _)) = &self.file else { return };
        let path = path.clone();
        match replace(&path, decisions) {
            Ok((file, length)) => (self.file, self.length) = (Some((path, file)), length),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "the decision history could not be shortened");
                // Not tried again at each decision.
                self.length = 0;
            }
        }
    }
}

fn replace<'d>(path: &Path, decisions: impl Iterator<Item = &'d Decision>) -> io::Result<(File, usize)> {
    let temporary = path.with_extension("new");
    let mut file = io::BufWriter::new(owned().write(true).create(true).truncate(true).open(&temporary)?);
    let mut length = 0;
    for decision in decisions {
        let bytes = line(&Line::Decision(decision));
        file.write_all(&bytes)?;
        length += bytes.len();
    }
    file.flush()?;
    fs::rename(&temporary, path)?;
    Ok((owned().append(true).open(path)?, length))
}

/// Snapshots name everything that runs: only the owner reads them.
fn owned() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

pub(super) fn pack(text: &str) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(text.as_bytes(), LEVEL)
}

fn unpack(bytes: &[u8]) -> Option<String> {
    let text = miniz_oxide::inflate::decompress_to_vec_with_limit(bytes, MAX_SNAPSHOT).ok()?;
    String::from_utf8(text).ok()
}

/// The snapshots that are kept.
pub(super) struct Snapshots {
    /// Whether any is.
    wanted: bool,
    /// None: in memory.
    directory: Option<PathBuf>,
    kept: VecDeque<Kept>,
}

struct Kept {
    number: u64,
    failed: bool,
    length: usize,
    /// Empty where it is a file.
    bytes: Vec<u8>,
}

impl Snapshots {
    pub(super) fn none() -> Self {
        Self { wanted: false, directory: None, kept: VecDeque::new() }
    }

    pub(super) fn in_memory() -> Self {
        Self { wanted: true, ..Self::none() }
    }

    pub(super) fn are_kept(&self) -> bool {
        self.wanted
    }

    pub(super) fn open(directory: &Path) -> Result<Self, HistoryError> {
        let directory = directory.join(SNAPSHOTS);
        fs::create_dir_all(&directory).map_err(at(&directory))?;
        let mut kept = Vec::new();
        for entry in fs::read_dir(&directory).map_err(at(&directory))? {
            let entry = entry.map_err(at(&directory))?;
            let number = entry.file_name().to_str().and_then(Decision::number_of);
            let length = entry.metadata().map_or(0, |it| usize::try_from(it.len()).unwrap_or(usize::MAX));
            kept.extend(number.map(|number| Kept { number, failed: false, length, bytes: Vec::new() }));
        }
        kept.sort_by_key(|it| it.number);
        Ok(Self { wanted: true, directory: Some(directory), kept: kept.into() })
    }

    pub(super) fn add(&mut self, number: u64, failed: bool, bytes: Vec<u8>) {
        if !self.wanted {
            return;
        }
        let length = bytes.len();
        let bytes = match &self.directory {
            None => bytes,
            Some(directory) => {
                let path = directory.join(format!("d-{number}"));
                let written = owned()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(&path)
                    .and_then(|mut file| file.write_all(&bytes));
                if let Err(error) = written {
                    tracing::warn!(file = %path.display(), %error, "the snapshot of a decision is not kept");
                    return;
                }
                Vec::new()
            }
        };
        self.kept.push_back(Kept { number, failed, length, bytes });
        self.shorten();
    }

    fn shorten(&mut self) {
        for failed in [false, true] {
            let count = self.kept.iter().filter(|it| it.failed == failed).count();
            (MAX_SNAPSHOTS..count).for_each(|_| self.drop_first(|it| it.failed == failed));
        }
        let most = if self.directory.is_some() { MAX_DISK } else { MAX_MEMORY };
        while self.kept.len() > 1 && self.kept.iter().map(|it| it.length).sum::<usize>() > most {
            self.drop_first(|_| true);
        }
    }

    fn drop_first(&mut self, which: impl Fn(&Kept) -> bool) {
        let Some(first) = self.kept.iter().position(which) else { return };
        if let (Some(kept), Some(directory)) = (self.kept.remove(first), &self.directory) {
            // One that cannot be removed is tried again with the next start.
            let _ = fs::remove_file(directory.join(format!("d-{}", kept.number)));
        }
    }

    pub(super) fn mark_failed(&mut self, number: u64) {
        if let Some(kept) = self.kept.iter_mut().find(|it| it.number == number) {
            kept.failed = true;
        }
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.kept.iter().any(|it| it.number == number)
    }

    pub(super) fn get(&self, number: u64) -> Option<String> {
        let kept = self.kept.iter().find(|it| it.number == number)?;
        match &self.directory {
            None => unpack(&kept.bytes),
            Some(directory) => unpack(&fs::read(directory.join(format!("d-{number}"))).ok()?),
        }
    }
}
