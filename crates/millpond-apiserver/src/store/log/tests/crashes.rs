//! Power cuts at every point of random work: what was acknowledged is there,
//! what was not is there whole or not at all, and nothing is refused.

use rand::SeedableRng as _;

use super::*;
use crate::store::log::faulty::{Fault, Tear};

/// What the store must hold, told by what was acknowledged.
#[derive(Debug, Default)]
struct World {
    acknowledged: Vec<Record>,
    /// Handed to `append`, without an answer.
    in_flight: Vec<Record>,
    /// Where history begins: of the file, and of one that may replace it.
    compacted: Vec<u64>,
}

impl World {
    fn revision(&self) -> u64 {
        self.acknowledged.last().map_or(0, |record| record.revision)
    }

    /// Compares, and settles what became of the batch in flight.
    fn verify(&mut self, recovered: &Recovered, context: &str) {
        let compacted = recovered.compacted_revision;
        assert!(self.compacted.contains(&compacted), "{context}");
        self.compacted = vec![compacted];
        let in_flight = std::mem::take(&mut self.in_flight);
        if recovered.revision > self.revision() {
            self.acknowledged.extend(in_flight);
        }
        let expected = state_of(&self.acknowledged, compacted);
        assert_eq!(state(recovered), expected, "{context}");
    }
}

/// Works until the disk dies or the work is done.
fn live(disk: &FaultyDisk, random: &mut SmallRng, world: &mut World, context: &str) {
    let Ok((mut log, recovered)) = open(disk) else {
        return;
    };
    world.verify(&recovered, context);
    let mut job = None;
    let mut compacted = None;
    for _ in 0..random.random_range(5..40) {
        let alive = match random.random_range(0..100) {
            0..70 => {
                world.in_flight = random_batch(random, world.revision());
                let result = log.append(&world.in_flight);
                if result.is_ok() {
                    world.acknowledged.append(&mut world.in_flight);
                }
                result.is_ok()
            }
            70..74 => log.settle().is_ok(),
            74..78 => log.fill_ahead().is_ok(),
            78..84 => {
                job = log.begin_compaction(0).or(job);
                true
            }
            84..90 => match job.take() {
                Some(begun) => {
                    let floor = world.compacted[0];
                    let from = random.random_range(floor..=world.revision());
                    compacted = begun.write(snapshot(&world.acknowledged, from)).ok();
                    world.compacted = vec![floor, from];
                    compacted.is_some()
                }
                None => true,
            },
            90..95 => match compacted.take() {
                Some(file) => {
                    let finished = log.finish_compaction(file).is_ok();
                    if finished {
                        world.compacted.remove(0);
                    }
                    finished
                }
                None => true,
            },
            _ => {
                if log.close().is_err() {
                    return;
                }
                (job, compacted) = (None, None);
                let Ok((reopened, recovered)) = open(disk) else {
                    return;
                };
                world.verify(&recovered, context);
                log = reopened;
                true
            }
        };
        if !alive {
            return;
        }
    }
}

fn lives(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut disk = FaultyDisk::new(seed);
    let mut world = World { compacted: vec![0], ..World::default() };
    for life in 0..4 {
        let context = format!("seed {seed}, life {life}");
        disk.fail_at(random.random_range(1..90), Fault::Die);
        live(&disk, &mut random, &mut world, &context);
        let tear = [Tear::Nothing, Tear::Everything, Tear::Sectors, Tear::Sectors][random.random_range(0..4)];
        disk = disk.crash(random.random(), tear);
        let (log, recovered) = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        world.verify(&recovered, &context);
        drop(log);
    }
}

#[test]
fn every_acknowledged_batch_survives_a_power_cut() {
    for seed in 0..3000 {
        lives(seed);
    }
}

/// One batch, every operation of it, and every pattern of lost sectors that
/// a few hundred seeds give.
#[test]
fn a_power_cut_at_every_operation_of_a_commit() {
    let object = "x".repeat(1700);
    for operation in 1.. {
        let mut finished = false;
        for seed in 0..200 {
            let disk = FaultyDisk::new(seed);
            let (mut log, _) = open(&disk).unwrap();
            log.append(&[put(1, "a", &object)]).unwrap();
            disk.fail_at(operation, Fault::Die);
            let batch = [put(2, "b", &object), put(3, "c", &object)];
            let acknowledged = log.append(&batch).is_ok();
            finished |= acknowledged;
            let disk = disk.crash(seed, Tear::Sectors);
            let (_, recovered) = open(&disk).unwrap();
            let whole = [&[put(1, "a", &object)], batch.as_slice()].concat();
            if acknowledged || recovered.revision > 1 {
                assert_eq!(state(&recovered), state_of(&whole, 0));
            } else {
                assert_eq!(state(&recovered), state_of(&whole[..1], 0));
            }
        }
        if finished {
            assert!(operation > 3, "a commit has several operations");
            return;
        }
    }
}

#[test]
fn a_torn_batch_is_dropped_with_a_note() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[put(1, "a", "x")]).unwrap();
    let end = log.data_bytes() as usize;
    log.append(&[put(2, "b", &"y".repeat(2000))]).unwrap();
    let torn_end = log.data_bytes() as usize;
    drop(log);
    let mut bytes = disk.bytes(FILE_NAME).unwrap();
    let lost = (end + 600).next_multiple_of(512);
    bytes[lost..lost + 512].fill(0);
    let disk = FaultyDisk::with_file(FILE_NAME, bytes);

    let (mut log, recovered) = open(&disk).unwrap();
    assert_eq!(recovered.revision, 1);
    let torn = Note::TornTail { offset: end as u64, bytes: (torn_end - end) as u64 };
    assert_eq!(recovered.notes, [Note::NotClosed, torn]);
    assert_eq!(
        torn.to_string(),
        format!("an unfinished write of {} bytes at {end} was dropped; it had not been acknowledged", torn_end - end)
    );
    // A shorter batch at its place is not followed by remains.
    log.append(&[put(2, "c", "z")]).unwrap();
    drop(log);
    let records = [put(1, "a", "x"), put(2, "c", "z")];
    assert_eq!(state(&open(&disk).unwrap().1), state_of(&records, 0));
}

#[test]
fn a_spoilt_slot_after_a_crash_is_replaced_by_its_twin() {
    let disk = FaultyDisk::new(1);
    let (mut log, _) = open(&disk).unwrap();
    let records: Vec<_> = (1..=5).map(|revision| put(revision, "a", "x")).collect();
    for record in &records {
        log.append(std::slice::from_ref(record)).unwrap();
    }
    drop(log);
    for page in [1, 2] {
        let mut bytes = disk.bytes(FILE_NAME).unwrap();
        bytes[page * 4096..page * 4096 + 30].fill(0xaa);
        let disk = FaultyDisk::with_file(FILE_NAME, bytes);
        let (mut log, recovered) = open(&disk).unwrap();
        assert_eq!(state(&recovered), state_of(&records, 0));
        let offset = page as u64 * 4096;
        assert_eq!(recovered.notes, [Note::NotClosed, Note::SlotReplaced { offset }]);
        log.append(&[put(6, "a", "y")]).unwrap();
        log.append(&[put(7, "a", "y")]).unwrap();
        drop(log);
        assert_eq!(open(&disk).unwrap().1.notes, [Note::NotClosed]);
    }
}

/// After a failed sync the page cache shows a batch that the disk may not have. A reader that saw the batch must find
/// it again.
#[test]
fn what_a_restart_shows_is_durable() {
    for seed in 0..300 {
        let disk = FaultyDisk::new(seed);
        let (mut log, _) = open(&disk).unwrap();
        log.append(&[put(1, "a", "x")]).unwrap();
        disk.fail_at(3, Fault::Broken);
        log.append(&[put(2, "b", &"y".repeat(2000))]).unwrap_err();
        assert!(log.is_poisoned());
        drop(log);
        let (log, shown) = open(&disk).unwrap();
        drop(log);
        assert_eq!(shown.revision, 2);
        let (_, found) = open(&disk.crash(seed, Tear::Nothing)).unwrap();
        assert_eq!(state(&found), state(&shown));
    }
}
