//! The layout of the file and its checksums.
//!
//! ```text
//!      0  header page: magic, format, store id, generation, compacted revision
//!   4096  slot page 0 ┐ "durable up to byte L, revision R, allocated up to A",
//!   8192  slot page 1 ┘ written in turn
//!  12288  snapshot frames: the objects as of the compacted revision
//!         one end-of-snapshot frame
//!         batch frames: every later write, one frame per commit
//!         zeros up to the allocated length
//! ```
//!
//! All numbers are little-endian. Every checksum starts from the store id, the
//! generation of the file and the place of the structure, so that a block
//! which belongs to another file or another offset never passes for a good
//! one. Whatever is not used must be zero, and is checked.

use crc32fast::Hasher;

/// The format that this build reads and writes.
pub const FORMAT: u32 = 1;

pub(super) const PAGE: usize = 4096;
/// The unit that a disk writes atomically.
pub(super) const SECTOR: u64 = 512;
/// Where frames begin.
pub(super) const DATA_START: u64 = 3 * PAGE as u64;
/// Bytes of frame header before and trailer after a payload.
pub(super) const FRAME_HEADER: usize = 24;
pub(super) const FRAME_TRAILER: usize = 4;
/// Limit of one frame's payload, hence of the memory that reading a frame
/// takes. The largest object is 3 MiB, so a batch of twenty always fits.
pub const MAX_BATCH_BYTES: u64 = 64 << 20;

const MAGIC: [u8; 8] = *b"\x8dMPSTORE";
const HEADER_BYTES: usize = 60;
const SLOT_MAGIC: [u8; 4] = *b"\x8dMPW";
const SLOT_BYTES: usize = 44;
const CLEAN: u32 = 1;
/// More commits than any file sees; keeps hostile numbers from overflowing.
const MOST_SLOTS: u64 = u64::MAX >> 1;
/// Bytes that no JSON text holds, so that a frame is never found inside an object.
const FRAME_MAGIC: [u8; 3] = [0xfb, 0x6d, 0x70];
/// Non-zero ends of a frame's header and of the frame: with these, a piece of
/// a frame that was never written is all zeros, and one that was is not.
const HEADER_MARK: [u8; 4] = [0xfd, 0xf5, 0xfd, 0xfb];
const TRAILER: [u8; FRAME_TRAILER] = [0xfe, 0xf7, 0xfe, 0xfd];

/// The header page, written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) store_id: [u8; 16],
    /// Counts the files of one store: each compaction writes the next.
    pub(super) generation: u64,
    /// The snapshot holds the objects as of this revision.
    pub(super) compacted_revision: u64,
    pub(super) created_unix_ms: u64,
}

/// Why a header page is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    NotAStore,
    Checksum { expected: u32, found: u32 },
    Format(u32),
    Padding(u64),
}

impl Header {
    pub(super) fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let mut writer = Fields::new(&mut page);
        writer.bytes(&MAGIC);
        writer.u32(FORMAT);
        writer.u32(0);
        writer.bytes(&self.store_id);
        writer.u64(self.generation);
        writer.u64(self.compacted_revision);
        writer.u64(self.created_unix_ms);
        let checksum = crc32fast::hash(writer.written());
        writer.u32(checksum);
        page
    }

    pub(super) fn decode(page: &[u8; PAGE]) -> Result<Self, HeaderFault> {
        if page[..8] != MAGIC {
            return Err(HeaderFault::NotAStore);
        }
        let found = u32_at(page, HEADER_BYTES - 4);
        let expected = crc32fast::hash(&page[..HEADER_BYTES - 4]);
        if found != expected {
            return Err(HeaderFault::Checksum { expected, found });
        }
        match u32_at(page, 8) {
            FORMAT => {}
            other => return Err(HeaderFault::Format(other)),
        }
        if let Some(offset) = first_nonzero(&page[HEADER_BYTES..]) {
            return Err(HeaderFault::Padding((HEADER_BYTES + offset) as u64));
        }
        Ok(Self {
            store_id: array_at(page, 16),
            generation: u64_at(page, 32),
            compacted_revision: u64_at(page, 40),
            created_unix_ms: u64_at(page, 48),
        })
    }

    pub(super) fn seal(&self) -> Seal {
        let mut hasher = Hasher::new();
        hasher.update(&self.store_id);
        hasher.update(&self.generation.to_le_bytes());
        Seal(hasher.finalize())
    }
}

/// The seed of all checksums of one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seal(u32);

impl Seal {
    pub(super) fn checksum(self, place: u64, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new_with_initial(self.0);
        hasher.update(&place.to_le_bytes());
        hasher.update(bytes);
        hasher.finalize()
    }
}

/// One of the two pages that record up to where the file is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// Counts the slots ever written to this file; slot `n` is on page `n % 2`.
    pub(super) sequence: u64,
    /// Bytes of the file that were synced before this slot was written.
    pub(super) durable: u64,
    /// Length of the file, zeros included, that was synced before.
    pub(super) allocated: u64,
    /// The revision at `durable`.
    pub(super) revision: u64,
    /// Nothing was or is being appended after `durable`.
    pub(super) clean: bool,
}

impl Slot {
    pub(super) fn offset(&self) -> u64 {
        Self::page_offset(self.sequence)
    }

    pub(super) fn page_offset(sequence: u64) -> u64 {
        PAGE as u64 * (1 + sequence % 2)
    }

    pub(super) fn encode(&self, seal: Seal) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let mut writer = Fields::new(&mut bytes);
        writer.bytes(&SLOT_MAGIC);
        writer.u32(if self.clean { CLEAN } else { 0 });
        writer.u64(self.sequence);
        writer.u64(self.durable);
        writer.u64(self.allocated);
        writer.u64(self.revision);
        let checksum = seal.checksum(self.offset(), writer.written());
        writer.u32(checksum);
        bytes
    }

    /// `index` is the page it was read from, 0 or 1; the text says what is wrong.
    pub(super) fn decode(page: &[u8; PAGE], seal: Seal, index: u64) -> Result<Self, String> {
        let found = u32_at(page, SLOT_BYTES - 4);
        let place = Self::page_offset(index);
        let expected = seal.checksum(place, &page[..SLOT_BYTES - 4]);
        let flags = u32_at(page, 4);
        let slot = Self {
            sequence: u64_at(page, 8),
            durable: u64_at(page, 16),
            allocated: u64_at(page, 24),
            revision: u64_at(page, 32),
            clean: flags == CLEAN,
        };
        if found != expected {
            return Err(format!("checksum {found:08x} instead of {expected:08x}"));
        }
        if page[..4] != SLOT_MAGIC || flags > CLEAN || slot.sequence % 2 != index || slot.sequence > MOST_SLOTS {
            return Err("a sealed page with impossible contents".to_owned());
        }
        if slot.durable < DATA_START || slot.allocated < slot.durable {
            return Err("impossible lengths".to_owned());
        }
        match first_nonzero(&page[SLOT_BYTES..]) {
            Some(offset) => Err(format!("a non-zero byte at {}", place + (SLOT_BYTES + offset) as u64)),
            None => Ok(slot),
        }
    }
}

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Objects as of the compacted revision.
    Snapshot,
    /// The end of those objects; its payload is how many there were.
    SnapshotEnd,
    /// Records of one commit.
    Batch,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            Self::Snapshot => b'S',
            Self::SnapshotEnd => b'E',
            Self::Batch => b'B',
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [Self::Snapshot, Self::SnapshotEnd, Self::Batch].into_iter().find(|kind| kind.code() == code)
    }
}

/// The bytes before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) payload_bytes: u32,
    /// Entries in the payload.
    pub(super) count: u32,
    payload_checksum: u32,
}

impl FrameHeader {
    /// Bytes of the frame from its first to the end of its trailer.
    pub(super) fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER + FRAME_TRAILER) as u64 + u64::from(self.payload_bytes)
    }

    /// `None` when these bytes are not the header of a frame at `offset`.
    pub(super) fn decode(bytes: &[u8], seal: Seal, offset: u64) -> Option<Self> {
        if bytes.len() < FRAME_HEADER
            || bytes[..3] != FRAME_MAGIC
            || bytes[FRAME_HEADER - 4..FRAME_HEADER] != HEADER_MARK
            || u32_at(bytes, 16) != seal.checksum(offset, &bytes[..16])
        {
            return None;
        }
        let header = Self {
            kind: FrameKind::from_code(bytes[3])?,
            payload_bytes: u32_at(bytes, 4),
            count: u32_at(bytes, 8),
            payload_checksum: u32_at(bytes, 12),
        };
        (u64::from(header.payload_bytes) <= MAX_BATCH_BYTES).then_some(header)
    }

    /// Verifies a whole frame; the text says what is wrong.
    pub(super) fn verify(&self, frame: &[u8]) -> Result<(), (String, String)> {
        let (payload, trailer) = frame[FRAME_HEADER..].split_at(self.payload_bytes as usize);
        let found = crc32fast::hash(payload);
        if found != self.payload_checksum {
            return Err((format!("a payload with checksum {:08x}", self.payload_checksum), format!("{found:08x}")));
        }
        if trailer != TRAILER {
            return Err(("the end mark of a batch".to_owned(), format!("{trailer:02x?}")));
        }
        Ok(())
    }
}

/// The first byte of every frame; searching for it finds candidates.
pub(super) const FRAME_FIRST_BYTE: u8 = FRAME_MAGIC[0];

/// Builds one frame after another in one buffer.
#[derive(Debug)]
pub(super) struct FrameBuilder {
    bytes: Vec<u8>,
    kind: FrameKind,
    count: u32,
}

impl FrameBuilder {
    pub(super) fn new(kind: FrameKind) -> Self {
        let mut builder = Self { bytes: Vec::new(), kind, count: 0 };
        builder.start(kind);
        builder
    }

    /// Drops the last frame and starts the next.
    pub(super) fn start(&mut self, kind: FrameKind) {
        // The buffer of a huge batch is freed above this size.
        const KEEP_BYTES: usize = 4 << 20;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        self.bytes.resize(FRAME_HEADER, 0);
        self.kind = kind;
        self.count = 0;
    }

    /// Counts one entry and gives the buffer to write it to.
    pub(super) fn entry(&mut self) -> &mut Vec<u8> {
        self.count += 1;
        &mut self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        (self.bytes.len() - FRAME_HEADER) as u64
    }

    /// Bytes of the frame once it is sealed.
    pub(super) fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER + FRAME_TRAILER) as u64 + self.payload_bytes()
    }

    /// Seals the frame for its offset in the file.
    pub(super) fn seal(&mut self, seal: Seal, offset: u64) -> &[u8] {
        let payload_bytes = (self.bytes.len() - FRAME_HEADER) as u32;
        let payload_checksum = crc32fast::hash(&self.bytes[FRAME_HEADER..]);
        let mut writer = Fields::new(&mut self.bytes);
        writer.bytes(&FRAME_MAGIC);
        writer.bytes(&[self.kind.code()]);
        writer.u32(payload_bytes);
        writer.u32(self.count);
        writer.u32(payload_checksum);
        let checksum = seal.checksum(offset, writer.written());
        writer.u32(checksum);
        writer.bytes(&HEADER_MARK);
        self.bytes.extend_from_slice(&TRAILER);
        &self.bytes
    }
}

/// Whether a part of these bytes, a frame or the header of one at `offset`,
/// was never written.
///
/// Frames go to space that held zeros. A sector that did not reach the disk
/// leaves its part of the frame all zero, and a write that was cut short
/// leaves a zero at the end, while what was written is never all zero and
/// never ends with one. A flipped bit therefore does not look like a torn write.
pub(super) fn is_unfinished(bytes: &[u8], offset: u64) -> bool {
    let first = ((SECTOR - offset % SECTOR) as usize).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    bytes.last() == Some(&0)
        || first_nonzero(head).is_none()
        || rest.chunks(SECTOR as usize).any(|sector| first_nonzero(sector).is_none())
}

/// Index of the first byte that is not zero.
pub(super) fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    const ZEROS: [u8; 4096] = [0; 4096];
    // Comparing slices is a memcmp, fast in debug builds as well.
    let mut start = 0;
    for chunk in bytes.chunks(ZEROS.len()) {
        if chunk != &ZEROS[..chunk.len()] {
            return chunk.iter().position(|&byte| byte != 0).map(|index| start + index);
        }
        start += chunk.len();
    }
    None
}

/// Writes fixed-size fields one after the other.
struct Fields<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn bytes(&mut self, value: &[u8]) {
        self.bytes[self.at..self.at + value.len()].copy_from_slice(value);
        self.at += value.len();
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn written(&self) -> &[u8] {
        &self.bytes[..self.at]
    }
}

pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}
