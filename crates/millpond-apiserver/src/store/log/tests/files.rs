//! Real files: locks, permissions, `kill -9`, and what `millpond store` does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use rand::SeedableRng as _;
use tempfile::TempDir;

use super::*;

fn open_directory(directory: &Path) -> (Log, Recovered) {
    Log::open(directory, options()).unwrap()
}

/// A directory with a store of a few records, which was closed.
fn stored(records: &[Record]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open_directory(directory.path());
    for record in records {
        log.append(std::slice::from_ref(record)).unwrap();
    }
    log.close().unwrap();
    directory
}

fn some_records() -> Vec<Record> {
    vec![
        put(1, "default/a", "first"),
        put(2, "default/b", "second"),
        delete(3, "default/a", "first"),
        put(4, "default/c", "third"),
    ]
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_second_log_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = open_directory(directory.path());
    let error = Log::open(directory.path(), options()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the store in `{}` is already open in process {}", directory.path().display(), std::process::id())
    );
    assert!(error.hint().is_some());
    drop(log);
    open_directory(directory.path());
}

/// A compaction replaces the file; the lock has to outlive that.
#[test]
fn the_lock_holds_over_a_compaction() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open_directory(directory.path());
    let records = some_records();
    log.append(&records).unwrap();
    let job = log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(&records, 2)).unwrap();
    log.finish_compaction(file).unwrap();
    let error = Log::open(directory.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::AlreadyOpen { .. }), "{error}");
    log.close().unwrap();
    let (_, recovered) = open_directory(directory.path());
    assert_eq!(state(&recovered), state_of(&records, 2));
}

#[test]
fn files_are_for_their_owner_alone() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data/store");
    let (mut log, _) = open_directory(&directory);
    log.append(&some_records()).unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(FILE_NAME)), 0o600);
    assert_eq!(mode(&directory.join("millpond.store.lock")), 0o600);
    let job = log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(&some_records(), 0)).unwrap();
    log.finish_compaction(file).unwrap();
    assert_eq!(mode(&directory.join(FILE_NAME)), 0o600);
    let copy = parent.path().join("copy");
    backup(&directory.join(FILE_NAME), &copy).unwrap();
    assert_eq!(mode(&copy), 0o600);
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("data");
    let error = Log::open(&below, options()).unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("cannot write to `{}`", below.display()));
    assert!(error.hint().unwrap().contains("--data-dir"));
}

#[test]
fn a_read_only_directory_is_refused_at_once_not_at_the_first_compaction() {
    let directory = stored(&some_records());
    let read_only = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(directory.path(), read_only).unwrap();
    if std::fs::write(directory.path().join("probe"), "").is_ok() {
        // The superuser may write anywhere; there is nothing to refuse.
        return;
    }
    let error = Log::open(directory.path(), options()).unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error:?}");
    // Looking is still allowed.
    let report = check(&directory.path().join(FILE_NAME)).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn check_counts_what_a_good_store_holds() {
    let directory = stored(&some_records());
    let path = directory.path().join(FILE_NAME);
    let report = check(&path).unwrap();
    assert_eq!(report.state, FileState::Closed);
    assert_eq!(report.file_bytes, report.data_bytes);
    assert_eq!((report.revision, report.compacted_revision), (4, 0));
    assert_eq!((report.batches, report.records), (4, 4));
    assert_eq!(report.objects, BTreeMap::from([("pods".to_owned(), 2)]));
    assert_eq!(report.problems, []);
    assert_eq!(report.store_id, [7; 16]);

    let (mut log, _) = open_directory(directory.path());
    log.append(&[put(5, "x", "y")]).unwrap();
    let report = check(&path).unwrap();
    let process = Some(std::process::id());
    assert_eq!(report.state, FileState::InUse { process });
    assert_eq!((report.revision, report.problems), (5, vec![]));
    drop(log);
    assert_eq!(check(&path).unwrap().state, FileState::NotClosed);
}

#[test]
fn check_lists_every_damaged_place_and_reads_on() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open_directory(directory.path());
    let mut starts = Vec::new();
    for revision in 1..=10 {
        starts.push(log.data_bytes());
        log.append(&[put(revision, &format!("{revision}"), "x")]).unwrap();
    }
    log.close().unwrap();
    let path = directory.path().join(FILE_NAME);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[starts[2] as usize + 40] ^= 1;
    bytes[starts[6] as usize] ^= 4;
    std::fs::write(&path, bytes).unwrap();

    let report = check(&path).unwrap();
    let offsets: Vec<_> = report.problems.iter().map(|damage| damage.offset).collect();
    assert_eq!(offsets, [starts[2], starts[6]]);
    assert_eq!(report.records, 8);
    assert_eq!(report.revision, 10);
    let error = Log::open(directory.path(), options()).unwrap_err();
    assert_eq!(error.to_string(), report.problems[0].to_string());
}

#[test]
fn check_reads_on_without_slots_and_stops_without_a_header() {
    let directory = stored(&some_records());
    let path = directory.path().join(FILE_NAME);
    let good = std::fs::read(&path).unwrap();
    let mut bytes = good.clone();
    bytes[4100] ^= 1;
    bytes[8200] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let report = check(&path).unwrap();
    assert_eq!(report.problems.len(), 1);
    assert_eq!((report.problems[0].offset, report.records), (4096, 4));

    let mut bytes = good;
    bytes[30] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let report = check(&path).unwrap();
    assert_eq!((report.problems.len(), report.records), (1, 0));

    let missing = directory.path().join("other");
    let error = check(&missing).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}

#[test]
fn a_backup_of_a_store_in_any_state_is_a_closed_store() {
    let records = some_records();
    let directory = stored(&records[..2]);
    let path = directory.path().join(FILE_NAME);
    let copy_to = |name: &str| {
        let copy = directory.path().join(name);
        let report = backup(&path, &copy).unwrap();
        let found = check(&copy).unwrap();
        assert_eq!(found.state, FileState::Closed);
        assert_eq!((report.bytes, report.path), (found.file_bytes, copy.clone()));
        (report.revision, report.objects)
    };
    assert_eq!(copy_to("closed"), (2, 2));
    let (mut log, _) = open_directory(directory.path());
    log.append(&records[2..]).unwrap();
    assert_eq!(copy_to("in-use"), (4, 2));
    drop(log);
    assert_eq!(copy_to("crashed"), (4, 2));

    // A backup is a store: put in place it opens with its history.
    let place = tempfile::tempdir().unwrap();
    std::fs::copy(directory.path().join("in-use"), place.path().join(FILE_NAME)).unwrap();
    let (_, recovered) = open_directory(place.path());
    assert_eq!(state(&recovered), state_of(&records, 0));
}

#[test]
fn backups_of_a_busy_store_are_moments_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open_directory(directory.path());
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut random = SmallRng::seed_from_u64(5);
        let mut records: Vec<Record> = Vec::new();
        while stopped.try_recv().is_err() {
            let revision = records.last().map_or(0, |record| record.revision);
            let batch = random_batch(&mut random, revision);
            log.append(&batch).unwrap();
            records.extend(batch);
            if records.len().is_multiple_of(50) {
                let job = log.begin_compaction(0).unwrap();
                let file = job.write(snapshot(&records, 0)).unwrap();
                log.finish_compaction(file).unwrap();
            }
        }
        (log, records)
    });
    let copies = tempfile::tempdir().unwrap();
    let mut moments = Vec::new();
    for round in 0..30 {
        let copy = copies.path().join(format!("{round}"));
        let report = backup(&directory.path().join(FILE_NAME), &copy).unwrap();
        moments.push((copy, report.revision));
    }
    stop.send(()).unwrap();
    let (_log, records) = writer.join().unwrap();
    for (copy, revision) in moments {
        let known = records.partition_point(|record| record.revision <= revision);
        let place = tempfile::tempdir().unwrap();
        std::fs::rename(copy, place.path().join(FILE_NAME)).unwrap();
        let (_, recovered) = open_directory(place.path());
        assert_eq!(state(&recovered), state_of(&records[..known], 0));
    }
}

#[test]
fn a_backup_overwrites_nothing_and_leaves_no_half() {
    let directory = stored(&some_records());
    let path = directory.path().join(FILE_NAME);
    let taken = directory.path().join("taken");
    std::fs::write(&taken, "precious").unwrap();
    let error = backup(&path, &taken).unwrap_err();
    assert!(matches!(error, CopyError::Exists { .. }), "{error}");
    assert_eq!(std::fs::read(&taken).unwrap(), b"precious");

    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let copy = directory.path().join("copy");
    let error = backup(&path, &copy).unwrap_err();
    assert!(matches!(error, CopyError::Source(OpenError::Damaged(_))));
    assert!(!copy.exists());
}

fn restore_options(replace: bool) -> RestoreOptions {
    RestoreOptions { replace, revision_raise: 1000, now_unix_ms: 9 }
}

#[test]
fn a_restored_store_has_the_objects_and_a_later_revision() {
    let records = some_records();
    let source = stored(&records);
    let target = tempfile::tempdir().unwrap();
    let directory = target.path().join("new");
    let backup = source.path().join(FILE_NAME);
    let report = restore(&backup, &directory, restore_options(false)).unwrap();
    assert_eq!((report.revision, report.objects), (1004, 2));
    assert_eq!(mode(&directory.join(FILE_NAME)), 0o600);

    let (mut log, recovered) = open_directory(&directory);
    assert_eq!(recovered.objects, state_of(&records, 0).objects);
    assert_eq!(recovered.history, []);
    assert_eq!((recovered.revision, recovered.compacted_revision), (1004, 1004));
    assert_eq!(recovered.store_id, [7; 16]);
    log.append(&[put(1005, "later", "x")]).unwrap();
    drop(log);
    assert_eq!(open_directory(&directory).1.revision, 1005);
}

#[test]
fn a_restore_replaces_a_store_only_when_told_and_never_one_in_use() {
    let source = stored(&some_records());
    let backup = source.path().join(FILE_NAME);
    let target = stored(&[put(1, "mine", "x")]);
    let error = restore(&backup, target.path(), restore_options(false)).unwrap_err();
    assert!(matches!(error, CopyError::Exists { .. }), "{error}");
    assert_eq!(open_directory(target.path()).1.revision, 1);

    let (log, _) = open_directory(target.path());
    let error = restore(&backup, target.path(), restore_options(true)).unwrap_err();
    let in_use = matches!(error, CopyError::Source(OpenError::AlreadyOpen { .. }));
    assert!(in_use, "{error}");
    log.close().unwrap();

    restore(&backup, target.path(), restore_options(true)).unwrap();
    assert_eq!(open_directory(target.path()).1.revision, 1004);
}

#[test]
fn a_damaged_backup_is_not_restored() {
    let source = stored(&some_records());
    let backup = source.path().join(FILE_NAME);
    let mut bytes = std::fs::read(&backup).unwrap();
    let last = bytes.len() - 10;
    bytes[last] ^= 1;
    std::fs::write(&backup, bytes).unwrap();
    let target = stored(&[put(1, "mine", "x")]);
    let error = restore(&backup, target.path(), restore_options(true)).unwrap_err();
    assert!(matches!(error, CopyError::Source(OpenError::Damaged(_))));
    assert_eq!(open_directory(target.path()).1.revision, 1);
}

const CHILD_DIRECTORY: &str = "MILLPOND_TEST_STORE_DIRECTORY";

/// The batch that follows a revision: a function of the revision alone.
fn batch_after(revision: u64) -> Vec<Record> {
    random_batch(&mut SmallRng::seed_from_u64(revision), revision)
}

/// The first records, batch by batch, up to a revision at least.
fn records_until(revision: u64) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    while records.last().map_or(0, |record| record.revision) < revision {
        records.extend(batch_after(records.last().map_or(0, |record| record.revision)));
    }
    records
}

#[test]
#[ignore = "the process that is killed by killed_at_random_moments"]
fn child_that_is_killed() {
    let directory = std::env::var_os(CHILD_DIRECTORY).expect("run by another test");
    let (mut log, recovered) = open_directory(Path::new(&directory));
    let mut records = records_until(recovered.revision);
    let mut stdout = std::io::stdout().lock();
    loop {
        let batch = batch_after(records.last().map_or(0, |record| record.revision));
        log.append(&batch).unwrap();
        records.extend(batch);
        writeln!(stdout, "acknowledged {}", log.revision()).unwrap();
        stdout.flush().unwrap();
        if records.len().is_multiple_of(7) {
            let job = log.begin_compaction(0).unwrap();
            let file = job.write(snapshot(&records, 0)).unwrap();
            log.finish_compaction(file).unwrap();
        }
        if records.len().is_multiple_of(5) {
            log.settle().unwrap();
        }
    }
}

#[test]
fn killed_at_random_moments_everything_acknowledged_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = SmallRng::seed_from_u64(11);
    for round in 0..40 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child_that_is_killed", "--ignored", "--nocapture"])
            .env(CHILD_DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = 0;
        let mut read = |line: String| {
            if let Some(revision) = line.strip_prefix("acknowledged ") {
                acknowledged = revision.parse().unwrap();
                return true;
            }
            false
        };
        let mut wanted = random.random_range(1..20);
        while wanted > 0 {
            let line = lines.next().expect("the child still runs").unwrap();
            wanted -= u32::from(read(line));
        }
        child.kill().unwrap();
        // What it still said before it died counts as well.
        for line in lines.map_while(Result::ok) {
            read(line);
        }
        child.wait().unwrap();

        let (log, recovered) = open_directory(directory.path());
        assert!(recovered.revision >= acknowledged, "round {round}");
        let expected = state_of(&records_until(recovered.revision), 0);
        assert_eq!(state(&recovered), expected, "round {round}");
        drop(log);
    }
}

/// Removing the side file lets no second server in, neither before a compaction nor after it.
#[test]
fn the_file_of_the_store_itself_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open_directory(directory.path());
    let refused = || {
        std::fs::remove_file(directory.path().join("millpond.store.lock")).unwrap();
        let error = Log::open(directory.path(), options()).unwrap_err();
        assert!(matches!(error, OpenError::AlreadyOpen { .. }), "{error}");
        let backup = directory.path().join(FILE_NAME);
        let error = restore(&backup, directory.path(), restore_options(true)).unwrap_err();
        assert!(matches!(error, CopyError::Source(OpenError::AlreadyOpen { .. })), "{error}");
        assert!(matches!(check(&backup).unwrap().state, FileState::InUse { .. }));
    };
    let record = put(1, "a", "x");
    log.append(std::slice::from_ref(&record)).unwrap();
    refused();
    let job = log.begin_compaction(0).unwrap();
    let file = job.write(snapshot(std::slice::from_ref(&record), 0)).unwrap();
    refused();
    log.finish_compaction(file).unwrap();
    refused();
    log.append(&[put(2, "b", "y")]).unwrap();
    log.close().unwrap();
    assert_eq!(open_directory(directory.path()).1.revision, 2);
}

/// A backup that is cut off before its end has not taken its final name, and the next one is not held up by it.
#[test]
fn a_backup_has_its_name_only_when_it_is_complete() {
    let directory = stored(&some_records());
    let (source, copy) = (directory.path().join(FILE_NAME), directory.path().join("copy"));
    let cut_off = super::super::tools::PartialBackup::write(&source, &copy).unwrap();
    assert!(!copy.exists());
    drop(cut_off);
    let report = backup(&source, &copy).unwrap();
    assert_eq!(report.path, copy);
    assert_eq!(check(&copy).unwrap().state, FileState::Closed);
    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().contains("partial")));
}
