//! `millpond store`: check the file of the embedded API's store, copy it,
//! bring a copy back. The work is done by `millpond_apiserver::store::log`;
//! here it gets its arguments and its words.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use millpond_apiserver::store::log::{
    self, CheckReport, CopyError, CopyReport, DEFAULT_REVISION_RAISE, FILE_NAME, FileState, OpenError, RestoreOptions,
};

use crate::commands::up::default_data_dir;
use crate::failure::{Code, Failure};

/// Maintain the store of the embedded API
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Read the whole store: verify every byte of it and read every object
    ///
    /// Works while `millpond up` runs. Exits with 1 when something is damaged or unreadable.
    #[command(after_help = "Examples:
  millpond store check --data-dir ./data
  millpond store check backup-monday.store
  millpond store check --data-dir ./data -o json | jq .problems")]
    Check(CheckArgs),

    /// Copy the store to one new file
    ///
    /// Works while `millpond up` runs: the copy is the store at one moment, to
    /// the last write or the one before it. It is verified, and readable by its
    /// owner alone: it holds the secrets that the store holds.
    #[command(after_help = "Examples:
  millpond store backup --data-dir ./data backup-monday.store")]
    Backup(BackupArgs),

    /// Make a backup the store of a data directory
    ///
    /// `millpond up` must not be running there. Objects come back as they were
    /// in the backup; the store's revision goes on above every revision that
    /// clients may have seen since, so that they list anew instead of resuming.
    #[command(after_help = "Examples:
  millpond store restore --data-dir ./data backup-monday.store
  millpond store restore --data-dir ./data --replace backup-monday.store")]
    Restore(RestoreArgs),
}

/// Where the store is.
#[derive(Debug, Args)]
pub(crate) struct DataDir {
    /// The directory that `millpond up` keeps its data in
    #[arg(long, value_name = "DIR", env = "MILLPOND_DATA_DIR", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    store: DataDir,

    /// A backup to check, instead of the store of a data directory
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// How to print the report
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    from: DataDir,

    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    to: PathBuf,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    to: DataDir,

    /// The backup
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// Replace an existing store
    #[arg(long)]
    replace: bool,

    /// How far to raise the revision above the backup's
    ///
    /// At least the number of writes between the backup and now.
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_REVISION_RAISE)]
    raise_revision: u64,
}

/// Runs the command and writes its answer to `out`.
pub(crate) fn run(command: &StoreCommand, out: &mut impl Write) -> anyhow::Result<()> {
    match command {
        StoreCommand::Check(args) => check(args, out),
        StoreCommand::Backup(args) => {
            let source = args.from.data_dir.join(FILE_NAME);
            let report =
                log::backup(&source, &args.to).map_err(|error| copy_error("cannot back up the store", error))?;
            say(out, &copy_line("backed up to", &report))
        }
        StoreCommand::Restore(args) => {
            let options = RestoreOptions {
                replace: args.replace,
                revision_raise: args.raise_revision,
                now_unix_ms: now_unix_ms(),
            };
            let report = log::restore(&args.from, &args.to.data_dir, options)
                .map_err(|error| copy_error("cannot restore the backup", error))?;
            say(out, &copy_line("restored to", &report))
        }
    }
}

fn say(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    super::print(
        out,
        &format!(
            "{text}
"
        ),
    )
}

fn check(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let path = args.file.clone().unwrap_or_else(|| args.store.data_dir.join(FILE_NAME));
    let report = log::check(&path).map_err(|error| {
        let (code, hint) = (open_code(&error), error.hint());
        failed("cannot check the store", error.into(), code, hint)
    })?;
    let text = match args.output {
        Output::Table => table(&report),
        Output::Json => json(&report)?,
    };
    say(out, text.trim_end())?;
    let message = match report.problems.len() {
        0 => return unreadable(&report),
        1 => "the store is damaged in one place".to_owned(),
        count => format!("the store is damaged in {count} places"),
    };
    let hint = "keep a copy of the file, then bring a backup back with `millpond store restore --replace`";
    Err(Failure { message, code: None, hint: Some(hint.to_owned()) }.into())
}

/// The failure for a store whose bytes are intact but that has unreadable objects.
fn unreadable(report: &CheckReport) -> anyhow::Result<()> {
    let message = match report.unreadable.as_slice() {
        [] => return Ok(()),
        [one] => format!("the object `{}` of `{}` cannot be read", one.key, one.resource),
        many => format!("{} objects cannot be read", many.len()),
    };
    let hint = "`millpond up` starts without them and keeps them; `kubectl delete` removes them from the store";
    Err(Failure { message, code: None, hint: Some(hint.to_owned()) }.into())
}

fn table(report: &CheckReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<9}  {value}");
    };
    line("store", &report.path.display().to_string());
    line("id", &hex(&report.store_id));
    line("state", &state_text(report.state));
    let (file, data) = (bytes_text(report.file_bytes), bytes_text(report.data_bytes));
    line("size", &format!("{file}, {data} of it data"));
    line("revision", &format!("{}, history above {}", report.revision, report.compacted_revision));
    line(
        "log",
        &format!(
            "{} in {}, after a snapshot of {}",
            counted(report.records, "record", "s"),
            counted(report.batches, "batch", "es"),
            counted(report.snapshot_objects, "object", "s")
        ),
    );
    let total: u64 = report.objects.values().sum();
    let width = total.to_string().len();
    line("objects", &total.to_string());
    for (resource, count) in &report.objects {
        line("", &format!("{count:>width$} {resource}"));
    }
    for note in &report.notes {
        line("note", &note.to_string());
    }
    for problem in &report.problems {
        let place = format!("at byte {}: ", problem.offset);
        let what = format!("expected {}, found {}", problem.expected, problem.found);
        line("damage", &(place + &what));
    }
    for object in &report.unreadable {
        let place = format!("{} {} of revision {}", object.resource, object.key, object.revision);
        line("object", &format!("{place} cannot be read: {}", object.reason));
    }
    let verdict = match (report.problems.len(), report.unreadable.len()) {
        (0, 0) => "every byte verified, every object read".to_owned(),
        (0, count) => format!("every byte verified; {} cannot be read", counted(count as u64, "object", "s")),
        _ => "damaged; the counts are of what can be read".to_owned(),
    };
    line("result", &verdict);
    text
}

fn json(report: &CheckReport) -> anyhow::Result<String> {
    let problems: Vec<_> = report
        .problems
        .iter()
        .map(|problem| {
            serde_json::json!({
                "offset": problem.offset,
                "expected": problem.expected,
                "found": problem.found,
            })
        })
        .collect();
    let unreadable: Vec<_> = report
        .unreadable
        .iter()
        .map(|object| {
            serde_json::json!({
                "resource": object.resource,
                "key": object.key,
                "revision": object.revision,
                "reason": object.reason,
            })
        })
        .collect();
    let notes: Vec<_> = report.notes.iter().map(ToString::to_string).collect();
    let value = serde_json::json!({
        "path": report.path,
        "storeId": hex(&report.store_id),
        "state": match report.state {
            FileState::Closed => "Closed",
            FileState::NotClosed => "NotClosed",
            FileState::InUse { .. } => "InUse",
        },
        "format": report.format,
        "generation": report.generation,
        "fileBytes": report.file_bytes,
        "dataBytes": report.data_bytes,
        "revision": report.revision,
        "compactedRevision": report.compacted_revision,
        "snapshotObjects": report.snapshot_objects,
        "batches": report.batches,
        "records": report.records,
        "objects": report.objects,
        "unreadable": unreadable,
        "notes": notes,
        "problems": problems,
    });
    Ok(serde_json::to_string_pretty(&value)?)
}

fn state_text(state: FileState) -> String {
    match state {
        FileState::Closed => "closed".to_owned(),
        FileState::NotClosed => "not closed: its server was killed or lost power".to_owned(),
        FileState::InUse { process: None } => "in use".to_owned(),
        FileState::InUse { process: Some(id) } => format!("in use by process {id}"),
    }
}

fn copy_line(verb: &str, report: &CopyReport) -> String {
    let mut line = format!(
        "{verb} {}: {} at revision {}, {}, verified",
        report.path.display(),
        counted(report.objects, "object", "s"),
        report.revision,
        bytes_text(report.bytes)
    );
    for note in &report.notes {
        let _ = write!(line, "\nnote: {note}");
    }
    if report.unreadable > 0 {
        let objects = counted(report.unreadable, "object", "s");
        let _ = write!(line, "\nnote: {objects} cannot be read and were copied as they are");
    }
    line
}

fn counted(count: u64, noun: &str, plural: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { plural })
}

fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// The exit code of a store that cannot be opened.
pub(crate) fn open_code(error: &OpenError) -> Option<Code> {
    match error {
        OpenError::Missing { .. } => Some(Code::NotFound),
        OpenError::AlreadyOpen { .. } => Some(Code::Conflict),
        OpenError::NotWritable { source, .. } => Code::of_io(source),
        OpenError::File(problem) => Code::of_io(&problem.source),
        _ => None,
    }
}

fn copy_error(message: &str, error: CopyError) -> anyhow::Error {
    let (code, hint) = match &error {
        CopyError::Source(source @ OpenError::AlreadyOpen { .. }) => {
            (open_code(source), Some("stop `millpond up` first"))
        }
        CopyError::Source(source @ OpenError::Missing { path }) if !is_store(path) => {
            (open_code(source), Some("name the file that `millpond store backup` wrote"))
        }
        CopyError::Source(source) => (open_code(source), source.hint()),
        CopyError::Exists { path } if is_store(path) => {
            (Some(Code::Conflict), Some("`--replace` replaces the store that is there"))
        }
        CopyError::Exists { .. } => (Some(Code::Conflict), Some("choose another name, or move the file away")),
        CopyError::RevisionRange { .. } => (None, Some("give a smaller `--raise-revision`")),
        CopyError::File(problem) => (Code::of_io(&problem.source), None),
    };
    failed(message, error.into(), code, hint)
}

fn is_store(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == FILE_NAME)
}

fn failed(message: &str, cause: anyhow::Error, code: Option<Code>, hint: Option<&str>) -> anyhow::Error {
    cause.context(Failure { message: message.to_owned(), code, hint: hint.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use millpond_apiserver::store::log::{Log, Options, Record, RecordKind};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: StoreCommand,
    }

    /// Runs a command line; the directory's name is taken out of the answer.
    fn answer(directory: &Path, line: &str) -> String {
        let name = directory.to_str().unwrap();
        let words = line.split(' ').map(|word| word.replace("DIR", name));
        let words = std::iter::once("store".to_owned()).chain(words);
        let mut out = Vec::new();
        let result = match Cli::try_parse_from(words) {
            Ok(cli) => run(&cli.command, &mut out),
            Err(error) => Err(error.into()),
        };
        let mut text = String::from_utf8(out).unwrap();
        if let Err(error) = result {
            writeln!(text, "{}", crate::failure::describe(&error)).unwrap();
        }
        text.replace(name, "DIR")
    }

    fn directory_with_store() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let (mut log, _) = Log::open(&data, Options::new(0, [0xab; 16])).unwrap();
        let record = |revision: u64, resource: &str, key: &str| Record {
            revision,
            kind: RecordKind::Put,
            time_unix_ms: 0,
            resource: resource.into(),
            key: key.into(),
            object: format!("{{\"revision\":{revision}}}").into_bytes().into(),
        };
        log.append(&[record(1, "pods", "default/a"), record(2, "pods", "default/b")]).unwrap();
        log.append(&[record(3, "apps/deployments", "default/web")]).unwrap();
        log.close().unwrap();
        directory
    }

    #[test]
    fn check_names_objects_that_cannot_be_read() {
        let directory = directory_with_store();
        let data = directory.path().join("data");
        let (mut log, _) = Log::open(&data, Options::new(0, [0xab; 16])).unwrap();
        let deep = format!("{{\"spec\":{}1{}}}", "[".repeat(127), "]".repeat(127));
        let object = deep.into_bytes().into();
        let (resource, key) = ("controllerrevisions.apps".into(), "default/deep".into());
        log.append(&[Record { revision: 4, kind: RecordKind::Put, time_unix_ms: 0, resource, key, object }]).unwrap();
        log.close().unwrap();
        let answer = answer(directory.path(), "check --data-dir DIR/data");
        for expected in [
            "\nobject     controllerrevisions.apps default/deep of revision 4 cannot be read: recursion limit exceeded",
            "\nresult     every byte verified; 1 object cannot be read\n",
            "\nerror: the object `default/deep` of `controllerrevisions.apps` cannot be read\n",
        ] {
            assert!(answer.contains(expected), "{answer}");
        }
    }

    #[test]
    fn check_backup_restore() {
        let directory = directory_with_store();
        let at = directory.path();
        insta::assert_snapshot!(answer(at, "check --data-dir DIR/data"), @"
        store      DIR/data/millpond.store
        id         abababababababababababababababab
        state      closed
        size       12.3 KiB, 12.3 KiB of it data
        revision   3, history above 0
        log        3 records in 2 batches, after a snapshot of 0 objects
        objects    3
                   1 apps/deployments
                   2 pods
        result     every byte verified, every object read
        ");
        insta::assert_snapshot!(
            answer(at, "backup --data-dir DIR/data DIR/copy"),
            @"backed up to DIR/copy: 3 objects at revision 3, 12.2 KiB, verified"
        );
        insta::assert_snapshot!(answer(at, "backup --data-dir DIR/data DIR/copy"), @"
        error: cannot back up the store: `DIR/copy` exists already
        hint: choose another name, or move the file away
        ");
        insta::assert_snapshot!(
            answer(at, "restore --data-dir DIR/new DIR/copy"),
            @"restored to DIR/new/millpond.store: 3 objects at revision 1000000003, 12.2 KiB, verified"
        );
        insta::assert_snapshot!(answer(at, "restore --data-dir DIR/new DIR/copy"), @"
        error: cannot restore the backup: `DIR/new/millpond.store` exists already
        hint: `--replace` replaces the store that is there
        ");
        insta::assert_snapshot!(
            answer(at, "restore --data-dir DIR/new --raise-revision 7 --replace DIR/copy"),
            @"restored to DIR/new/millpond.store: 3 objects at revision 10, 12.2 KiB, verified"
        );
        insta::assert_snapshot!(answer(at, "check DIR/new/millpond.store -o json"), @r#"
        {
          "batches": 0,
          "compactedRevision": 10,
          "dataBytes": 12495,
          "fileBytes": 12495,
          "format": 1,
          "generation": 2,
          "notes": [],
          "objects": {
            "apps/deployments": 1,
            "pods": 2
          },
          "path": "DIR/new/millpond.store",
          "problems": [],
          "records": 0,
          "revision": 10,
          "snapshotObjects": 3,
          "state": "Closed",
          "storeId": "abababababababababababababababab",
          "unreadable": []
        }
        "#);
    }

    #[test]
    fn damage_is_listed_and_fails() {
        let directory = directory_with_store();
        let path = directory.path().join("data").join(FILE_NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - 12;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        insta::assert_snapshot!(answer(directory.path(), "check --data-dir DIR/data"), @"
        store      DIR/data/millpond.store
        id         abababababababababababababababab
        state      closed
        size       12.3 KiB, 12.2 KiB of it data
        revision   2, history above 0
        log        2 records in 1 batch, after a snapshot of 0 objects
        objects    2
                   2 pods
        damage     at byte 12456: expected a payload with checksum 1fd2a37d, found d378a3e3
        result     damaged; the counts are of what can be read
        error: the store is damaged in one place
        hint: keep a copy of the file, then bring a backup back with `millpond store restore --replace`
        ");
        insta::assert_snapshot!(
            answer(directory.path(), "backup --data-dir DIR/data DIR/copy"), @"
        error: cannot back up the store: the store `DIR/data/millpond.store` is damaged at byte 12456: expected a payload with checksum 1fd2a37d, found d378a3e3
        hint: `millpond store check` lists the damage; `millpond store restore` brings a backup back
        ");
    }

    #[test]
    fn mistakes_are_answered_with_the_next_step() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        insta::assert_snapshot!(answer(at, "check --data-dir DIR/none"), @"
        error: cannot check the store: there is no store at `DIR/none/millpond.store`
        hint: `--data-dir` names the directory that `millpond up` was started with
        ");
        std::fs::write(at.join("text"), "not a store at all").unwrap();
        insta::assert_snapshot!(answer(at, "restore --data-dir DIR/data DIR/text"), @r#"
        error: cannot restore the backup: `DIR/text` is not a Millpond store: its first bytes are "not a st"
        hint: the store of a data directory is `millpond.store`; a backup comes from `millpond store backup`
        "#);
    }
}
