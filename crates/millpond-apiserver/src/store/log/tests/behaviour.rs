//! What the log does when nothing goes wrong.

use super::*;

#[test]
fn a_new_store_is_empty_and_says_so() {
    let disk = FaultyDisk::new(1);
    let (log, recovered) = open(&disk).unwrap();
    assert_eq!(state(&recovered), State::default());
    assert_eq!(recovered.store_id, [7; 16]);
    assert_eq!(recovered.compacted_revision, 0);
    assert_eq!(recovered.notes, [Note::Created]);
    assert_eq!(log.revision(), 0);
}

#[test]
fn everything_comes_back_with_what_was_before() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let first = [put(3, "default/a", "one"), put(4, "default/b", "two")];
    let second = [put(5, "default/a", "three"), delete(9, "default/b", "two"), put(10, "default/b", "again")];
    log.append(&first).unwrap();
    log.append(&[]).unwrap();
    log.append(&second).unwrap();
    assert_eq!(log.revision(), 10);
    log.close().unwrap();

    let (_, recovered) = open(&disk).unwrap();
    let records = [first.as_slice(), second.as_slice()].concat();
    assert_eq!(state(&recovered), state_of(&records, 0));
    assert_eq!(recovered.notes, []);
    let previous = |index: usize| {
        let previous = recovered.history[index].previous.as_ref();
        previous.map(|state| (state.revision, &state.object[..]))
    };
    assert_eq!(previous(0), None);
    assert_eq!(previous(2), Some((3, &b"one"[..])));
    assert_eq!(previous(3), Some((4, &b"two"[..])));
    assert_eq!(previous(4), None);
}

#[test]
fn a_closed_file_ends_with_its_data_and_is_left_alone_until_written() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    let data_bytes = log.data_bytes();
    log.close().unwrap();
    let closed = disk.bytes(FILE_NAME).unwrap();
    assert_eq!(closed.len() as u64, data_bytes);

    let (log, _) = open(&disk).unwrap();
    drop(log);
    let (log, _) = open(&disk).unwrap();
    log.close().unwrap();
    assert_eq!(disk.bytes(FILE_NAME).unwrap(), closed);
}

#[test]
fn a_commit_finds_the_space_that_was_taken_ahead() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let operations = |log: &mut Log, revision| {
        let before = disk.operations();
        log.append(&[put(revision, "a", &"x".repeat(900))]).unwrap();
        disk.operations() - before
    };
    // The first marks the file as being written, and takes space.
    operations(&mut log, 1);
    let least = operations(&mut log, 2);
    for revision in 3..4000 {
        log.fill_ahead().unwrap();
        assert_eq!(operations(&mut log, revision), least, "of commit {revision}");
    }
}

#[test]
fn without_a_close_everything_is_there_and_noted() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    drop(log);
    let (log, recovered) = open(&disk).unwrap();
    assert_eq!(recovered.notes, [Note::NotClosed]);
    assert_eq!(recovered.revision, 1);
    log.close().unwrap();
    assert_eq!(open(&disk).unwrap().1.notes, []);
}

#[test]
fn a_batch_costs_one_sync_and_a_settled_log_none() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    let operations = |disk: &FaultyDisk, act: &mut dyn FnMut()| {
        let before = disk.operations();
        act();
        disk.operations() - before
    };
    let slot_batch_sync = operations(&disk, &mut || log.append(&[put(2, "a", "y")]).unwrap());
    assert_eq!(slot_batch_sync, 3);
    assert_eq!(operations(&disk, &mut || log.settle().unwrap()), 2);
    assert_eq!(operations(&disk, &mut || log.settle().unwrap()), 0);
    let batch_sync = operations(&disk, &mut || log.append(&[put(3, "a", "z")]).unwrap());
    assert_eq!(batch_sync, 2);
}

#[test]
fn old_history_is_dropped_while_reading() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let records: Vec<_> = (1..=20).map(|revision| put(revision, &format!("{}", revision % 3), "x")).collect();
    for record in &records {
        log.append(std::slice::from_ref(record)).unwrap();
    }
    log.close().unwrap();

    let recover = |history_ms, history_records| {
        let options = Options { now_unix_ms: 1_000_020, history_ms, history_records, ..options() };
        Log::open_in(Arc::new(disk.clone()), options).unwrap().1
    };
    for (history_ms, history_records, compacted) in [(4, 0, 15), (4, 10, 10), (0, 1, 19), (100, 1, 0), (0, 100, 0)] {
        let recovered = recover(history_ms, history_records);
        assert_eq!(recovered.compacted_revision, compacted);
        assert_eq!(state(&recovered), state_of(&records, compacted));
    }
}

#[test]
fn rules_of_a_batch() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(5, "a", "x")]).unwrap();
    let refused = |error| match error {
        Err(AppendError::Refused { revision, .. }) => revision,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(log.append(&[put(5, "a", "x")])), 5);
    assert_eq!(refused(log.append(&[put(7, "a", "x"), put(6, "a", "x")])), 6);
    assert_eq!(refused(log.append(&[put(8, "", "x")])), 8);
    assert_eq!(refused(log.append(&[put(8, &"k".repeat(70_000), "x")])), 8);
    let half = Bytes::from(vec![b'x'; MAX_BATCH_BYTES as usize / 2]);
    let large = |revision| Record { object: half.clone(), ..put(revision, "large", "") };
    let error = log.append(&[large(8), large(9)]).unwrap_err();
    assert!(matches!(error, AppendError::TooLarge { .. }), "{error}");

    // None of it left a trace.
    log.append(&[put(6, "b", "y")]).unwrap();
    drop(log);
    let records = [put(5, "a", "x"), put(6, "b", "y")];
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&records, 0));
}

#[test]
fn a_batch_may_be_as_large_as_the_limit() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let mut record = put(1, "large", "");
    let room = MAX_BATCH_BYTES - record.encoded_bytes();
    record.object = Bytes::from(vec![b'x'; room as usize]);
    log.append(std::slice::from_ref(&record)).unwrap();
    drop(log);
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&[record], 0));
}

#[test]
fn a_file_that_is_mostly_useless_wants_compaction() {
    let disk = FaultyDisk::new(1);
    let options = Options { compaction_growth_bytes: 20_000, ..options() };
    let (mut log, _) = Log::open_in(Arc::new(disk.clone()), options.clone()).unwrap();
    let object = "x".repeat(1000);
    let kept = put(1, "a", &object).encoded_bytes();
    let mut records: Vec<Record> = Vec::new();
    let grow = |log: &mut Log, records: &mut Vec<Record>| {
        let mut steps = 0;
        while !log.wants_compaction(kept) {
            records.push(put(records.len() as u64 + 1, "a", &object));
            log.append(&records[records.len() - 1..]).unwrap();
            steps += 1;
        }
        steps
    };
    assert_eq!(grow(&mut log, &mut records), 20);

    // One that is given up is not wanted again at once.
    drop(log.begin_compaction(0).unwrap());
    assert!(!log.wants_compaction(kept));
    assert_eq!(grow(&mut log, &mut records), 19);

    // Nor does a restart forget how much of the file is dead.
    drop(log);
    let (mut log, _) = Log::open_in(Arc::new(disk), options).unwrap();
    assert!(log.wants_compaction(kept));
    // Were all of it of use, it would only be copied; were it half, hardly less would be left.
    assert!(!log.wants_compaction(log.data_bytes()));
    assert!(!log.wants_compaction(log.data_bytes() / 2));
    let job = log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(&records, records.len() as u64)).unwrap();
    log.finish_compaction(file).unwrap();
    assert!(!log.wants_compaction(kept));
    assert_eq!(grow(&mut log, &mut records), 19);
}

#[test]
fn messages_name_file_place_and_next_step() {
    let disk = FaultyDisk::with_file(FILE_NAME, b"#!/bin/sh\necho not a store\n".to_vec());
    let error = open(&disk).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`faulty/millpond.store` is not a Millpond store: \
         its first bytes are \"#!/bin/s\""
    );
    let disk = FaultyDisk::with_file(FILE_NAME, Vec::new());
    let error = open(&disk).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store `faulty/millpond.store` is damaged at byte 0: expected a file of at least \
         12288 bytes, found its end: the last 12288 bytes were cut off"
    );
    assert!(error.hint().unwrap().contains("millpond store check"));
}

#[test]
fn a_later_format_is_named() {
    let disk = FaultyDisk::new(1);
    drop(open(&disk).unwrap());
    let mut bytes = disk.bytes(FILE_NAME).unwrap();
    bytes[8] = 2;
    let checksum = crc32fast::hash(&bytes[..56]);
    bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
    let error = open(&FaultyDisk::with_file(FILE_NAME, bytes)).unwrap_err();
    assert_eq!(error.to_string(), "the store `faulty/millpond.store` has format 2, and this millpond reads format 1");
}
