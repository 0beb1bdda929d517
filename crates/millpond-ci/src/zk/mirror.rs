//! What was read of ZooKeeper, as typed records.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::paths::{self, NodePath};
use super::wire::Stat;
use crate::engine::{ForeignPool, Lock};
use crate::launcher::{Key, PoolId, Records, Stored};
use crate::model::{Node, NodeRequest, PoolComponent, parse};

/// The last ten characters of a contender's name say its turn.
const SEQUENCE: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Mirror {
    requests: BTreeMap<String, Entry<NodeRequest>>,
    nodes: BTreeMap<String, Entry<Node>>,
    pools: BTreeMap<String, (PoolComponent, i64)>,
    /// Contenders of each lock by turn, below the lock's folder.
    contenders: HashMap<String, BTreeMap<String, String>>,
    /// Paths whose damage was logged.
    damaged: HashSet<String>,
    is_complete: bool,
    /// Locks that this process holds, with the path of its contender.
    pub(super) held: BTreeMap<Key, String>,
    /// Locks that this process is about to take.
    pub(super) taking: BTreeSet<Key>,
    /// Requests that went since they were asked for last; their locks' folders can go.
    pub(super) removed_requests: Vec<String>,
    /// Pools of this process, by the id that they announce.
    pub(super) our_ids: BTreeMap<PoolId, String>,
    /// Pools of this process that are announced.
    pub(super) ours: BTreeMap<PoolId, String>,
    /// Versions of the counters of what tenants were given, by path.
    turns: BTreeMap<String, i32>,
    /// This process's own counter.
    pub(super) our_turn: Option<String>,
}

#[derive(Debug)]
struct Entry<T> {
    record: Arc<T>,
    version: i32,
    mzxid: i64,
}

impl Mirror {
    pub(super) fn lost(&mut self) {
        self.is_complete = false;
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.nodes.clear();
        self.pools.clear();
        self.contenders.clear();
        self.turns.clear();
        self.is_complete = false;
    }

    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Takes in what is at a path now. What was read later stays.
    pub(super) fn set(&mut self, path: &str, data: &[u8], stat: Stat) {
        match paths::place(path) {
            NodePath::Request(id) => {
                if let Some(record) = read(path, data, &mut self.damaged) {
                    put(&mut self.requests, id, record, stat);
                }
            }
            NodePath::Node(id) => {
                if let Some(record) = read(path, data, &mut self.damaged) {
                    put(&mut self.nodes, id, record, stat);
                }
            }
            NodePath::Pool => {
                let newer = self.pools.get(path).is_some_and(|(_, mzxid)| *mzxid > stat.mzxid);
                if let Some(record) = read(path, data, &mut self.damaged).filter(|_| !newer) {
                    self.pools.insert(path.to_owned(), (record, stat.mzxid));
                }
            }
            NodePath::Contender(folder, name) => {
                if let Some(turn) = turn(name) {
                    self.contenders.entry(folder.to_owned()).or_default().insert(turn.to_owned(), name.to_owned());
                }
            }
            NodePath::Turns => {
                let known = self.turns.entry(path.to_owned()).or_insert(stat.version);
                *known = stat.version.max(*known);
            }
            NodePath::Folder | NodePath::Other => {}
        }
    }

    pub(super) fn put_request(&mut self, id: &str, record: NodeRequest, stat: Stat) {
        put(&mut self.requests, id, record, stat);
    }

    pub(super) fn put_node(&mut self, id: &str, record: Node, stat: Stat) {
        put(&mut self.nodes, id, record, stat);
    }

    pub(super) fn remove(&mut self, path: &str) {
        match paths::place(path) {
            NodePath::Request(id) => {
                if self.requests.remove(id).is_some() {
                    self.removed_requests.push(id.to_owned());
                }
            }
            NodePath::Node(id) => {
                self.nodes.remove(id);
            }
            NodePath::Pool => {
                self.pools.remove(path);
            }
            NodePath::Contender(folder, name) => {
                if let (Some(turn), Some(contenders)) = (turn(name), self.contenders.get_mut(folder)) {
                    contenders.remove(turn);
                    if contenders.is_empty() {
                        self.contenders.remove(folder);
                    }
                }
            }
            NodePath::Turns => {
                self.turns.remove(path);
            }
            NodePath::Folder | NodePath::Other => {}
        }
        self.damaged.remove(path);
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        match key {
            Key::Request(id) => self.requests.contains_key(id),
            Key::Node(id) => self.nodes.contains_key(id),
        }
    }

    pub(super) fn request(&self, id: &str) -> Option<Stored<NodeRequest>> {
        Some(one(self.requests.get(id)?, self.lock(Key::Request(id.to_owned()))))
    }

    pub(super) fn node(&self, id: &str) -> Option<Stored<Node>> {
        Some(one(self.nodes.get(id)?, self.lock(Key::Node(id.to_owned()))))
    }

    /// The path of the contender that holds a lock.
    pub(super) fn holder(&self, folder: &str) -> Option<String> {
        let (_, name) = self.contenders.get(folder)?.first_key_value()?;
        Some(format!("{folder}/{name}"))
    }

    /// Contenders with this prefix that hold or await locks which this process knows nothing of.
    pub(super) fn strays(&self, prefix: &str) -> Vec<String> {
        let known: HashSet<&String> = self.held.values().collect();
        let taking: HashSet<String> = self.taking.iter().map(paths::lock).collect();
        let of_records = |folder: &&String| !folder.starts_with(paths::ELECTIONS) && !taking.contains(*folder);
        let all = self.contenders.iter().filter(|(folder, _)| of_records(folder));
        let named = all.flat_map(|(folder, names)| names.values().map(move |name| (folder, name)));
        let ours = named.filter(|(_, name)| name.starts_with(prefix));
        ours.map(|(folder, name)| format!("{folder}/{name}")).filter(|path| !known.contains(path)).collect()
    }

    /// Everything, with locks.
    pub(super) fn records(&self) -> Records {
        let ours: BTreeSet<&String> = self.our_ids.values().collect();
        let pools = self.pools.values().map(|(pool, _)| pool);
        let foreign = pools.filter_map(|pool| {
            let id = pool.id.clone().filter(|id| !ours.contains(id))?;
            Some(ForeignPool {
                id,
                provider: pool.provider_name.clone().unwrap_or_default(),
                priority: pool.priority,
                paused: pool.paused,
                labels: pool.supported_labels.iter().cloned().collect(),
            })
        });
        Records {
            requests: stored(&self.requests, |id| self.lock(Key::Request(id.to_owned()))),
            nodes: stored(&self.nodes, |id| self.lock(Key::Node(id.to_owned()))),
            ours: self.ours.clone(),
            foreign: foreign.collect(),
            tenants_seen: Arc::new(self.seen()),
            is_complete: self.is_complete,
        }
    }

    /// The counters of others: what was given to tenants by other launchers is in the records as far as these say.
    fn seen(&self) -> BTreeMap<String, i32> {
        let others = self.turns.iter().filter(|(path, _)| Some(*path) != self.our_turn.as_ref());
        others.map(|(path, version)| (path.clone(), *version)).collect()
    }

    fn lock(&self, key: Key) -> Lock {
        match self.holder(&paths::lock(&key)) {
            None => Lock::Free,
            Some(path) if self.held.get(&key) == Some(&path) => Lock::Ours,
            Some(_) => Lock::Other,
        }
    }
}

/// Reads a record. A damaged one is logged once, and is as if it were not there.
fn read<T: serde::de::DeserializeOwned>(path: &str, data: &[u8], damaged: &mut HashSet<String>) -> Option<T> {
    match parse(path, data) {
        Ok(record) => Some(record),
        Err(error) => {
            if damaged.insert(path.to_owned()) {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "a znode is ignored");
            }
            None
        }
    }
}

fn put<T>(entries: &mut BTreeMap<String, Entry<T>>, id: &str, record: T, stat: Stat) {
    let entry = Entry { record: Arc::new(record), version: stat.version, mzxid: stat.mzxid };
    match entries.get_mut(id) {
        Some(known) if known.mzxid >= entry.mzxid => {}
        Some(known) => *known = entry,
        None => drop(entries.insert(id.to_owned(), entry)),
    }
}

fn stored<T>(entries: &BTreeMap<String, Entry<T>>, lock: impl Fn(&str) -> Lock) -> BTreeMap<String, Stored<T>> {
    entries.iter().map(|(id, entry)| (id.clone(), one(entry, lock(id)))).collect()
}

fn one<T>(entry: &Entry<T>, lock: Lock) -> Stored<T> {
    Stored { record: Arc::clone(&entry.record), revision: u64::from(entry.version.unsigned_abs()), lock }
}

/// The turn of a contender; `None` for znodes that are none.
pub(super) fn turn(name: &str) -> Option<&str> {
    let (before, turn) = name.split_at_checked(name.len().checked_sub(SEQUENCE)?)?;
    (before.contains("lock__") && turn.bytes().all(|byte| byte.is_ascii_digit())).then_some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(mzxid: i64) -> Stat {
        Stat { mzxid, version: mzxid as i32, ..Stat::default() }
    }

    #[test]
    fn the_lowest_turn_holds_a_lock() {
        let mut mirror = Mirror::default();
        mirror.set("/nodepool/nodes/0000000001", br#"{"state": "ready"}"#, stat(1));
        let lock = |mirror: &Mirror| mirror.records().nodes["0000000001"].lock;
        assert_eq!(lock(&mirror), Lock::Free);
        let folder = "/nodepool/nodes/0000000001/lock";
        let (ours, other) = (format!("{folder}/a__lock__0000000002"), format!("{folder}/b__lock__0000000001"));
        mirror.held.insert(Key::Node("0000000001".into()), ours.clone());
        mirror.set(&ours, &[], stat(0));
        assert_eq!(lock(&mirror), Lock::Ours);
        mirror.set(&other, &[], stat(0));
        assert_eq!(lock(&mirror), Lock::Other);
        mirror.remove(&other);
        mirror.remove(&ours);
        assert_eq!(lock(&mirror), Lock::Free);
        mirror.set(&format!("{folder}/foreign"), &[], stat(0));
        assert_eq!(lock(&mirror), Lock::Free);
    }

    #[test]
    fn late_answers_do_not_replace_what_was_read_after_them() {
        let mut mirror = Mirror::default();
        mirror.set("/nodepool/requests/1", br#"{"state": "pending"}"#, stat(5));
        mirror.set("/nodepool/requests/1", br#"{"state": "requested"}"#, stat(4));
        assert_eq!(mirror.records().requests["1"].revision, 5);
        mirror.set("/nodepool/requests/1", b"{", stat(6));
        assert_eq!(mirror.records().requests["1"].revision, 5, "damaged data is ignored");
    }

    #[test]
    fn counters_of_other_launchers_are_seen() {
        let mut mirror = Mirror { our_turn: Some(format!("{}/ours", paths::TENANTS)), ..Mirror::default() };
        for name in ["", "/ours", "/other", "/gone"] {
            mirror.set(&format!("{}{name}", paths::TENANTS), &[], stat(3));
        }
        mirror.set(&format!("{}/other", paths::TENANTS), &[], stat(4));
        mirror.remove(&format!("{}/gone", paths::TENANTS));
        let other = (format!("{}/other", paths::TENANTS), 4);
        assert_eq!(*mirror.records().tenants_seen, BTreeMap::from([(paths::TENANTS.to_owned(), 3), other]));
    }

    #[test]
    fn strays_are_contenders_of_a_lost_answer() {
        let mut mirror = Mirror::default();
        let path = |turn: u32| format!("/nodepool/requests-lock/1/me__lock__{turn:010}");
        mirror.set(&path(1), &[], stat(0));
        mirror.set("/nodepool/requests-lock/1/you__lock__0000000002", &[], stat(0));
        assert_eq!(mirror.strays("me"), [path(1)]);
        mirror.held.insert(Key::Request("1".into()), path(1));
        assert!(mirror.strays("me").is_empty());
    }
}
