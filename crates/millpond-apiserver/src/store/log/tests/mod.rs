//! Tests of the log: an oracle that replays records naively, and one module
//! per kind of trouble. All but the slowest run on a disk in memory.

mod behaviour;
mod compaction;
mod crashes;
mod damage;
mod faults;
mod files;
mod fuzz;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::faulty::FaultyDisk;
use super::*;

/// Small steps, so that a few batches meet every path.
fn options() -> Options {
    let small =
        Options { allocation_bytes: 2048, ahead_bytes: 2048, reserve_bytes: 0, ..Options::new(1_000_000, [7; 16]) };
    Options { history_records: usize::MAX, ..small }
}

fn open(disk: &FaultyDisk) -> Result<(Log, Recovered), OpenError> {
    Log::open_in(Arc::new(disk.clone()), options())
}

fn put(revision: u64, key: &str, object: &str) -> Record {
    Record {
        revision,
        kind: RecordKind::Put,
        time_unix_ms: 1_000_000 + revision,
        resource: "pods".into(),
        key: key.into(),
        object: Bytes::copy_from_slice(object.as_bytes()),
    }
}

fn delete(revision: u64, key: &str, object: &str) -> Record {
    Record { kind: RecordKind::Delete, ..put(revision, key, object) }
}

/// What a log that holds these records must give back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    objects: Vec<LiveObject>,
    history: Vec<HistoryRecord>,
    revision: u64,
}

fn state_of(records: &[Record], compacted_revision: u64) -> State {
    let mut objects: BTreeMap<(Arc<str>, Arc<str>), Previous> = BTreeMap::new();
    let mut history = Vec::new();
    for record in records {
        let name = (record.resource.clone(), record.key.clone());
        let previous = match record.kind {
            RecordKind::Delete => objects.remove(&name),
            RecordKind::Put => {
                let (revision, object) = (record.revision, record.object.clone());
                objects.insert(name, Previous { revision, object })
            }
        };
        if record.revision > compacted_revision {
            let record = record.clone();
            history.push(HistoryRecord { record, previous });
        }
    }
    let live = objects.into_iter().map(|((resource, key), state)| LiveObject {
        resource,
        key,
        revision: state.revision,
        object: state.object,
    });
    State { objects: live.collect(), history, revision: records.last().map_or(0, |record| record.revision) }
}

fn state(recovered: &Recovered) -> State {
    State { objects: recovered.objects.clone(), history: recovered.history.clone(), revision: recovered.revision }
}

fn snapshot(records: &[Record], compacted: u64) -> Snapshot<std::vec::IntoIter<LiveObject>> {
    let state = state_of(records, compacted);
    Snapshot {
        revision: state.revision,
        compacted_revision: compacted,
        live: state.objects.into_iter(),
        history: state.history,
    }
}

/// A batch of random writes to a few keys.
fn random_batch(random: &mut SmallRng, revision: u64) -> Vec<Record> {
    let count = random.random_range(1..=6);
    let gap = random.random_range(1..=2);
    (0..count)
        .map(|index| {
            let revision = revision + gap + index;
            let key = format!("default/{}", random.random_range(0..8));
            let size = [0, 3, 40, 511, 700, 2500][random.random_range(0..6)];
            let filler = char::from(b'a' + (revision % 26) as u8);
            let object = filler.to_string().repeat(size);
            let mut record = put(revision, &key, &object);
            if random.random_bool(0.2) {
                record.kind = RecordKind::Delete;
            }
            if random.random_bool(0.2) {
                record.resource = "apps/deployments".into();
            }
            record
        })
        .collect()
}
