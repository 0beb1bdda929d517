//! The store of requests and nodes in ZooKeeper, as Nodepool lays it out.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::client::{Client, Event};
use super::mirror::Mirror;
use super::paths;
use super::register::{Identity, Register};
use super::tls::TlsError;
use super::tree::{News, Tree};
use super::wire::{CreateMode, Op, Response, ZkError};
use crate::config::ZooKeeper;
use crate::launcher::{Backend, BackendError, Key, PoolSpec, Records, Stored, Write};
use crate::model::{Node, NodeRequest, to_bytes};

/// The precedence of requests that launchers submit themselves; Nodepool's own figure.
const LAUNCHERS_REQUESTS: &str = "100";

/// The store. Clones share everything.
#[derive(Clone, Debug)]
pub struct Store {
    client: Client,
    mirror: Arc<Mutex<Mirror>>,
    changes: watch::Sender<u64>,
    wanted: watch::Sender<Option<Vec<PoolSpec>>>,
    /// What names of this process's contenders begin with.
    prefix: Arc<str>,
}

impl Store {
    /// Connects in the background. Fails only if the files of `zookeeper-tls` cannot be used.
    pub fn start(config: &ZooKeeper) -> Result<Self, TlsError> {
        let (sender, news) = mpsc::unbounded_channel();
        let events = sender.clone();
        let on_event = move |event| {
            let news = match event {
                Event::Connected => News::Connected,
                Event::Disconnected => News::Disconnected,
                Event::Changed(change, path) => News::Changed(change, path),
            };
            // Fails only while the store ends.
            drop(events.send(news));
        };
        let client = Client::start(config, on_event)?;
        let store = Self {
            client,
            mirror: Arc::default(),
            changes: watch::Sender::new(0),
            wanted: watch::Sender::new(None),
            prefix: uuid::Uuid::new_v4().simple().to_string().into(),
        };
        tokio::spawn(store.clone().follow(news, sender));
        Ok(store)
    }

    /// Announces this process as a launcher, and the pools that [`Backend::announce`] names.
    pub fn serve_as(&self, identity: Identity) {
        tokio::spawn(Register::new(self.clone(), identity).run());
    }

    /// The client, for what is beyond requests and nodes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Closes the session: locks are free and components gone at once.
    pub async fn close(&self) {
        self.client.close().await;
    }

    /// Waits until everything was read; gives the trouble if that takes too long.
    pub async fn ready(&self, limit: Duration) -> Result<(), String> {
        let mut changes = self.changes.subscribe();
        let complete = async {
            while !self.mirror.lock().is_complete() {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        match tokio::time::timeout(limit, complete).await {
            Ok(()) => Ok(()),
            Err(_) => self.client.connected(Duration::ZERO).await,
        }
    }

    pub(super) fn mirror(&self) -> &Mutex<Mirror> {
        &self.mirror
    }

    pub(super) fn wanted(&self) -> watch::Receiver<Option<Vec<PoolSpec>>> {
        self.wanted.subscribe()
    }

    pub(super) fn contender(&self, folder: &str) -> Op {
        let path = format!("{folder}/{}{}", self.prefix, paths::LOCK_MARK);
        Op::Create { path, data: Vec::new(), mode: CreateMode::EphemeralSequential }
    }

    /// A path for a counter of what this process gives to tenants. One of a session that has not expired yet is another.
    pub(super) fn turn(&self) -> String {
        format!("{}/{}-{}", paths::TENANTS, self.prefix, uuid::Uuid::new_v4().simple())
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Keeps the mirror like the tree, until the client has ended.
    async fn follow(self, mut news: mpsc::UnboundedReceiver<News>, sender: mpsc::UnboundedSender<News>) {
        let mut tree = Tree::default();
        while let Some(first) = news.recv().await {
            let (mut asked, mut removed, mut strays) = (Vec::new(), Vec::new(), Vec::new());
            let has_news = {
                let mut mirror = self.mirror.lock();
                let was_complete = mirror.is_complete();
                let mut next = Some(first);
                while let Some(item) = next {
                    if matches!(item, News::Connected) {
                        self.prepare();
                    }
                    asked.extend(tree.apply(item, &mut mirror));
                    next = if asked.is_empty() { news.try_recv().ok() } else { None };
                }
                removed.append(&mut mirror.removed_requests);
                if mirror.is_complete() && !was_complete {
                    strays = mirror.strays(&self.prefix);
                }
                mirror.is_complete() || was_complete
            };
            for op in asked {
                let (sender, connection, asked) = (sender.clone(), tree.connection(), op.clone());
                self.client.send(op, move |result| {
                    drop(sender.send(News::Answer { connection, op: asked, result }));
                });
            }
            for id in removed {
                // The folder of its lock is of no use any more. It stays if a process has a contender in it.
                self.client.send(Op::Delete { path: paths::lock(&Key::Request(id)), version: None }, drop);
            }
            for path in strays {
                self.client.send(Op::Delete { path, version: None }, drop);
            }
            if has_news {
                self.changed();
            }
        }
    }

    /// Makes the folders that every writer expects.
    fn prepare(&self) {
        let client = self.client.clone();
        tokio::spawn(async move {
            let mut result = client.ensure_chroot().await;
            for path in [paths::REQUESTS, paths::REQUEST_LOCKS, paths::NODES, paths::POOLS, paths::ELECTIONS] {
                result = match result {
                    Ok(()) => client.ensure(path).await,
                    error => error,
                };
            }
            if let Err(error) = result {
                tracing::warn!(%error, "cannot create the folders of Nodepool in ZooKeeper");
            }
        });
    }

    async fn take(&self, key: &Key) -> Result<bool, BackendError> {
        let folder = paths::lock(key);
        let made =
            self.client.call(Op::Create { path: folder.clone(), data: Vec::new(), mode: CreateMode::Persistent });
        let contends = self.contend(&folder);
        let contenders = self.client.call(Op::GetChildren { path: folder.clone() });
        let (made, contends, contenders) = futures::join!(made, contends, contenders);
        match made {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(ZkError::NoNode) => return Ok(false),
            Err(error) => return Err(failure(&folder, error)),
        }
        let ours = match contends {
            Ok(Response::Created { path, .. }) => path,
            Ok(_) => return Err(failure(&folder, ZkError::Malformed)),
            Err(ZkError::NoNode) => return Ok(false),
            Err(error) => return Err(failure(&folder, error)),
        };
        let first = match contenders {
            Ok(Response::Children(names)) => {
                let turns = names.iter().filter_map(|name| Some((super::mirror::turn(name)?, name)));
                turns.min().map(|(_, name)| format!("{folder}/{name}"))
            }
            _ => None,
        };
        if first.as_ref() != Some(&ours) {
            self.client.send(Op::Delete { path: ours, version: None }, drop);
            return Ok(false);
        }
        self.mirror.lock().held.insert(key.clone(), ours);
        Ok(true)
    }

    /// Creates a contender. The mirror knows of it from the answer on, so that no record that is written under the lock
    /// is ever seen without it.
    fn contend(&self, folder: &str) -> BoxFuture<'static, Result<Response, ZkError>> {
        let (sender, answer) = oneshot::channel();
        let mirror = Arc::clone(&self.mirror);
        self.client.send(self.contender(folder), move |result| {
            if let Ok(Response::Created { path, .. }) = &result {
                mirror.lock().set(path, &[], super::Stat::default());
            }
            drop(sender.send(result));
        });
        Box::pin(async move { answer.await.unwrap_or(Err(ZkError::ConnectionLoss)) })
    }

    /// The parts of a transaction for one write.
    fn parts(&self, write: &Write) -> Option<Vec<Op>> {
        let held = |key: &Key| self.mirror.lock().held.get(key).cloned();
        let set = |key: Key, revision: u64, data: Vec<u8>, unlock: bool| {
            let path = paths::record(&key);
            let mut parts = vec![Op::SetData { path, data, version: Some(revision as i32) }];
            match held(&key) {
                Some(path) if unlock => parts.push(Op::Delete { path, version: None }),
                Some(path) => parts.push(Op::Check { path, version: None }),
                None => {}
            }
            parts
        };
        Some(match write {
            Write::Request { id, revision, record, unlock } => {
                set(Key::Request(id.clone()), *revision, to_bytes(record), *unlock)
            }
            Write::Node { id, revision, record, unlock } => {
                set(Key::Node(id.clone()), *revision, to_bytes(record), *unlock)
            }
            Write::Tenants { seen } => {
                let ours = self.mirror.lock().our_turn.clone()?;
                let check =
                    |(path, version): (&String, &i32)| Op::Check { path: path.clone(), version: Some(*version) };
                let counts = Op::SetData { path: ours, data: Vec::new(), version: None };
                seen.iter().map(check).chain([counts]).collect()
            }
            Write::Create { record } => vec![Op::Create {
                path: format!("{}/", paths::NODES),
                data: to_bytes(record),
                mode: CreateMode::PersistentSequential,
            }],
            Write::Remove { id, revision } => {
                let key = Key::Node(id.clone());
                let lock = held(&key)?;
                let delete = |path, version| Op::Delete { path, version };
                vec![
                    delete(lock, None),
                    delete(paths::lock(&key), None),
                    delete(paths::record(&key), Some(*revision as i32)),
                ]
            }
        })
    }

    async fn write(&self, writes: Vec<Write>) -> Result<Vec<String>, ZkError> {
        let mut parts = Vec::new();
        for write in &writes {
            // A record that is to be removed without its lock is for another process.
            parts.extend(self.parts(write).ok_or(ZkError::NoNode)?);
        }
        let (sender, answer) = oneshot::channel();
        let (mirror, writes) = (Arc::clone(&self.mirror), writes);
        // In the order of the server: a change that comes later is not undone by this.
        self.client.send(Op::Multi(parts), move |result| {
            let result = result.map(|response| apply(&mut mirror.lock(), writes, response));
            drop(sender.send(result));
        });
        let result = answer.await.unwrap_or(Err(ZkError::ConnectionLoss));
        self.changed();
        result
    }

    /// Takes a lock that does not end with the session. Its contender node names the owner, as Nodepool's does.
    async fn own_folder(&self, folder: &str, owner: &str) -> Result<bool, ZkError> {
        match self.client.create(folder, Vec::new(), CreateMode::Persistent).await {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(ZkError::NoNode) => return Ok(false),
            Err(error) => return Err(error),
        }
        let path = format!("{folder}/{}{}", uuid::Uuid::new_v4().simple(), paths::LOCK_MARK);
        let ours = self.client.create(&path, owner.as_bytes().to_vec(), CreateMode::PersistentSequential).await?;
        let names = self.client.children(folder).await?;
        let turns = names.iter().filter_map(|name| Some((super::mirror::turn(name)?, name)));
        if turns.min().is_some_and(|(_, name)| ours.ends_with(name.as_str())) {
            return Ok(true);
        }
        self.client.delete(&ours, None).await?;
        Ok(false)
    }

    async fn disown_folder(&self, folder: &str, owner: &str) -> Result<(), ZkError> {
        let names = match self.client.children(folder).await {
            Ok(names) => names,
            Err(ZkError::NoNode) => return Ok(()),
            Err(error) => return Err(error),
        };
        for name in names {
            let path = format!("{folder}/{name}");
            match self.client.get(&path).await {
                Ok((data, _)) if data == owner.as_bytes() => {}
                Ok(_) | Err(ZkError::NoNode) => continue,
                Err(error) => return Err(error),
            }
            match self.client.delete(&path, None).await {
                Ok(()) | Err(ZkError::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes a node whose lock has other contenders: they find it gone.
    async fn expel(&self, id: &str) -> Result<(), ZkError> {
        let folder = paths::lock(&Key::Node(id.to_owned()));
        let held = self.mirror.lock().held.get(&Key::Node(id.to_owned())).cloned();
        for name in self.client.children(&folder).await? {
            let path = format!("{folder}/{name}");
            if Some(&path) != held.as_ref() {
                match self.client.delete(&path, None).await {
                    Ok(()) | Err(ZkError::NoNode) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

fn name(write: &Write) -> String {
    match write {
        Write::Request { id, .. } => paths::record(&Key::Request(id.clone())),
        Write::Node { id, .. } | Write::Remove { id, .. } => paths::record(&Key::Node(id.clone())),
        Write::Create { .. } => paths::NODES.to_owned(),
        Write::Tenants { .. } => paths::TENANTS.to_owned(),
    }
}

/// Takes what was written into the mirror; gives the ids of created nodes.
fn apply(mirror: &mut Mirror, writes: Vec<Write>, response: Response) -> Vec<String> {
    let Response::Multi(answers) = response else { return Vec::new() };
    let mut answers = answers.into_iter().filter(|answer| *answer != Response::Done);
    let mut ids = Vec::new();
    for write in writes {
        match write {
            Write::Request { id, record, unlock, .. } => {
                if let Some(Response::Stat(stat)) = answers.next() {
                    mirror.put_request(&id, record, stat);
                }
                if unlock {
                    release(mirror, &Key::Request(id));
                }
            }
            Write::Node { id, record, unlock, .. } => {
                if let Some(Response::Stat(stat)) = answers.next() {
                    mirror.put_node(&id, record, stat);
                }
                if unlock {
                    release(mirror, &Key::Node(id));
                }
            }
            Write::Create { record } => {
                if let Some(Response::Created { path, stat }) = answers.next() {
                    let id = path.rsplit('/').next().unwrap_or_default().to_owned();
                    mirror.put_node(&id, record, stat);
                    ids.push(id);
                }
            }
            Write::Tenants { .. } => drop(answers.next()),
            Write::Remove { id, .. } => {
                let key = Key::Node(id);
                release(mirror, &key);
                mirror.remove(&paths::record(&key));
            }
        }
    }
    ids
}

fn release(mirror: &mut Mirror, key: &Key) {
    if let Some(path) = mirror.held.remove(key) {
        mirror.remove(&path);
    }
}

pub(super) fn failure(what: &str, error: ZkError) -> BackendError {
    match error {
        ZkError::NoNode | ZkError::NodeExists | ZkError::NotEmpty | ZkError::BadVersion => {
            BackendError::Conflict(what.to_owned())
        }
        ZkError::SessionExpired | ZkError::ConnectionLoss => BackendError::Disconnected(error.to_string()),
        ZkError::NoAuth | ZkError::Malformed | ZkError::Other(_) => BackendError::Refused(format!("{what}: {error}")),
    }
}

impl Backend for Store {
    fn records(&self) -> Records {
        self.mirror.lock().records()
    }

    fn request(&self, id: &str) -> Option<Stored<NodeRequest>> {
        self.mirror.lock().request(id)
    }

    fn node(&self, id: &str) -> Option<Stored<Node>> {
        self.mirror.lock().node(id)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn announce(&self, pools: Vec<PoolSpec>) {
        self.wanted.send_replace(Some(pools));
    }

    fn lock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, BackendError>> {
        Box::pin(async move {
            {
                let mut mirror = self.mirror.lock();
                // A contender that another process removed holds nothing.
                if mirror.held.get(key).is_some_and(|path| mirror.holder(&paths::lock(key)).as_ref() != Some(path)) {
                    mirror.held.remove(key);
                }
                if !mirror.has(key) || mirror.held.contains_key(key) || !mirror.taking.insert(key.clone()) {
                    return Ok(false);
                }
            }
            let taken = self.take(key).await;
            self.mirror.lock().taking.remove(key);
            taken
        })
    }

    fn unlock<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async move {
            let (held, is_gone) = {
                let mut mirror = self.mirror.lock();
                (mirror.held.remove(key), !mirror.has(key))
            };
            let Some(path) = held else { return Ok(()) };
            let deleted = self.client.delete(&path, None);
            let deleted = deleted.await;
            if is_gone && matches!(key, Key::Request(_)) {
                self.client.send(Op::Delete { path: paths::lock(key), version: None }, drop);
            }
            match deleted {
                Ok(()) | Err(ZkError::NoNode) => {
                    self.mirror.lock().remove(&path);
                    self.changed();
                    Ok(())
                }
                Err(error) => Err(failure(&path, error)),
            }
        })
    }

    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Vec<String>, BackendError>> {
        Box::pin(async move {
            let what = writes.first().map(name).unwrap_or_default();
            let removed = writes.iter().find_map(|write| match write {
                Write::Remove { id, .. } => Some(id.clone()),
                _ => None,
            });
            let result = match (self.write(writes.clone()).await, removed) {
                (Err(ZkError::NotEmpty), Some(id)) => match self.expel(&id).await {
                    Ok(()) => self.write(writes).await,
                    Err(error) => Err(error),
                },
                (result, _) => result,
            };
            result.map_err(|error| failure(&what, error))
        })
    }

    fn submit(&self, record: NodeRequest) -> BoxFuture<'_, Result<String, BackendError>> {
        Box::pin(async move {
            let path = format!("{}/{LAUNCHERS_REQUESTS}-", paths::REQUESTS);
            let mode = CreateMode::EphemeralSequential;
            let op = Op::Create { path: path.clone(), data: to_bytes(&record), mode };
            let (sender, answer) = oneshot::channel();
            let mirror = Arc::clone(&self.mirror);
            self.client.send(op, move |result| {
                let id = result.map(|response| match response {
                    Response::Created { path, stat } => {
                        let id = path.rsplit('/').next().unwrap_or_default().to_owned();
                        mirror.lock().put_request(&id, record, stat);
                        id
                    }
                    _ => String::new(),
                });
                drop(sender.send(id));
            });
            let id = answer.await.unwrap_or(Err(ZkError::ConnectionLoss));
            self.changed();
            id.map_err(|error| failure(&path, error))
        })
    }

    fn withdraw<'a>(&'a self, request: &'a str) -> BoxFuture<'a, Result<(), BackendError>> {
        let path = paths::record(&Key::Request(request.to_owned()));
        Box::pin(async move {
            match self.client.delete(&path, None).await {
                Ok(()) | Err(ZkError::NoNode) => Ok(()),
                Err(error) => Err(failure(&path, error)),
            }
        })
    }

    fn own<'a>(&'a self, node: &'a str, owner: &'a str) -> BoxFuture<'a, Result<bool, BackendError>> {
        let folder = paths::lock(&Key::Node(node.to_owned()));
        Box::pin(async move { self.own_folder(&folder, owner).await.map_err(|error| failure(&folder, error)) })
    }

    fn disown<'a>(&'a self, node: &'a str, owner: &'a str) -> BoxFuture<'a, Result<(), BackendError>> {
        let folder = paths::lock(&Key::Node(node.to_owned()));
        Box::pin(async move { self.disown_folder(&folder, owner).await.map_err(|error| failure(&folder, error)) })
    }

    fn is_connected(&self) -> bool {
        self.client.state().borrow().is_connected
    }
}
