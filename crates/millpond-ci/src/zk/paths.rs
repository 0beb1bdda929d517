//! Where Nodepool keeps what.

use crate::launcher::Key;

/// Everything of Nodepool.
pub const ROOT: &str = "/nodepool";
/// Requests.
pub const REQUESTS: &str = "/nodepool/requests";
/// Locks of requests: they outlive the request, which its owner deletes at any time.
pub const REQUEST_LOCKS: &str = "/nodepool/requests-lock";
/// Nodes.
pub const NODES: &str = "/nodepool/nodes";
/// Launchers, builders and pools that are alive.
pub const COMPONENTS: &str = "/nodepool/components";
/// Pools that are alive.
pub const POOLS: &str = "/nodepool/components/pool";
/// Disk images.
pub const IMAGES: &str = "/nodepool/images";
/// Locks that one process at a time holds for a task.
pub const ELECTIONS: &str = "/nodepool/elections";
/// What launchers of ours have given to tenants with limits: a znode for each launcher, whose version counts. The version
/// of the folder counts the launchers that came.
pub const TENANTS: &str = "/nodepool/millpond-tenants";
/// What is in the name of every contender of a lock, before its ten digits.
pub const LOCK_MARK: &str = "__lock__";

/// The record of a request or a node.
pub fn record(key: &Key) -> String {
    match key {
        Key::Request(id) => format!("{REQUESTS}/{id}"),
        Key::Node(id) => format!("{NODES}/{id}"),
    }
}

/// The folder of contenders for the lock of a request or a node.
pub fn lock(key: &Key) -> String {
    match key {
        Key::Request(id) => format!("{REQUEST_LOCKS}/{id}"),
        Key::Node(id) => format!("{NODES}/{id}/lock"),
    }
}

/// The folder of launchers that contend for a provider.
pub(super) fn election(provider: &str) -> String {
    format!("{ELECTIONS}/millpond-{}", provider.replace('%', "%25").replace('/', "%2F"))
}

/// What a path is to a launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodePath<'a> {
    /// A folder that may have something of interest below.
    Folder,
    /// A request.
    Request(&'a str),
    /// A node; its lock is below.
    Node(&'a str),
    /// A pool.
    Pool,
    /// The counters of what tenants were given, or one of them.
    Turns,
    /// A contender of a lock, with the lock's folder and its own name.
    Contender(&'a str, &'a str),
    /// Of no interest.
    Other,
}

/// Tells what a path is.
pub(super) fn place(path: &str) -> NodePath<'_> {
    let Some(rest) = path.strip_prefix(ROOT) else { return NodePath::Other };
    let parts: Vec<&str> = rest.split('/').skip(1).collect();
    let contender = |name| NodePath::Contender(&path[..path.len() - str::len(name) - 1], name);
    match parts[..] {
        [] | ["requests" | "requests-lock" | "nodes" | "elections" | "components"] => NodePath::Folder,
        ["requests-lock" | "elections", _] | ["components", "pool"] | ["nodes", _, "lock"] => NodePath::Folder,
        ["millpond-tenants"] | ["millpond-tenants", _] => NodePath::Turns,
        ["requests", id] => NodePath::Request(id),
        ["nodes", id] => NodePath::Node(id),
        ["components", "pool", _] => NodePath::Pool,
        ["requests-lock" | "elections", _, name] | ["nodes", _, "lock", name] => contender(name),
        _ => NodePath::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_paths_are_recognized() {
        assert_eq!(place("/nodepool"), NodePath::Folder);
        assert_eq!(place("/nodepool/requests/100-0000000001"), NodePath::Request("100-0000000001"));
        assert_eq!(place("/nodepool/nodes/0000000001"), NodePath::Node("0000000001"));
        assert_eq!(place("/nodepool/nodes/0000000001/lock"), NodePath::Folder);
        let contender = "/nodepool/nodes/0000000001/lock/x__lock__0000000000";
        assert_eq!(place(contender), NodePath::Contender("/nodepool/nodes/0000000001/lock", "x__lock__0000000000"));
        assert_eq!(place("/nodepool/images/a"), NodePath::Other);
        assert_eq!(place("/zuul"), NodePath::Other);
        assert_eq!((place(TENANTS), place(&format!("{TENANTS}/a"))), (NodePath::Turns, NodePath::Turns));
        assert_eq!(election("a/b"), "/nodepool/elections/millpond-a%2Fb");
    }
}
