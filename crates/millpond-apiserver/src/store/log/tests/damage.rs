//! Wrong bytes: every flipped bit and every cut of a small file is noticed,
//! and nothing acknowledged is ever lost in silence.

use super::*;

fn records() -> Vec<Record> {
    vec![
        put(1, "default/a", "first"),
        put(2, "default/b", "second"),
        delete(3, "default/a", "first"),
        put(4, "default/c", "third"),
    ]
}

/// A file with a snapshot, history and two batches.
fn file(close: bool) -> Vec<u8> {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let records = records();
    log.append(&records[..2]).unwrap();
    let job = log.begin_compaction(0).unwrap();
    let compacted = job.write(snapshot(&records[..2], 1)).unwrap();
    log.finish_compaction(compacted).unwrap();
    log.append(&records[2..3]).unwrap();
    log.append(&records[3..]).unwrap();
    if close {
        log.close().unwrap();
    }
    disk.bytes(FILE_NAME).unwrap()
}

fn recover(bytes: Vec<u8>) -> Result<Recovered, OpenError> {
    open(&FaultyDisk::with_file(FILE_NAME, bytes)).map(|(_, recovered)| recovered)
}

#[test]
fn the_undamaged_files_open() {
    for close in [true, false] {
        let recovered = recover(file(close)).unwrap();
        assert_eq!(state(&recovered), state_of(&records(), 1));
        assert_eq!(recovered.notes.is_empty(), close);
    }
}

#[test]
fn every_flipped_bit_of_a_closed_file_is_refused() {
    let bytes = file(true);
    for offset in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[offset] ^= 1 << bit;
            let result = recover(flipped);
            assert!(result.is_err(), "byte {offset}, bit {bit}: {result:?}");
        }
    }
}

/// Also above the last slot: a flipped bit does not look like a torn write.
#[test]
fn no_flipped_bit_of_a_file_that_was_not_closed_loses_anything() {
    let bytes = file(false);
    let expected = state_of(&records(), 1);
    let data_end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    let (mut refused, mut noted) = (0, 0);
    for offset in 0..bytes.len() {
        // One bit of each zero that only fills up space, all of the others.
        let filler = bytes[offset] == 0 && !(12288..=data_end).contains(&offset);
        let bits = if filler { offset % 8..offset % 8 + 1 } else { 0..8 };
        for bit in bits {
            let mut flipped = bytes.clone();
            flipped[offset] ^= 1 << bit;
            match recover(flipped) {
                Err(_) => refused += 1,
                Ok(recovered) => {
                    assert_eq!(state(&recovered), expected, "byte {offset}, bit {bit}");
                    // A spoilt slot, or a bit in the zeros: noted.
                    assert!(recovered.notes.len() > 1, "byte {offset}, bit {bit}");
                    assert!(!(12288..=data_end).contains(&offset), "byte {offset}");
                    noted += 1;
                }
            }
        }
    }
    assert!(refused > 2_000 && noted > 2_000, "{refused} {noted}");
}

#[test]
fn every_cut_of_a_file_is_refused() {
    for close in [true, false] {
        let bytes = file(close);
        for length in 0..bytes.len() {
            let error = recover(bytes[..length].to_vec()).unwrap_err();
            let known = matches!(error, OpenError::Damaged(_) | OpenError::NotAStore { .. });
            assert!(known, "{length}: {error}");
        }
    }
}

#[test]
fn a_cut_that_was_filled_up_with_zeros_is_refused() {
    for close in [true, false] {
        let bytes = file(close);
        let mut disk_bytes = bytes.clone();
        // The last batch of a file that was not closed is above the slots.
        let data_end = bytes.iter().rposition(|&byte| byte != 0).unwrap();
        for length in (12288..data_end - if close { 0 } else { 100 }).rev() {
            disk_bytes[length..].fill(0);
            assert!(recover(disk_bytes.clone()).is_err(), "{length}");
        }
    }
}

/// What no slot speaks of can vanish unnoticed; a quiet moment is enough to speak of it.
#[test]
fn a_settled_log_misses_its_last_batch() {
    for settle in [true, false] {
        let disk = FaultyDisk::new(1);
        let (mut log, _) = open(&disk).unwrap();
        log.append(&[put(1, "a", "x")]).unwrap();
        let end = log.data_bytes() as usize;
        log.append(&[put(2, "b", "y")]).unwrap();
        if settle {
            log.settle().unwrap();
        }
        let mut bytes = disk.bytes(FILE_NAME).unwrap();
        bytes[end..].fill(0);
        match recover(bytes) {
            Ok(recovered) => assert!(!settle && recovered.revision == 1),
            Err(OpenError::Damaged(damage)) => assert!(settle && damage.offset == end as u64),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn bytes_behind_a_closed_store_are_refused_unless_zero() {
    let mut bytes = file(true);
    let end = bytes.len();
    bytes.resize(end + 5000, 0);
    assert_eq!(recover(bytes.clone()).unwrap().notes, [Note::NotClosed]);
    bytes[end + 700] = 1;
    match recover(bytes).unwrap_err() {
        OpenError::Damaged(damage) => assert_eq!(damage.offset, end as u64 + 700),
        other => panic!("{other}"),
    }
}

/// Offsets of the batches, found by their mark.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let starts = |window: &[u8]| window[..3] == [0xfb, 0x6d, 0x70];
    let windows = bytes.windows(4).enumerate();
    let found = windows.filter(|(_, window)| starts(window));
    found.map(|(offset, _)| offset).collect()
}

#[test]
fn a_lost_batch_before_another_one_is_refused() {
    let bytes = file(false);
    let frames = frames(&bytes);
    let [.., second_last, last] = frames[..] else {
        panic!("{frames:?}");
    };
    let mut lost = bytes.clone();
    lost[second_last..last].fill(0);
    match recover(lost).unwrap_err() {
        OpenError::Damaged(damage) => assert_eq!(damage.offset, second_last as u64),
        other => panic!("{other}"),
    }
}

/// A batch above the slots that looks torn, with a batch behind it: the
/// slots are from an earlier moment, as if their pages had been lost.
#[test]
fn a_torn_batch_with_another_one_behind_it_is_refused() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    let early = disk.bytes(FILE_NAME).unwrap();
    let torn = log.data_bytes() as usize;
    log.append(&[put(2, "b", &"y".repeat(2000))]).unwrap();
    let next = log.data_bytes();
    log.append(&[put(3, "c", "z")]).unwrap();
    drop(log);
    let mut bytes = disk.bytes(FILE_NAME).unwrap();
    bytes[4096..12288].copy_from_slice(&early[4096..12288]);
    assert_eq!(recover(bytes.clone()).unwrap().revision, 3);
    let lost = (torn + 600).next_multiple_of(512);
    bytes[lost..lost + 512].fill(0);
    let error = recover(bytes).unwrap_err().to_string();
    assert!(error.contains(&format!("at byte {torn}:")), "{error}");
    assert!(error.contains(&format!("another batch after it at {next}")), "{error}");
}

#[test]
fn a_batch_at_another_place_is_refused() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let mut ends = vec![log.data_bytes() as usize];
    for revision in 1..=3 {
        log.append(&[put(revision, "a", "x")]).unwrap();
        ends.push(log.data_bytes() as usize);
    }
    log.close().unwrap();
    let mut bytes = disk.bytes(FILE_NAME).unwrap();
    let first = bytes[ends[0]..ends[1]].to_vec();
    bytes[ends[1]..ends[2]].copy_from_slice(&first);
    let error = recover(bytes).unwrap_err().to_string();
    assert!(error.contains(&format!("at byte {}:", ends[1])), "{error}");
    assert!(error.contains("expected the header of a batch"), "{error}");
}

#[test]
fn a_file_of_another_generation_does_not_pass() {
    let one = file(true);
    let disk = FaultyDisk::new(1);
    let other_options = Options { new_store_id: [8; 16], ..options() };
    let (log, _) = Log::open_in(Arc::new(disk.clone()), other_options).unwrap();
    log.close().unwrap();
    let mut bytes = one;
    bytes[..4096].copy_from_slice(&disk.bytes(FILE_NAME).unwrap()[..4096]);
    assert!(matches!(recover(bytes), Err(OpenError::Damaged(_))));
}
