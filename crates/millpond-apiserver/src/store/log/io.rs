//! The file operations that the log needs, and nothing else of the file system.
//!
//! [`LogIo`] is a directory with a few names in it, [`LogFile`] one open file.
//! [`Directory`] is the real thing; tests put a disk in its place that loses
//! unsynced sectors, flips bits and runs full (`faulty.rs`).

use std::fmt::Debug;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{FileError, OpenError};

/// The store's file inside the data directory.
pub const FILE_NAME: &str = "millpond.store";
/// A file that is being written and will take the store's name.
pub(super) const NEW_FILE_NAME: &str = "millpond.store.new";
/// Held with an exclusive lock while the store is open, and names the process. The store's file is locked as well:
/// removing this one does not let a second server in.
const LOCK_FILE_NAME: &str = "millpond.store.lock";

/// An open file. Methods take `&self`, because a compaction reads while the engine appends.
pub trait LogFile: Send + Sync + Debug {
    /// Reads at most `buffer.len()` bytes; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data`, growing the file where needed.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes data durable, and the length where it grew.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes data and every kind of length change durable.
    fn sync_all(&self) -> io::Result<()>;
    /// The present length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Cuts the file, or grows it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
}

/// The directory that the store lives in, locked for this log alone.
pub trait LogIo: Send + Sync + Debug {
    /// Opens a file for reading and writing, for this log alone; `None` when there is none, `ResourceBusy` when
    /// another process has it.
    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn LogFile>>>;
    /// Creates an empty file, readable and writable by its owner alone; replaces an existing one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;
    /// Gives a file another name, atomically in place of what had that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; it is no error when there is none.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes created, renamed and removed names durable.
    fn sync_names(&self) -> io::Result<()>;
    /// The path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// Reads until `buffer` is full or the file ends.
pub(super) fn read_full(file: &dyn LogFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether an error means "no space now", as opposed to a broken disk.
pub(super) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

impl LogFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// A file that this process has locked. Dropping it gives the lock back at once: closing alone would not while a child
/// process that is being started still has a copy of the descriptor.
#[derive(Debug)]
struct LockedFile(File);

impl LockedFile {
    /// Locks a file, if no other process has locked it.
    fn lock(file: File) -> io::Result<Self> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing the file releases the lock too, only later.
        let _ = self.0.unlock();
    }
}

impl LogFile for LockedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        LogFile::read_at(&self.0, buffer, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        LogFile::write_all_at(&self.0, data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        LogFile::sync_data(&self.0)
    }

    fn sync_all(&self) -> io::Result<()> {
        LogFile::sync_all(&self.0)
    }

    fn length(&self) -> io::Result<u64> {
        LogFile::length(&self.0)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        LogFile::set_length(&self.0, length)
    }
}

/// A locked directory of the real file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    handle: File,
    _lock: LockedFile,
}

impl Directory {
    /// Makes the directory where it is missing (0700) and locks it.
    pub fn lock(path: &Path) -> Result<Self, OpenError> {
        let made = make_directory(path)?;
        let lock = take_lock(path)?;
        let handle = File::open(path).map_err(|error| FileError::new("open", path, error))?;
        if made && let Some(parent) = path.parent() {
            // The new directory's own name has to survive a power cut, too.
            sync_directory(parent)?;
        }
        Ok(Self { path: path.to_owned(), handle, _lock: lock })
    }
}

impl LogIo for Directory {
    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn LogFile>>> {
        let path = self.path.join(name);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let file = LockedFile::lock(file)?;
        // Between opening and locking, a compaction of another process may have put a new file in its place.
        let (locked, named) = (file.0.metadata()?, std::fs::metadata(&path)?);
        if (locked.dev(), locked.ino()) != (named.dev(), named.ino()) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(Some(Arc::new(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.remove(name)?;
        let file = LockedFile::lock(create_private(&self.path.join(name))?)?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// A new file that only its owner can read; an error when the name is taken.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Makes the names in a directory durable. An empty path is the working directory.
pub(super) fn sync_directory(path: &Path) -> Result<(), FileError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|error| FileError::new("sync", path, error))
}

/// The process that has a store open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    /// The id that it wrote into the lock file, if it did.
    pub(super) process: Option<u32>,
}

/// The process that holds the lock of a directory or of its store's file, for commands that only read.
pub(super) fn lock_holder(directory: &Path) -> Option<Holder> {
    let held = |name: &str| {
        let file = File::open(directory.join(name)).ok()?;
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(file)
    };
    match held(LOCK_FILE_NAME) {
        Some(mut file) => Some(Holder { process: read_holder(&mut file) }),
        None => held(FILE_NAME).map(|_| Holder { process: None }),
    }
}

fn make_directory(path: &Path) -> Result<bool, OpenError> {
    if path.is_dir() {
        return Ok(false);
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| OpenError::NotWritable { path: path.to_owned(), source })?;
    Ok(true)
}

fn take_lock(directory: &Path) -> Result<LockedFile, OpenError> {
    let path = directory.join(LOCK_FILE_NAME);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| OpenError::NotWritable { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => {
            note_holder(&mut file);
            Ok(LockedFile(file))
        }
        Err(TryLockError::WouldBlock) => {
            Err(OpenError::AlreadyOpen { directory: directory.to_owned(), process: read_holder(&mut file) })
        }
        Err(TryLockError::Error(error)) => Err(FileError::new("lock", &path, error).into()),
    }
}

/// The id is a courtesy to the reader of an error message, so a full disk may lose it.
fn note_holder(file: &mut File) {
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
}

fn read_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child process has copies of all descriptors until it runs its program.
    #[test]
    fn a_lock_is_given_back_while_a_copy_of_the_descriptor_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locked");
        let locked = LockedFile::lock(create_private(&path).unwrap()).unwrap();
        let _copy = locked.0.try_clone().unwrap();
        let again = || LockedFile::lock(OpenOptions::new().write(true).open(&path).unwrap());
        assert_eq!(again().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(locked);
        again().unwrap();
    }
}
