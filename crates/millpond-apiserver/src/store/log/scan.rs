//! Reading a store's file: the first pages, then frame after frame.
//!
//! [`read_preamble`] reads the header and the slots and decides how far the
//! file has to be intact. [`Frames`] walks over the frames and verifies each.
//! [`judge`] decides what a bad frame means: an unfinished write that was
//! never acknowledged, or damage. What the entries mean is for `walk.rs`.

use std::io;
use std::path::Path;

use super::error::{Damage, FileError, OpenError};
use super::format::{
    DATA_START, FORMAT, FRAME_FIRST_BYTE, FRAME_HEADER, FrameHeader, Header, HeaderFault, PAGE, Seal, Slot,
    first_nonzero, is_unfinished,
};
use super::io::{LogFile, read_full};

/// The content of the first three pages.
#[derive(Debug, Clone)]
pub(super) struct Preamble {
    pub(super) header: Header,
    /// The newest slot.
    pub(super) slot: Slot,
    /// The log was closed in order: the file ends where its data ends.
    pub(super) closed: bool,
    pub(super) file_bytes: u64,
    /// Index of a slot page that was found damaged and could be done without.
    pub(super) damaged_slot: Option<u64>,
}

/// Reads and cross-checks header and slots.
pub(super) fn read_preamble(file: &dyn LogFile, path: &Path) -> Result<Preamble, OpenError> {
    let reading = |error| FileError::new("read", path, error);
    let file_bytes = file.length().map_err(reading)?;
    let mut pages = [0; 3 * PAGE];
    let filled = read_full(file, &mut pages, 0).map_err(reading)?;
    let header = decode_header(page(&pages, 0), path, filled)?;
    if filled < pages.len() {
        return Err(truncated(path, DATA_START, filled as u64).into());
    }
    let seal = header.seal();
    let slots = [0, 1].map(|index| Slot::decode(page(&pages, index + 1), seal, index as u64));
    let (slot, damaged_slot) = judge_slots(slots, file_bytes, path)?;
    Ok(Preamble { header, slot, closed: slot.clean && file_bytes == slot.durable, file_bytes, damaged_slot })
}

/// For `check` only, after [`read_preamble`] found damage: uses the header and no slot, so that the frames can still be
/// read.
pub(super) fn read_header_only(file: &dyn LogFile, path: &Path) -> Result<Preamble, OpenError> {
    let reading = |error| FileError::new("read", path, error);
    let mut first = [0; PAGE];
    let filled = read_full(file, &mut first, 0).map_err(reading)?;
    Ok(Preamble {
        header: decode_header(&first, path, filled)?,
        slot: Slot { sequence: 0, durable: DATA_START, allocated: DATA_START, revision: 0, clean: false },
        closed: false,
        file_bytes: file.length().map_err(reading)?,
        damaged_slot: None,
    })
}

fn page(pages: &[u8; 3 * PAGE], index: usize) -> &[u8; PAGE] {
    pages[index * PAGE..].first_chunk().expect("the index is below three")
}

fn decode_header(page: &[u8; PAGE], path: &Path, filled: usize) -> Result<Header, OpenError> {
    let fault = match Header::decode(page) {
        Ok(header) => return Ok(header),
        Err(fault) => fault,
    };
    Err(match fault {
        HeaderFault::NotAStore if filled == 0 => truncated(path, DATA_START, 0).into(),
        HeaderFault::NotAStore => OpenError::NotAStore {
            path: path.to_owned(),
            found: format!("\"{}\"", page[..filled.min(8)].escape_ascii()),
        },
        HeaderFault::Format(found) => OpenError::UnsupportedFormat { path: path.to_owned(), found, supported: FORMAT },
        HeaderFault::Checksum { .. } if filled < PAGE => truncated(path, DATA_START, filled as u64).into(),
        HeaderFault::Checksum { expected, found } => {
            Damage::new(path, 0, format!("a header with checksum {expected:08x}"), format!("{found:08x}")).into()
        }
        HeaderFault::Padding(offset) => Damage::new(path, offset, "zero after the header", "another byte").into(),
    })
}

fn truncated(path: &Path, expected: u64, found: u64) -> Damage {
    let missing = expected - found;
    Damage::new(
        path,
        found,
        format!("a file of at least {expected} bytes"),
        format!("its end: the last {missing} bytes were cut off"),
    )
}

/// Chooses the newest slot, and says which one is damaged but not needed.
///
/// The slots are written in turn, so that a crash spoils one of them at most.
/// In a file that was closed in order neither can be spoilt: the last step of
/// closing is to cut the file to its data, and the first step of the next use
/// is to let it grow.
fn judge_slots(slots: [Result<Slot, String>; 2], file_bytes: u64, path: &Path) -> Result<(Slot, Option<u64>), Damage> {
    let damage = |index: u64, found: &str| {
        let offset = Slot::page_offset(index);
        Damage::new(path, offset, "an intact slot page", found)
    };
    let (newest, other) = match slots {
        [Ok(first), Ok(second)] if first.sequence > second.sequence => (first, Ok(second)),
        [Ok(first), Ok(second)] => (second, Ok(first)),
        [Ok(only), Err(reason)] | [Err(reason), Ok(only)] => (only, Err(reason)),
        [Err(reason), Err(_)] => return Err(damage(0, &format!("{reason}, as on the other"))),
    };
    let other_index = 1 - newest.sequence % 2;
    let least = if newest.clean { newest.durable } else { newest.allocated };
    if file_bytes < least {
        return Err(truncated(path, least, file_bytes));
    }
    let closed = newest.clean && file_bytes == newest.durable;
    match other {
        Ok(other) if !follows(&other, &newest) => Err(damage(other_index, "a slot that does not precede the newest")),
        Ok(other) if closed && !(other.clean && other.durable == newest.durable) => {
            Err(damage(other_index, "an open slot in a closed store"))
        }
        Ok(_) => Ok((newest, None)),
        Err(reason) if closed => Err(damage(other_index, &reason)),
        Err(_) => Ok((newest, Some(other_index))),
    }
}

fn follows(older: &Slot, newer: &Slot) -> bool {
    older.sequence + 1 == newer.sequence && older.durable <= newer.durable && older.revision <= newer.revision
}

/// The result of [`Frames::next`].
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A frame with valid checksums.
    Frame { offset: u64, header: FrameHeader, payload: &'a [u8] },
    /// Bytes that are no valid frame.
    Bad(BadFrame),
    /// The end of the file.
    End,
}

/// Bytes that are not a frame.
#[derive(Debug)]
pub(super) struct BadFrame {
    pub(super) offset: u64,
    pub(super) expected: String,
    pub(super) found: String,
    /// A part of it was never written; see [`is_unfinished`].
    pub(super) unfinished: bool,
}

impl BadFrame {
    pub(super) fn damage(&self, path: &Path) -> Damage {
        Damage::new(path, self.offset, &*self.expected, &*self.found)
    }
}

/// Reads the frames of a file in order.
#[derive(Debug)]
pub(super) struct Frames<'f> {
    window: Window<'f>,
    seal: Seal,
    /// Where the next frame begins.
    pub(super) position: u64,
    end: u64,
}

impl<'f> Frames<'f> {
    /// Frames between `start`, which must be a frame's beginning, and `end`.
    pub(super) fn new(file: &'f dyn LogFile, seal: Seal, start: u64, end: u64) -> Self {
        Self { window: Window::new(file, end), seal, position: start, end }
    }

    /// Verifies the frame at the position and moves behind it.
    pub(super) fn next(&mut self) -> io::Result<Step<'_>> {
        let offset = self.position;
        if offset >= self.end {
            return Ok(Step::End);
        }
        let available = self.end - offset;
        let head_bytes = (FRAME_HEADER as u64).min(available) as usize;
        let head = self.window.bytes(offset, head_bytes)?;
        let Some(header) = FrameHeader::decode(head, self.seal, offset) else {
            return Ok(Step::Bad(bad_header(head, offset)));
        };
        let frame_bytes = header.frame_bytes();
        if frame_bytes > available {
            return Ok(Step::Bad(cut_frame(offset, frame_bytes, available)));
        }
        let frame = self.window.bytes(offset, frame_bytes as usize)?;
        if frame.len() < frame_bytes as usize {
            return Ok(Step::Bad(cut_frame(offset, frame_bytes, frame.len() as u64)));
        }
        if let Err((expected, found)) = header.verify(frame) {
            return Ok(Step::Bad(BadFrame { offset, expected, found, unfinished: is_unfinished(frame, offset) }));
        }
        self.position += frame_bytes;
        let payload = &self.window.bytes(offset, frame_bytes as usize)?[FRAME_HEADER..];
        Ok(Step::Frame { offset, header, payload: &payload[..header.payload_bytes as usize] })
    }

    /// Offset of the next intact frame header at or after `from`.
    pub(super) fn find_header(&mut self, from: u64) -> io::Result<Option<u64>> {
        let mut offset = from;
        while offset < self.end {
            let wanted = (self.end - offset).min(WINDOW_BYTES as u64) as usize;
            let bytes = self.window.bytes(offset, wanted)?;
            if bytes.is_empty() {
                break;
            }
            // A header that may go on after the window is looked at in the next one.
            let whole = (bytes.len() + 1).saturating_sub(FRAME_HEADER).max(1);
            for (index, _) in bytes[..whole].iter().enumerate().filter(|&(_, &byte)| byte == FRAME_FIRST_BYTE) {
                let place = offset + index as u64;
                if FrameHeader::decode(&bytes[index..], self.seal, place).is_some() {
                    return Ok(Some(place));
                }
            }
            offset += whole as u64;
        }
        Ok(None)
    }

    /// First and last offset of bytes that are not zero, at or after `from`.
    pub(super) fn nonzero_range(&mut self, from: u64) -> io::Result<Option<(u64, u64)>> {
        let mut range = None;
        let mut offset = from;
        while offset < self.end {
            let wanted = (self.end - offset).min(WINDOW_BYTES as u64) as usize;
            let bytes = self.window.bytes(offset, wanted)?;
            if bytes.is_empty() {
                break;
            }
            if let Some(first) = first_nonzero(bytes) {
                let last = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(first);
                let (start, _) = range.unwrap_or((offset + first as u64, 0));
                range = Some((start, offset + last as u64));
            }
            offset += bytes.len() as u64;
        }
        Ok(range)
    }
}

fn bad_header(head: &[u8], offset: u64) -> BadFrame {
    BadFrame {
        offset,
        expected: "the header of a batch".to_owned(),
        found: match first_nonzero(head) {
            None => "zeros".to_owned(),
            Some(_) => format!("{:02x?}", &head[..head.len().min(8)]),
        },
        unfinished: is_unfinished(head, offset),
    }
}

fn cut_frame(offset: u64, expected: u64, available: u64) -> BadFrame {
    BadFrame {
        offset,
        expected: format!("a batch of {expected} bytes"),
        found: format!("the end of the file after {available}"),
        // Space is allocated before a batch is written to it.
        unfinished: false,
    }
}

/// The content after the last valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    /// Only zeros.
    Zeros,
    /// A write that a crash cut short; it was never acknowledged.
    Torn {
        offset: u64,
        /// Up to the last byte of it that is not zero.
        bytes: u64,
    },
}

/// Decides what a bad frame is.
pub(super) fn judge(
    frames: &mut Frames<'_>,
    bad: &BadFrame,
    preamble: &Preamble,
    path: &Path,
) -> Result<Tail, OpenError> {
    let reading = |error| FileError::new("read", path, error);
    if bad.offset < preamble.slot.durable {
        return Err(bad.damage(path).into());
    }
    let Some((first, last)) = frames.nonzero_range(bad.offset).map_err(reading)? else {
        return Ok(Tail::Zeros);
    };
    if preamble.slot.clean {
        let expected = "zeros after the data of a closed store";
        return Err(Damage::new(path, first, expected, "another byte").into());
    }
    if !bad.unfinished {
        return Err(bad.damage(path).into());
    }
    if let Some(next) = frames.find_header(bad.offset + 1).map_err(reading)? {
        // Only one batch is written at a time, so one that another follows was acknowledged.
        let found = format!("{}, and another batch after it at {next}", bad.found);
        return Err(Damage::new(path, bad.offset, &*bad.expected, found).into());
    }
    Ok(Tail::Torn { offset: bad.offset, bytes: last + 1 - bad.offset })
}

/// Bytes read at a time: large enough to make system calls cheap, small
/// enough to stay in a core's cache between reading, checksum and copy.
const WINDOW_BYTES: usize = 1 << 20;

/// The part of the file that was read last.
#[derive(Debug)]
struct Window<'f> {
    file: &'f dyn LogFile,
    end: u64,
    buffer: Vec<u8>,
    start: u64,
    filled: usize,
}

impl<'f> Window<'f> {
    fn new(file: &'f dyn LogFile, end: u64) -> Self {
        Self { file, end, buffer: Vec::new(), start: 0, filled: 0 }
    }

    /// `count` bytes at `offset`, or fewer at the end of the file.
    fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let held = self.start..self.start + self.filled as u64;
        if !(held.contains(&offset) && offset + count as u64 <= held.end) {
            let ahead = self.end.saturating_sub(offset).min(WINDOW_BYTES as u64);
            self.buffer.resize(count.max(ahead as usize), 0);
            self.start = offset;
            self.filled = 0;
            self.filled = read_full(self.file, &mut self.buffer, offset)?;
        }
        let from = (offset - self.start) as usize;
        let to = (from + count).min(self.filled);
        Ok(&self.buffer[from..to.max(from)])
    }
}
