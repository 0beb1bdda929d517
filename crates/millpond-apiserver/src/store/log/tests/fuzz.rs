//! Recovery of hostile files: no panic, no memory beyond the file's size, an
//! error or a state. Seeds are fixed; a failure names its own.

use std::time::{Duration, Instant};

use rand::SeedableRng as _;

use super::super::format::{DATA_START, FRAME_HEADER, FrameHeader, Header, PAGE};
use super::*;

/// Rounds at least, however slow the machine; then more until the time is up.
const LEAST_ROUNDS: u64 = 500;
const TIME: Duration = Duration::from_secs(1);

fn rounds(mut round: impl FnMut(u64)) {
    let start = Instant::now();
    let mut seed = 0;
    while seed < LEAST_ROUNDS || start.elapsed() < TIME {
        round(seed);
        seed += 1;
    }
}

/// Opens whatever it is. A file that opens must open again with the same contents.
fn recover_anything(bytes: Vec<u8>, seed: u64) {
    let disk = FaultyDisk::with_file(FILE_NAME, bytes);
    let Ok((mut log, first)) = open(&disk) else {
        return;
    };
    let Some(next) = first.revision.checked_add(1) else {
        return;
    };
    if log.append(&[put(next, "more", "x")]).is_err() {
        return;
    }
    drop(log);
    let (_, second) = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(second.revision, next, "seed {seed}");
    assert_eq!(second.history.len(), first.history.len() + 1, "seed {seed}");
}

fn valid_file(random: &mut SmallRng) -> Vec<u8> {
    let disk = FaultyDisk::new(0);
    let (mut log, _) = open(&disk).unwrap();
    let mut records: Vec<Record> = Vec::new();
    for _ in 0..random.random_range(1..5) {
        let revision = records.last().map_or(0, |record| record.revision);
        let batch = random_batch(random, revision);
        log.append(&batch).unwrap();
        records.extend(batch);
        if random.random_bool(0.3) {
            let job = log.begin_compaction(0).unwrap();
            let compacted = random.random_range(0..=records.last().unwrap().revision);
            let file = job.write(snapshot(&records, compacted)).unwrap();
            log.finish_compaction(file).unwrap();
            // What is behind the snapshot is no longer the whole history.
            return disk.bytes(FILE_NAME).unwrap();
        }
    }
    if random.random_bool(0.5) {
        log.close().unwrap();
    }
    disk.bytes(FILE_NAME).unwrap()
}

fn mutate(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    for _ in 0..random.random_range(1..6) {
        if bytes.is_empty() {
            return;
        }
        // Half of the changes hit the pages that steer everything else.
        let reach = match random.random_range(0..4) {
            0 => bytes.len().min(64),
            1 => bytes.len().min(12_300),
            _ => bytes.len(),
        };
        let at = random.random_range(0..reach);
        let count = random.random_range(1..=64).min(bytes.len() - at);
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => bytes[at..at + count].fill(random.random()),
            2 => random.fill(&mut bytes[at..at + count]),
            3 => bytes.truncate(at),
            4 => {
                let piece = bytes[at..at + count].to_vec();
                let to = random.random_range(0..=bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                bytes.drain(at..at + count);
            }
        }
    }
}

/// Makes every checksum right again, so that what is behind them is reached.
fn reseal(bytes: &mut [u8]) {
    if bytes.len() < DATA_START as usize {
        return;
    }
    let checksum = crc32fast::hash(&bytes[..56]);
    bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
    let Ok(header) = Header::decode(bytes[..PAGE].first_chunk().unwrap()) else {
        return;
    };
    for place in [4096_usize, 8192] {
        let checksum = header.seal().checksum(place as u64, &bytes[place..place + 40]);
        bytes[place + 40..place + 44].copy_from_slice(&checksum.to_le_bytes());
    }
    let mut offset = DATA_START as usize;
    while offset + FRAME_HEADER < bytes.len() && bytes[offset] == 0xfb {
        let payload = u32::from_le_bytes(bytes[offset + 4..offset + 8].try_into().unwrap());
        let end = offset + FRAME_HEADER + payload as usize;
        if let Some(payload) = bytes.get(offset + FRAME_HEADER..end) {
            let checksum = crc32fast::hash(payload);
            bytes[offset + 12..offset + 16].copy_from_slice(&checksum.to_le_bytes());
        }
        let checksum = header.seal().checksum(offset as u64, &bytes[offset..offset + 16]);
        bytes[offset + 16..offset + 20].copy_from_slice(&checksum.to_le_bytes());
        let sealed = FrameHeader::decode(&bytes[offset..], header.seal(), offset as u64);
        match sealed {
            Some(frame) => offset += frame.frame_bytes() as usize,
            None => return,
        }
    }
}

#[test]
fn fuzz_recovery_of_random_bytes() {
    rounds(|seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = vec![0; random.random_range(0..20_000)];
        random.fill(&mut bytes[..]);
        recover_anything(bytes, seed);
    });
}

#[test]
fn fuzz_recovery_of_mutated_files() {
    rounds(|seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = valid_file(&mut random);
        mutate(&mut bytes, &mut random);
        recover_anything(bytes, seed);
    });
}

#[test]
fn fuzz_recovery_of_mutated_files_with_right_checksums() {
    let mut opened = 0;
    rounds(|seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = valid_file(&mut random);
        mutate(&mut bytes, &mut random);
        reseal(&mut bytes);
        opened += u64::from(open(&FaultyDisk::with_file(FILE_NAME, bytes.clone())).is_ok());
        recover_anything(bytes, seed);
    });
    assert!(opened > 10, "the mutations never got past the checksums");
}

/// A header may announce 64 MiB; what is read is what the file has.
#[test]
fn fuzz_huge_lengths_take_no_memory() {
    rounds(|seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bytes = valid_file(&mut random);
        let at = DATA_START as usize + 4;
        bytes[at..at + 8].fill(random.random());
        reseal(&mut bytes);
        recover_anything(bytes, seed);
    });
}
