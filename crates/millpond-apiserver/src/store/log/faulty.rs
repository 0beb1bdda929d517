//! A disk in memory that fails on purpose, for tests.
//!
//! It remembers what was synced and what was only written. [`FaultyDisk::crash`]
//! gives the disk that a machine might find after losing power: of everything
//! that was not synced, each sector of 512 bytes, each change of a length and
//! each name may or may not be there, as the seed has it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use super::format::SECTOR;
use super::io::{LogFile, LogIo};

/// The fault at an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This operation and all later ones fail, as if the process had died.
    Die,
    /// The operation fails once with "no space left".
    DiskFull,
    /// The operation fails once with an input/output error. A sync that fails
    /// forgets what it should have written, as kernels do.
    Broken,
}

/// How careless the disk is with what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tear {
    /// No unsynced write survives.
    Nothing,
    /// Every write survives, as after `kill -9`.
    Everything,
    /// Each sector survives or not, independently.
    Sectors,
}

/// A directory on that disk. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FaultyDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    files: HashMap<u64, FileBytes>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Names after each change that was not synced, oldest first.
    unsynced_names: Vec<BTreeMap<String, u64>>,
    next_file: u64,
    operations: u64,
    fault: Option<(u64, Fault)>,
    dead: bool,
    capacity: Option<u64>,
    random: Option<SmallRng>,
}

#[derive(Debug, Default, Clone)]
struct FileBytes {
    cached: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, data: Vec<u8> },
    Length(usize),
}

impl FaultyDisk {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk { random: Some(SmallRng::seed_from_u64(seed)), ..Disk::default() })))
    }

    /// A disk with one file on it.
    pub(crate) fn with_file(name: &str, bytes: Vec<u8>) -> Self {
        let disk = Self::new(0);
        {
            let mut inner = disk.0.lock();
            let file = FileBytes { cached: bytes.clone(), durable: bytes, unsynced: Vec::new() };
            inner.files.insert(0, file);
            inner.next_file = 1;
            inner.names.insert(name.to_owned(), 0);
            inner.durable_names = inner.names.clone();
        }
        disk
    }

    /// Lets the operation number `at` (counted from now) fail.
    pub(crate) fn fail_at(&self, at: u64, fault: Fault) {
        let mut disk = self.0.lock();
        disk.fault = Some((disk.operations + at, fault));
    }

    /// Bytes that all files together may have; `None` for any number.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().capacity = bytes;
    }

    /// Bytes of all files together.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.0.lock().used_bytes()
    }

    /// Operations that could have failed so far.
    pub(crate) fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// The present content of a file as a program reads it.
    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.0.lock();
        let file = disk.names.get(name)?;
        Some(disk.files[file].cached.clone())
    }

    /// The disk after a crash.
    pub(crate) fn crash(&self, seed: u64, tear: Tear) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let disk = self.0.lock();
        let survived = match tear {
            Tear::Nothing => 0,
            Tear::Everything => disk.unsynced_names.len(),
            Tear::Sectors => random.random_range(0..=disk.unsynced_names.len()),
        };
        let names = match survived.checked_sub(1) {
            Some(index) => disk.unsynced_names[index].clone(),
            None => disk.durable_names.clone(),
        };
        let mut files = HashMap::new();
        for file in names.values() {
            let bytes = disk.files[file].after_crash(&mut random, tear);
            let after = FileBytes { cached: bytes.clone(), durable: bytes, unsynced: Vec::new() };
            files.insert(*file, after);
        }
        Self(Arc::new(Mutex::new(Disk {
            files,
            durable_names: names.clone(),
            names,
            next_file: disk.next_file,
            random: Some(random),
            ..Disk::default()
        })))
    }
}

impl FileBytes {
    fn after_crash(&self, random: &mut SmallRng, tear: Tear) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for change in &self.unsynced {
            match (change, tear) {
                (_, Tear::Nothing) => {}
                (change, Tear::Everything) => change.apply(&mut bytes),
                (Change::Length(_), Tear::Sectors) => {
                    if random.random_bool(0.5) {
                        change.apply(&mut bytes);
                    }
                }
                (Change::Write { offset, data }, Tear::Sectors) => {
                    // Sometimes most of it survives, sometimes little.
                    let chance = [0.05, 0.5, 0.95][random.random_range(0..3)];
                    for (offset, data) in sectors(*offset, data) {
                        if random.random_bool(chance) {
                            write(&mut bytes, offset, data);
                        }
                    }
                }
            }
        }
        bytes
    }
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => write(bytes, *offset, data),
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }
}

fn write(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if bytes.len() < offset + data.len() {
        bytes.resize(offset + data.len(), 0);
    }
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

/// The pieces of a write that fall into one sector each.
fn sectors(offset: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let sector = SECTOR as usize;
    let mut rest = data;
    let mut at = offset;
    std::iter::from_fn(move || {
        let count = (sector - at % sector).min(rest.len());
        let (piece, later) = rest.split_at(count);
        rest = later;
        at += count;
        (count > 0).then_some((at - count, piece))
    })
}

impl Disk {
    fn used_bytes(&self) -> u64 {
        let named = self.names.values().map(|file| self.files[file].cached.len());
        named.sum::<usize>() as u64
    }

    /// Counts an operation and says whether it has to fail.
    fn count(&mut self) -> Result<Option<Fault>, io::Error> {
        self.operations += 1;
        if self.dead {
            return Err(io::Error::other("the process is dead"));
        }
        match self.fault {
            Some((at, fault)) if at == self.operations => {
                self.dead = fault == Fault::Die;
                Ok(Some(fault))
            }
            _ => Ok(None),
        }
    }

    fn random(&mut self) -> &mut SmallRng {
        self.random.get_or_insert_with(|| SmallRng::seed_from_u64(0))
    }

    fn change_names(&mut self, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        if let Some(fault) = self.count()? {
            return Err(fault.error());
        }
        change(self);
        self.unsynced_names.push(self.names.clone());
        Ok(())
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Die => io::Error::other("the process died"),
            Self::DiskFull => io::ErrorKind::StorageFull.into(),
            Self::Broken => io::Error::from_raw_os_error(5),
        }
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: FaultyDisk,
    file: u64,
}

impl LogIo for FaultyDisk {
    fn open(&self, name: &str) -> io::Result<Option<Arc<dyn LogFile>>> {
        let disk = self.0.lock();
        let opened = disk.names.get(name).map(|&file| OpenFile { disk: self.clone(), file });
        Ok(opened.map(|file| Arc::new(file) as Arc<dyn LogFile>))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut disk = self.0.lock();
        let file = disk.next_file;
        disk.change_names(|disk| {
            disk.next_file += 1;
            disk.files.insert(file, FileBytes::default());
            disk.names.insert(name.to_owned(), file);
        })?;
        Ok(Arc::new(OpenFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.lock().change_names(|disk| {
            let file = disk.names.remove(from).expect("a file to rename");
            disk.names.insert(to.to_owned(), file);
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().change_names(|disk| {
            disk.names.remove(name);
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut disk = self.0.lock();
        if let Some(fault) = disk.count()? {
            return Err(fault.error());
        }
        disk.durable_names = disk.names.clone();
        disk.unsynced_names.clear();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("faulty").join(name)
    }
}

impl OpenFile {
    /// Applies as much of a write as the fault or the capacity allows.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut disk = self.disk.0.lock();
        let mut fault = disk.count()?;
        let offset = offset as usize;
        let mut count = data.len();
        if let Some(capacity) = disk.capacity {
            let length = disk.files[&self.file].cached.len();
            let growth = (offset + count).saturating_sub(length) as u64;
            let room = capacity.saturating_sub(disk.used_bytes());
            if growth > room {
                count -= (growth - room) as usize;
                fault = fault.or(Some(Fault::DiskFull));
            }
        }
        if fault.is_some() {
            count = disk.random().random_range(0..=count);
        }
        let file = disk.files.get_mut(&self.file).expect("an open file");
        let change = Change::Write { offset, data: data[..count].to_vec() };
        if count > 0 {
            change.apply(&mut file.cached);
            file.unsynced.push(change);
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.0.lock();
        let fault = disk.count()?;
        let mut random = disk.random().clone();
        let file = disk.files.get_mut(&self.file).expect("an open file");
        match fault {
            None => {
                for change in std::mem::take(&mut file.unsynced) {
                    change.apply(&mut file.durable);
                }
                Ok(())
            }
            Some(Fault::Die) => Err(Fault::Die.error()),
            Some(fault) => {
                file.durable = file.after_crash(&mut random, Tear::Sectors);
                file.unsynced.clear();
                Err(fault.error())
            }
        }
    }
}

impl LogFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let disk = self.disk.0.lock();
        let bytes = &disk.files[&self.file].cached;
        let from = (offset as usize).min(bytes.len());
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[&self.file].cached.len() as u64)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut disk = self.disk.0.lock();
        if let Some(fault) = disk.count()? {
            return Err(fault.error());
        }
        let file = disk.files.get_mut(&self.file).expect("an open file");
        let change = Change::Length(length as usize);
        change.apply(&mut file.cached);
        file.unsynced.push(change);
        Ok(())
    }
}
