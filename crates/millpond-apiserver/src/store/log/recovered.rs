//! The state that opening a log recovers.

use std::fmt;

use super::record::{HistoryRecord, LiveObject};

/// The state that a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Every object that exists, ordered by resource and key.
    pub objects: Vec<LiveObject>,
    /// The last writes, oldest first, each with what was there before.
    pub history: Vec<HistoryRecord>,
    /// The last revision.
    pub revision: u64,
    /// History is complete above this revision; a watch that wants to begin
    /// at or before it has to list anew.
    pub compacted_revision: u64,
    /// Id of the store, which is kept by compactions and restores.
    pub store_id: [u8; 16],
    /// Remarks for the user.
    pub notes: Vec<Note>,
}

/// An observation or repair at opening, without loss of acknowledged data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// There was no store, and an empty one was created.
    Created,
    /// The last process did not close the store: a crash, a kill or a power cut.
    NotClosed,
    /// A write that was cut short was dropped. It had not been acknowledged.
    TornTail {
        /// Offset of its first byte.
        offset: u64,
        /// Its length, as far as it had been written.
        bytes: u64,
    },
    /// One of the two slot pages was unreadable; the other was used.
    SlotReplaced {
        /// Where the bad one is.
        offset: u64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => write!(formatter, "a new store was made"),
            Self::NotClosed => {
                write!(formatter, "the store was not closed in order; every acknowledged write was recovered")
            }
            Self::TornTail { offset, bytes } => write!(
                formatter,
                "an unfinished write of {bytes} bytes at {offset} was dropped; \
                 it had not been acknowledged"
            ),
            Self::SlotReplaced { offset } => {
                write!(formatter, "the slot page at {offset} was unreadable; its twin was used")
            }
        }
    }
}
