//! Compaction: what is kept, what is refused, and appends that go on meanwhile.

use rand::SeedableRng as _;

use super::*;

fn filled(disk: &FaultyDisk, count: u64) -> (Log, Vec<Record>) {
    let (mut log, _) = open(disk).unwrap();
    let mut random = SmallRng::seed_from_u64(count);
    let mut records = Vec::new();
    while (records.len() as u64) < count {
        let revision = records.last().map_or(0, |record: &Record| record.revision);
        let batch = random_batch(&mut random, revision);
        log.append(&batch).unwrap();
        records.extend(batch);
    }
    (log, records)
}

#[test]
fn any_retention_gives_the_same_objects_and_its_part_of_history() {
    let count = 60;
    for cut in (0..=count).step_by(3) {
        let disk = FaultyDisk::new(1);
        let (mut log, records) = filled(&disk, count as u64);
        let compacted = match cut {
            0 => 0,
            cut => records[cut - 1].revision,
        };
        let before = log.data_bytes();
        let job = log.begin_compaction(0).unwrap();
        let file = job.write(snapshot(&records, compacted)).unwrap();
        let summary = log.finish_compaction(file).unwrap();
        assert_eq!(summary.bytes_before, before);
        assert_eq!(summary.bytes_after, log.data_bytes());
        assert!(summary.bytes_after < before);
        drop((summary, log));
        let (log, recovered) = open(&disk).unwrap();
        assert_eq!(recovered.compacted_revision, compacted);
        assert_eq!(state(&recovered), state_of(&records, compacted));
        assert_eq!(recovered.store_id, [7; 16]);
        log.close().unwrap();
    }
}

#[test]
fn appends_before_and_after_the_snapshot_are_in_the_new_file() {
    let disk = FaultyDisk::new(1);
    let (mut log, mut records) = filled(&disk, 20);
    let job = log.begin_compaction(0).unwrap();
    assert!(log.begin_compaction(0).is_none(), "one at a time");
    let append = |log: &mut Log, records: &mut Vec<Record>, key: &str| {
        let record = put(job_revision(records), key, "during");
        log.append(std::slice::from_ref(&record)).unwrap();
        records.push(record);
    };
    append(&mut log, &mut records, "known/to-the-snapshot");
    let known = snapshot(&records, records[10].revision);
    append(&mut log, &mut records, "only/in-the-log");
    let file = job.write(known).unwrap();
    append(&mut log, &mut records, "after/the-job");
    log.finish_compaction(file).unwrap();
    append(&mut log, &mut records, "after/the-end");
    assert!(log.begin_compaction(0).is_some());
    drop(log);
    let (_, recovered) = open(&disk).unwrap();
    assert_eq!(recovered.compacted_revision, records[10].revision);
    assert_eq!(state(&recovered), state_of(&records, records[10].revision));
}

fn job_revision(records: &[Record]) -> u64 {
    records.last().map_or(0, |record| record.revision) + 1
}

#[test]
fn a_job_on_another_thread_follows_a_busy_log() {
    let disk = FaultyDisk::new(1);
    let (mut log, mut records) = filled(&disk, 200);
    let known = snapshot(&records, records[50].revision);
    let job = log.begin_compaction(0).unwrap();
    let thread = std::thread::spawn(move || job.write(known).unwrap());
    let mut random = SmallRng::seed_from_u64(3);
    while !thread.is_finished() {
        let batch = random_batch(&mut random, records.last().unwrap().revision);
        log.append(&batch).unwrap();
        records.extend(batch);
    }
    let file = thread.join().unwrap();
    log.finish_compaction(file).unwrap();
    drop(log);
    let (_, recovered) = open(&disk).unwrap();
    assert_eq!(state(&recovered), state_of(&records, records[50].revision));
}

#[test]
fn the_job_itself_copies_what_was_appended_in_bulk() {
    let disk = FaultyDisk::new(1);
    let (mut log, mut records) = filled(&disk, 5);
    let known = snapshot(&records, 0);
    let job = log.begin_compaction(0).unwrap();
    let large = "x".repeat(1 << 20);
    for index in 0..3 {
        let record = put(job_revision(&records), &format!("large/{index}"), &large);
        log.append(std::slice::from_ref(&record)).unwrap();
        records.push(record);
    }
    let file = job.write(known).unwrap();
    let copied = disk.bytes("millpond.store.new").unwrap().len();
    assert!(copied > 3 << 20, "{copied}");
    log.finish_compaction(file).unwrap();
    drop(log);
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&records, 0));
}

#[test]
fn a_job_that_is_given_up_leaves_the_log_as_it_was() {
    let disk = FaultyDisk::new(1);
    let (mut log, records) = filled(&disk, 20);
    drop(log.begin_compaction(0).unwrap());
    let job = log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(&records, 0)).unwrap();
    assert_eq!(file.path(), std::path::Path::new("faulty/millpond.store.new"));
    file.discard();
    assert_eq!(disk.bytes("millpond.store.new"), None);
    // One that died with its process is removed by the next start.
    let job = log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(&records, 0)).unwrap();
    drop((file, log));
    assert!(disk.bytes("millpond.store.new").is_some());
    let (_, recovered) = open(&disk).unwrap();
    assert_eq!(disk.bytes("millpond.store.new"), None);
    assert_eq!(state(&recovered), state_of(&records, 0));
}

#[test]
fn a_snapshot_that_contradicts_itself_is_refused() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let records = [put(1, "a", "x"), put(2, "b", "y"), put(3, "a", "z")];
    log.append(&records).unwrap();
    let mut rule = |change: &dyn Fn(&mut Snapshot<std::vec::IntoIter<LiveObject>>)| {
        let job = log.begin_compaction(0).unwrap();
        assert_eq!(job.revision(), 3);
        let mut snapshot = snapshot(&records, 1);
        change(&mut snapshot);
        match job.write(snapshot) {
            Err(CompactError::Snapshot { rule, .. }) => rule,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(rule(&|snapshot| snapshot.revision = 2), "it is older than the beginning of the compaction");
    assert_eq!(rule(&|snapshot| snapshot.history.swap(0, 1)), "history is not in ascending order");
    assert_eq!(
        rule(&|snapshot| {
            snapshot.history.remove(0);
        }),
        "the object is newer than the compacted revision, and not in history"
    );
    assert_eq!(
        rule(&|snapshot| snapshot.history[1].record.revision = 9),
        "history goes beyond the snapshot's revision"
    );
}

#[test]
fn a_file_from_another_log_is_refused() {
    let one = FaultyDisk::new(1);
    let other = FaultyDisk::new(2);
    let (mut one_log, records) = filled(&one, 5);
    let (mut other_log, _) = filled(&other, 5);
    let job = one_log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(&records, 0)).unwrap();
    assert!(other_log.finish_compaction(file).is_err());
    drop(other_log);
    assert_eq!(state(&open(&other).unwrap().1), state_of(&records, 0));
}
