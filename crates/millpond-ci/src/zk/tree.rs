//! Follows the part of the tree that a launcher needs: a walk after each connection, then the delivered changes.
//!
//! Pure but for the requests that it asks for: changes and answers come in the order of the server, so what was read
//! last is what is there.

use super::mirror::Mirror;
use super::paths::{self, NodePath};
use super::wire::{Change, Op, Response, ZkError};

/// What the tree learns.
#[derive(Debug)]
pub(super) enum News {
    /// A connection is there.
    Connected,
    /// It is lost.
    Disconnected,
    /// A znode has changed.
    Changed(Change, String),
    /// The answer to a request of the connection with this number.
    Answer { connection: u64, op: Op, result: Result<Response, ZkError> },
}

/// The state of following.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Counts connections.
    connection: u64,
    /// Requests of the walk that have no answer.
    unanswered: usize,
    is_walking: bool,
}

impl Tree {
    /// The number that answers must carry.
    pub(super) fn connection(&self) -> u64 {
        self.connection
    }

    /// Applies a change; returns the requests to send.
    pub(super) fn apply(&mut self, news: News, mirror: &mut Mirror) -> Vec<Op> {
        let asked = match news {
            News::Connected => self.begin(mirror),
            News::Disconnected => {
                self.connection += 1;
                mirror.lost();
                return Vec::new();
            }
            News::Changed(change, path) => changed(change, &path, mirror),
            News::Answer { connection, .. } if connection != self.connection => return Vec::new(),
            News::Answer { op, result, .. } => {
                self.unanswered -= 1;
                answered(op, result, mirror)
            }
        };
        self.unanswered += asked.len();
        if self.is_walking && self.unanswered == 0 {
            self.is_walking = false;
            mirror.complete();
        }
        asked
    }

    fn begin(&mut self, mirror: &mut Mirror) -> Vec<Op> {
        self.connection += 1;
        self.unanswered = 0;
        self.is_walking = true;
        mirror.clear();
        let root = || paths::ROOT.to_owned();
        vec![Op::Watch { path: root() }, Op::GetChildren { path: root() }]
    }
}

fn changed(change: Change, path: &str, mirror: &mut Mirror) -> Vec<Op> {
    match (paths::place(path), change) {
        (_, Change::Deleted) => mirror.remove(path),
        (NodePath::Contender(..), Change::Created) => mirror.set(path, &[], super::Stat::default()),
        (NodePath::Request(_) | NodePath::Node(_) | NodePath::Pool | NodePath::Turns, _) => {
            return vec![Op::GetData { path: path.to_owned() }];
        }
        _ => {}
    }
    Vec::new()
}

fn answered(op: Op, result: Result<Response, ZkError>, mirror: &mut Mirror) -> Vec<Op> {
    match (op, result) {
        (Op::GetData { path }, Ok(Response::Data { data, stat })) => mirror.set(&path, &data, stat),
        (Op::GetData { path }, Err(ZkError::NoNode)) => mirror.remove(&path),
        (Op::GetChildren { path }, Ok(Response::Children(names))) => {
            return names.iter().flat_map(|name| visit(format!("{path}/{name}"), mirror)).collect();
        }
        _ => {}
    }
    Vec::new()
}

/// What to read of a znode that the walk comes to.
fn visit(path: String, mirror: &mut Mirror) -> Vec<Op> {
    match paths::place(&path) {
        NodePath::Folder => vec![Op::GetChildren { path }],
        NodePath::Request(_) | NodePath::Pool => vec![Op::GetData { path }],
        NodePath::Turns => vec![Op::GetData { path: path.clone() }, Op::GetChildren { path }],
        NodePath::Node(_) => {
            let lock = format!("{path}/lock");
            vec![Op::GetData { path }, Op::GetChildren { path: lock }]
        }
        NodePath::Contender(..) => {
            mirror.set(&path, &[], super::Stat::default());
            Vec::new()
        }
        NodePath::Other => Vec::new(),
    }
}
