//! The durable log under the store: one file that is only appended to.
//!
//! Reads do not use the log, because all objects are in memory. The log takes batches (a group commit each), makes them
//! durable, and returns everything after a restart: the existing objects, and the last minutes of history so that
//! watchers can resume. It is synchronous and meant for one thread.
//!
//! ```text
//!              append(batch) ──► frame ──► one write, one fdatasync ──► Ok = durable
//!  file:  [ header | slot 0 | slot 1 | snapshot … | end | batch | batch | … | zeros ]
//!              open ──► scan ──► walk ──► replay ──► Recovered
//! ```
//!
//! What holds:
//! - A batch is recovered as a whole or not at all, and it is durable once `append` returned `Ok`.
//! - Acknowledged bytes that are wrong or missing stop `open` with their offset. An unfinished write that was never
//!   acknowledged is dropped, with a note.
//! - A failed sync is never retried; a full disk costs the batch, not the log.
//!
//! Deliberately absent: reading single objects, indexes, more than one writer,
//! repairing damage by guessing. `docs/adr/0002-own-log.md` says why this is not
//! a database. Read on in `format.rs` (bytes), `scan.rs` (what is damage),
//! `engine.rs` (commits), `compact.rs`, and `tools.rs` for `millpond store`.

mod compact;
mod engine;
mod error;
#[cfg(test)]
pub(crate) mod faulty;
mod format;
mod io;
mod record;
mod recovered;
mod replay;
mod scan;
#[cfg(test)]
mod tests;
mod tools;
mod walk;
mod writer;

pub use compact::{CompactedFile, CompactionJob, CompactionSummary, RetiredFile, Snapshot};
pub use engine::{Log, Options};
pub use error::{AppendError, CompactError, CopyError, Damage, FileError, OpenError};
pub use format::{FORMAT, MAX_BATCH_BYTES};
pub use io::{Directory, FILE_NAME, LogFile, LogIo};
pub use record::{HistoryRecord, LiveObject, Previous, Record, RecordKind};
pub use recovered::{Note, Recovered};
pub use tools::{
    CheckReport, CopyReport, DEFAULT_REVISION_RAISE, FileState, RestoreOptions, Unreadable, backup, check, restore,
};
