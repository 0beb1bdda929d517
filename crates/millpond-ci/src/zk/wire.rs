//! Requests and responses of ZooKeeper's protocol.

use super::jute::{Malformed, Reader, Writer};

/// How a znode lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// Until it is deleted.
    Persistent,
    /// Until the session ends.
    Ephemeral,
    /// Until it is deleted; ten digits are put behind its name.
    PersistentSequential,
    /// Until the session ends; ten digits are put behind its name.
    EphemeralSequential,
}

/// A request. Paths are without the chroot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Creates a znode that every client may read and write.
    Create {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// How it lives.
        mode: CreateMode,
    },
    /// Deletes a znode without children.
    Delete {
        /// Its path.
        path: String,
        /// The version of its data; `None` is any.
        version: Option<i32>,
    },
    /// Whether a znode is there.
    Exists {
        /// Its path.
        path: String,
    },
    /// Reads a znode.
    GetData {
        /// Its path.
        path: String,
    },
    /// Writes a znode.
    SetData {
        /// Its path.
        path: String,
        /// Its new data.
        data: Vec<u8>,
        /// The version of its data; `None` is any.
        version: Option<i32>,
    },
    /// Names of a znode's children.
    GetChildren {
        /// Its path.
        path: String,
    },
    /// Waits until the server knows what the leader knows.
    Sync {
        /// A path below which it must.
        path: String,
    },
    /// Within a [`Multi`](Self::Multi): fails unless the znode is there.
    Check {
        /// Its path.
        path: String,
        /// The version of its data; `None` is any.
        version: Option<i32>,
    },
    /// All of it or nothing: creates, deletes, writes and checks.
    Multi(Vec<Op>),
    /// Tells every change at a path and below, until the connection ends.
    Watch {
        /// The path.
        path: String,
    },
    /// Ends the session.
    Close,
}

/// What a znode is, beside its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that wrote it last.
    pub mzxid: i64,
    /// When it was created, in milliseconds since 1970.
    pub ctime_ms: i64,
    /// When it was written last.
    pub mtime_ms: i64,
    /// How often its data was written.
    pub version: i32,
    /// The session that it lives with, or 0.
    pub owner: i64,
    /// How many children it has.
    pub children: i32,
}

/// What the server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// A znode was created.
    Created {
        /// Its path.
        path: String,
        /// What it is.
        stat: Stat,
    },
    /// Data of a znode.
    Data {
        /// The data.
        data: Vec<u8>,
        /// What it is.
        stat: Stat,
    },
    /// What a znode is.
    Stat(Stat),
    /// Names of children.
    Children(Vec<String>),
    /// An answer for each part.
    Multi(Vec<Response>),
    /// Nothing more to say.
    Done,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZkError {
    /// There is no such znode.
    #[error("there is no such znode")]
    NoNode,
    /// There is such a znode already.
    #[error("the znode exists already")]
    NodeExists,
    /// The znode has children.
    #[error("the znode has children")]
    NotEmpty,
    /// The znode's data has another version.
    #[error("the znode has another version")]
    BadVersion,
    /// The session is over.
    #[error("the session has expired")]
    SessionExpired,
    /// The connection is lost; the request may have had its effect.
    #[error("the connection is lost")]
    ConnectionLoss,
    /// The client may not do this.
    #[error("not allowed")]
    NoAuth,
    /// An answer that is not what the protocol says.
    #[error("the server's answer cannot be read")]
    Malformed,
    /// Any other code.
    #[error("ZooKeeper's error {0}")]
    Other(i32),
}

impl From<Malformed> for ZkError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl ZkError {
    /// The error of a code; `None` if there is none.
    pub(super) fn of(code: i32) -> Option<Self> {
        Some(match code {
            0 => return None,
            -101 => Self::NoNode,
            -102 => Self::NoAuth,
            -103 => Self::BadVersion,
            -110 => Self::NodeExists,
            -111 => Self::NotEmpty,
            -112 | -118 => Self::SessionExpired,
            -4 => Self::ConnectionLoss,
            code => Self::Other(code),
        })
    }
}

/// The parts of a failed multi that came before the one that failed.
const NOT_TRIED: &[i32] = &[0, -2];

/// Read, write, create, delete, administer.
const ALL_PERMISSIONS: i32 = 31;

/// Tells changes of a znode and everything below.
const PERSISTENT_RECURSIVE: i32 = 1;

const MULTI_END: i32 = -1;

impl Op {
    fn code(&self) -> i32 {
        match self {
            Self::Create { .. } => 15,
            Self::Delete { .. } => 2,
            Self::Exists { .. } => 3,
            Self::GetData { .. } => 4,
            Self::SetData { .. } => 5,
            Self::GetChildren { .. } => 8,
            Self::Sync { .. } => 9,
            Self::Check { .. } => 13,
            Self::Multi(_) => 14,
            Self::Watch { .. } => 106,
            Self::Close => -11,
        }
    }

    /// The message, without its length.
    pub(super) fn encode(&self, xid: i32, chroot: &str) -> Vec<u8> {
        let mut out = Writer::default();
        out.int(xid);
        out.int(self.code());
        self.body(&mut out, chroot);
        out.0
    }

    fn body(&self, out: &mut Writer, chroot: &str) {
        let version_of = |version: &Option<i32>| version.unwrap_or(-1);
        let path_of = |path: &str| absolute(chroot, path);
        match self {
            Self::Create { path, data, mode } => {
                out.text(&path_of(path));
                out.buffer(data);
                out.int(1);
                out.int(ALL_PERMISSIONS);
                out.text("world");
                out.text("anyone");
                out.int(*mode as i32);
            }
            Self::Delete { path, version } | Self::Check { path, version } => {
                out.text(&path_of(path));
                out.int(version_of(version));
            }
            Self::Exists { path } | Self::GetData { path } | Self::GetChildren { path } => {
                out.text(&path_of(path));
                out.bool(false);
            }
            Self::SetData { path, data, version } => {
                out.text(&path_of(path));
                out.buffer(data);
                out.int(version_of(version));
            }
            Self::Sync { path } => out.text(&path_of(path)),
            Self::Multi(parts) => {
                for part in parts {
                    multi_header(out, part.code(), false);
                    part.body(out, chroot);
                }
                multi_header(out, MULTI_END, true);
            }
            Self::Watch { path } => {
                out.text(&path_of(path));
                out.int(PERSISTENT_RECURSIVE);
            }
            Self::Close => {}
        }
    }

    /// Reads the answer.
    pub(super) fn decode(&self, body: &[u8], chroot: &str) -> Result<Response, ZkError> {
        let mut reader = Reader(body);
        match self {
            Self::Create { .. } => created(&mut reader, chroot),
            Self::Exists { .. } | Self::SetData { .. } => Ok(Response::Stat(stat(&mut reader)?)),
            Self::GetData { .. } => {
                let data = reader.buffer()?.to_vec();
                Ok(Response::Data { data, stat: stat(&mut reader)? })
            }
            Self::GetChildren { .. } => Ok(Response::Children(reader.texts()?)),
            Self::Multi(_) => multi(&mut reader, chroot),
            Self::Delete { .. } | Self::Check { .. } | Self::Sync { .. } | Self::Watch { .. } | Self::Close => {
                Ok(Response::Done)
            }
        }
    }
}

fn multi_header(out: &mut Writer, code: i32, is_end: bool) {
    out.int(code);
    out.bool(is_end);
    out.int(-1);
}

fn created(reader: &mut Reader<'_>, chroot: &str) -> Result<Response, ZkError> {
    let path = relative(chroot, &reader.text()?);
    Ok(Response::Created { path, stat: stat(reader)? })
}

fn multi(reader: &mut Reader<'_>, chroot: &str) -> Result<Response, ZkError> {
    let (mut answers, mut failure) = (Vec::new(), None);
    loop {
        let (code, is_end, _) = (reader.int()?, reader.bool()?, reader.int()?);
        if is_end {
            return failure.map_or(Ok(Response::Multi(answers)), Err);
        }
        answers.push(match code {
            15 => created(reader, chroot)?,
            // Of an ephemeral znode the server tells the path alone.
            1 => Response::Created { path: relative(chroot, &reader.text()?), stat: Stat::default() },
            5 => Response::Stat(stat(reader)?),
            -1 => {
                let code = reader.int()?;
                if !NOT_TRIED.contains(&code) && failure.is_none() {
                    failure = ZkError::of(code);
                }
                Response::Done
            }
            2 | 13 => Response::Done,
            _ => return Err(ZkError::Malformed),
        });
    }
}

fn stat(reader: &mut Reader<'_>) -> Result<Stat, Malformed> {
    let (czxid, mzxid) = (reader.long()?, reader.long()?);
    let (ctime_ms, mtime_ms) = (reader.long()?, reader.long()?);
    let (version, _, _) = (reader.int()?, reader.int()?, reader.int()?);
    let owner = reader.long()?;
    let (_, children, _) = (reader.int()?, reader.int()?, reader.long()?);
    Ok(Stat { czxid, mzxid, ctime_ms, mtime_ms, version, owner, children })
}

/// What happened at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A znode was created.
    Created,
    /// It was deleted.
    Deleted,
    /// Its data was written.
    Written,
}

/// Reads the message of a watch. `None` if it is not about a znode.
pub(super) fn watched(body: &[u8], chroot: &str) -> Result<Option<(Change, String)>, Malformed> {
    let mut reader = Reader(body);
    let (kind, _, path) = (reader.int()?, reader.int()?, reader.text()?);
    let change = match kind {
        1 => Change::Created,
        2 => Change::Deleted,
        3 => Change::Written,
        _ => return Ok(None),
    };
    Ok(Some((change, relative(chroot, &path))))
}

/// What a session is known by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
}

/// The first message of a connection.
pub(super) fn connect(session: &Session, last_zxid: i64, timeout_ms: i32) -> Vec<u8> {
    let mut out = Writer::default();
    out.int(0);
    out.long(last_zxid);
    out.int(timeout_ms);
    out.long(session.id);
    out.buffer(if session.password.is_empty() { &[0; 16] } else { &session.password });
    out.bool(false);
    out.0
}

/// The answer: the session and its time-out, which is zero if the session is over.
pub(super) fn connected(body: &[u8]) -> Result<(Session, i32), Malformed> {
    let mut reader = Reader(body);
    let (_, timeout_ms) = (reader.int()?, reader.int()?);
    Ok((Session { id: reader.long()?, password: reader.buffer()?.to_vec() }, timeout_ms))
}

/// Transaction id and error of an answer, with its xid before them and its body behind.
pub(super) fn header(message: &[u8]) -> Result<(i32, i64, i32, &[u8]), Malformed> {
    let mut reader = Reader(message);
    Ok((reader.int()?, reader.long()?, reader.int()?, reader.0))
}

/// A message that keeps the session alive.
pub(super) fn ping() -> Vec<u8> {
    let mut out = Writer::default();
    out.int(PING);
    out.int(11);
    out.0
}

/// The xid of messages about watches.
pub(super) const WATCHED: i32 = -1;
/// The xid of pings.
pub(super) const PING: i32 = -2;

fn absolute(chroot: &str, path: &str) -> String {
    match path {
        "/" if !chroot.is_empty() => chroot.to_owned(),
        _ => format!("{chroot}{path}"),
    }
}

fn relative(chroot: &str, path: &str) -> String {
    match path.strip_prefix(chroot) {
        Some("") => "/".to_owned(),
        Some(rest) => rest.to_owned(),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_get_and_lose_the_chroot() {
        assert_eq!(absolute("", "/a"), "/a");
        assert_eq!(absolute("/top", "/a"), "/top/a");
        assert_eq!(absolute("/top", "/"), "/top");
        assert_eq!(relative("/top", "/top/a"), "/a");
        assert_eq!(relative("/top", "/top"), "/");
    }

    #[test]
    fn a_multi_gives_the_error_of_the_part_that_failed() {
        let mut out = Writer::default();
        for code in [0, -103, -2] {
            out.int(-1);
            out.bool(false);
            out.int(code);
            out.int(code);
        }
        multi_header(&mut out, MULTI_END, true);
        let op = Op::Multi(Vec::new());
        assert_eq!(op.decode(&out.0, ""), Err(ZkError::BadVersion));
    }

    #[test]
    fn cut_off_answers_are_errors() {
        let mut out = Writer::default();
        out.int(1_000_000);
        assert_eq!(Op::GetChildren { path: "/".into() }.decode(&out.0, ""), Err(ZkError::Malformed));
        assert_eq!(Op::GetData { path: "/".into() }.decode(&out.0, ""), Err(ZkError::Malformed));
        assert!(header(&[0; 3]).is_err());
    }
}
