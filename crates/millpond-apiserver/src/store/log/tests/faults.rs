//! Full and failing disks: each operation of a day's work fails in turn.

use super::*;
use crate::store::log::faulty::{Fault, Tear};

/// Appends and compacts, going on after errors as a server would; returns
/// what was acknowledged, and what the log does not know the fate of.
fn work(disk: &FaultyDisk) -> (Vec<Record>, Option<Record>) {
    let mut acknowledged: Vec<Record> = Vec::new();
    let mut unknown = None;
    let mut log = None;
    for _ in 0..3 {
        // A start that failed is tried again.
        log = log.or_else(|| open(disk).ok().map(|(log, _)| log));
    }
    let mut log = log.expect("one fault at most");
    for step in 0..12_u64 {
        let revision = acknowledged.last().map_or(0, |record| record.revision) + 1;
        let key = format!("step/{step}");
        let record = put(revision, &key, &"x".repeat(700 * (step as usize % 4)));
        let was_poisoned = log.is_poisoned();
        match log.append(std::slice::from_ref(&record)) {
            Ok(()) => {
                assert!(!was_poisoned);
                acknowledged.push(record);
            }
            Err(AppendError::DiskFull { .. }) => assert!(!log.is_poisoned()),
            Err(AppendError::Failed(_)) => {
                assert!(log.is_poisoned() && !was_poisoned);
                unknown = Some(record);
            }
            Err(AppendError::Poisoned { .. }) => assert!(was_poisoned),
            Err(other) => panic!("{other}"),
        }
        // The remains of a failure are seen best right behind it.
        let unsure = unknown.as_ref();
        verify(&disk.crash(step, Tear::Everything), &acknowledged, unsure, "at work");
        verify(&disk.crash(step, Tear::Sectors), &acknowledged, unsure, "at work");
        if step % 5 == 4
            && let Some(job) = log.begin_compaction(0)
        {
            let file = job.write(snapshot(&acknowledged, revision / 2));
            let _ = file.and_then(|file| log.finish_compaction(file));
        }
        if step % 3 == 2 {
            let _ = log.settle();
        }
        if step % 2 == 1 {
            let was_poisoned = log.is_poisoned();
            // A full disk is no failure yet; a broken one is.
            assert_eq!(log.fill_ahead().is_err(), log.is_poisoned() && !was_poisoned);
        }
    }
    let _ = log.close();
    (acknowledged, unknown)
}

fn verify(disk: &FaultyDisk, acknowledged: &[Record], unknown: Option<&Record>, context: &str) {
    let opened = open(disk);
    let (_, recovered) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
    let mut expected = acknowledged.to_vec();
    expected.extend(unknown.filter(|record| record.revision == recovered.revision).cloned());
    let expected = state_of(&expected, recovered.compacted_revision);
    assert_eq!(state(&recovered), expected, "{context}");
}

fn every_operation_fails_once(fault: Fault) {
    let healthy = FaultyDisk::new(0);
    work(&healthy);
    let operations = healthy.operations();
    assert!(operations > 60, "{operations}");
    let mut losses = 0;
    for operation in 1..=operations {
        for seed in 0..8 {
            let disk = FaultyDisk::new(seed);
            disk.fail_at(operation, fault);
            let (acknowledged, unknown) = work(&disk);
            losses += usize::from(acknowledged.len() < 12);
            let context = format!("{fault:?} at {operation}, seed {seed}");
            for tear in [Tear::Nothing, Tear::Everything, Tear::Sectors] {
                let after = disk.crash(seed, tear);
                verify(&after, &acknowledged, unknown.as_ref(), &context);
            }
            verify(&disk, &acknowledged, unknown.as_ref(), &context);
        }
    }
    assert!(losses > 0, "no fault reached a batch");
}

#[test]
fn a_full_disk_at_every_operation() {
    every_operation_fails_once(Fault::DiskFull);
}

#[test]
fn a_broken_disk_at_every_operation() {
    every_operation_fails_once(Fault::Broken);
}

#[test]
fn a_full_disk_refuses_cleanly_and_goes_on_when_there_is_room() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let before = disk.used_bytes();
    let large = put(2, "b", &"y".repeat(50_000));
    for _ in 0..3 {
        let error = log.append(std::slice::from_ref(&large)).unwrap_err();
        assert!(matches!(error, AppendError::DiskFull { .. }), "{error}");
        assert_eq!(error.to_string(), "the disk is full: cannot enlarge `faulty/millpond.store`");
    }
    assert_eq!(disk.used_bytes(), before);
    // What fits into the space that is there is still written.
    log.append(&[put(2, "c", "z")]).unwrap();
    disk.set_capacity(None);
    log.append(&[put(3, "b", "y")]).unwrap();
    drop(log);
    let records = [put(1, "a", "x"), put(2, "c", "z"), put(3, "b", "y")];
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&records, 0));
}

/// Space that cannot be taken ahead is not asked for with every commit, but it is asked for again.
#[test]
fn a_full_disk_is_not_filled_ahead_and_is_looked_at_again() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    let full = disk.used_bytes();
    disk.set_capacity(Some(full));
    let asks = |log: &mut Log| {
        let before = disk.operations();
        log.fill_ahead().unwrap();
        disk.operations() > before
    };
    let mut revision = 1;
    while !asks(&mut log) {
        revision += 1;
        log.append(&[put(revision, "b", "y")]).unwrap();
    }
    assert!(!asks(&mut log), "it was full a moment ago");
    assert_eq!(disk.used_bytes(), full);
    disk.set_capacity(None);
    let (job, full_at) = (log.begin_compaction(0).unwrap(), log.data_bytes());
    log.append(&[put(revision + 1, "c", &"z".repeat(600))]).unwrap();
    assert!(asks(&mut log) && disk.used_bytes() > full);

    // Where the data were when the disk was full says nothing of another file.
    disk.set_capacity(Some(disk.used_bytes()));
    while !asks(&mut log) {
        revision += 1;
        log.append(&[put(revision + 1, "b", "y")]).unwrap();
    }
    disk.set_capacity(None);
    let records = [put(1, "a", "x"), put(revision + 1, "b", "y")];
    let file = job.write(snapshot(&records, revision + 1)).unwrap();
    log.finish_compaction(file).unwrap();
    while !asks(&mut log) {
        revision += 1;
        log.append(&[put(revision + 1, "b", "y")]).unwrap();
    }
    assert!(log.data_bytes() < full_at, "{} of {full_at}", log.data_bytes());
}

/// When there is not enough for a whole step, a smaller one is taken.
#[test]
fn the_last_space_of_a_disk_is_used() {
    let disk = FaultyDisk::new(1);
    let options = Options { allocation_bytes: 1 << 20, ..options() };
    let (mut log, _) = Log::open_in(Arc::new(disk.clone()), options).unwrap();
    disk.set_capacity(Some(40_000));
    let mut revision = 0;
    while log.append(&[put(revision + 1, "a", &"x".repeat(900))]).is_ok() {
        revision += 1;
    }
    assert!(revision > 15, "{revision}");
    drop(log);
    assert_eq!(open(&disk).unwrap().1.revision, revision);
}

#[test]
fn a_store_opens_for_reading_on_a_full_disk() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    log.close().unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let (mut log, recovered) = open(&disk).unwrap();
    assert_eq!(recovered.revision, 1);
    assert!(log.append(&[put(2, "a", "y")]).is_err());
    disk.set_capacity(None);
    log.append(&[put(2, "a", "y")]).unwrap();
}

#[test]
fn a_compaction_without_space_gives_it_back_and_changes_nothing() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let record = put(1, "a", &"x".repeat(100_000));
    log.append(std::slice::from_ref(&record)).unwrap();
    let before = disk.used_bytes();
    disk.set_capacity(Some(before + 50_000));
    let job = log.begin_compaction(0).unwrap();
    assert!(job.write(snapshot(std::slice::from_ref(&record), 1)).is_err());
    assert_eq!(disk.used_bytes(), before);
    log.append(&[put(2, "b", "y")]).unwrap();
    drop(log);
    let records = [record, put(2, "b", "y")];
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&records, 0));
}

/// Deletes still work when nothing else does, and the next write is possible again once there is space.
#[test]
fn space_is_kept_for_deletes() {
    let disk = FaultyDisk::new(1);
    let options = Options { reserve_bytes: 8192, ..options() };
    let (mut log, _) = Log::open_in(Arc::new(disk.clone()), options).unwrap();
    let mut records: Vec<Record> = (1..=20).map(|revision| put(revision, &format!("k{revision}"), "x")).collect();
    log.append(&records).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let large = |revision| put(revision, "large", &"y".repeat(12_000));
    assert!(matches!(log.append(&[large(21)]), Err(AppendError::DiskFull { .. })));
    for revision in 21..=40 {
        let record = delete(revision, &format!("k{}", revision - 20), &"x".repeat(200));
        log.append_deletes(std::slice::from_ref(&record)).unwrap();
        records.push(record);
    }
    assert!(matches!(log.probe_space(), Err(AppendError::DiskFull { .. })), "the reserve is in use");
    assert!(matches!(log.append(&[large(41)]), Err(AppendError::DiskFull { .. })));
    disk.set_capacity(None);
    log.probe_space().unwrap();
    log.append(&[large(41)]).unwrap();
    records.push(large(41));
    drop(log);
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&records, 0));
}
