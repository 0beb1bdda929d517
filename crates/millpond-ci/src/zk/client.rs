//! A client of ZooKeeper: one session over one connection at a time, requests in a pipeline.
//!
//! Answers and changes come in the order of the server: a change of a znode that was made before an answer is delivered
//! before it. Callbacks run in that order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;

use super::tls::{self, TlsError};
use super::wire::{self, Change, CreateMode, Op, Response, Session, Stat, ZkError};
use crate::config::ZooKeeper;

/// An answer of the server: lists of children are the longest, and ZooKeeper limits requests to 1 MiB.
const LIMIT_MESSAGE_BYTES: usize = 64 << 20;

/// Between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(200);

/// How long closing the session may take.
const CLOSE: Duration = Duration::from_secs(2);

/// What happens to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A connection is there. Watches of the one before are gone.
    Connected,
    /// It is lost.
    Disconnected,
    /// A watched znode has changed.
    Changed(Change, String),
}

/// Where the client stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Whether there is a connection.
    pub is_connected: bool,
    /// Counts sessions: ephemeral znodes of an earlier one are gone.
    pub session: u64,
    /// Why there is no connection.
    pub trouble: Option<String>,
}

type Deliver = Box<dyn FnOnce(Result<Response, ZkError>) + Send>;
type OnEvent = Box<dyn Fn(Event) + Send + Sync>;

struct Command {
    op: Op,
    /// Whether paths are below the chroot.
    is_below: bool,
    deliver: Deliver,
}

/// A handle; clones share the session. It ends with [`close`](Self::close).
#[derive(Clone)]
pub struct Client {
    commands: mpsc::UnboundedSender<Command>,
    state: watch::Receiver<State>,
    chroot: String,
    ends: CancellationToken,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects in the background, again whenever the connection is lost. Fails only if the files of `zookeeper-tls`
    /// cannot be used.
    pub fn start(config: &ZooKeeper, on_event: impl Fn(Event) + Send + Sync + 'static) -> Result<Self, TlsError> {
        let tls = config.tls.as_ref().map(tls::client).transpose()?;
        let (commands, incoming) = mpsc::unbounded_channel();
        let (state, seen) = watch::channel(State::default());
        let ends = CancellationToken::new();
        let connection = Connection {
            servers: config.servers.iter().map(|server| (server.host.clone(), server.port)).collect(),
            chroot: chroot(config),
            tls,
            timeout: Duration::from_secs_f64(config.timeout_s.clamp(1.0, 3600.0)),
            on_event: Box::new(on_event),
            state,
            session: Session::default(),
            last_zxid: 0,
            ends: ends.clone(),
        };
        tokio::spawn(async move {
            connection.run(incoming).await;
        });
        Ok(Self { commands, state: seen, chroot: chroot(config), ends })
    }

    /// Closes the session, so that ephemeral znodes are gone at once.
    pub async fn close(&self) {
        self.ends.cancel();
        self.commands.closed().await;
    }

    /// Where the client stands.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Sends a request; `deliver` gets the answer, in the order of answers and changes.
    pub fn send(&self, op: Op, deliver: impl FnOnce(Result<Response, ZkError>) + Send + 'static) {
        self.submit(Command { op, is_below: true, deliver: Box::new(deliver) });
    }

    fn submit(&self, command: Command) {
        if let Err(unsent) = self.commands.send(command) {
            (unsent.0.deliver)(Err(ZkError::ConnectionLoss));
        }
    }

    /// Sends a request; it is sent before this returns, the future gives the answer.
    pub fn call(&self, op: Op) -> BoxFuture<'static, Result<Response, ZkError>> {
        let (sender, answer) = oneshot::channel();
        self.send(op, move |result| drop(sender.send(result)));
        Box::pin(async move { answer.await.unwrap_or(Err(ZkError::ConnectionLoss)) })
    }

    /// Creates a znode; gives its path.
    pub async fn create(&self, path: &str, data: Vec<u8>, mode: CreateMode) -> Result<String, ZkError> {
        match self.call(Op::Create { path: path.to_owned(), data, mode }).await? {
            Response::Created { path, .. } => Ok(path),
            _ => Err(ZkError::Malformed),
        }
    }

    /// Creates a znode and those above it, where they are missing.
    pub async fn ensure(&self, path: &str) -> Result<(), ZkError> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        let created: Vec<_> = ends
            .map(|end| {
                let path = path[..end].to_owned();
                self.call(Op::Create { path, data: Vec::new(), mode: CreateMode::Persistent })
            })
            .collect();
        for result in created {
            match result.await {
                Ok(_) | Err(ZkError::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Creates the chroot where it is missing.
    pub async fn ensure_chroot(&self) -> Result<(), ZkError> {
        let ends = self.chroot.match_indices('/').map(|(at, _)| at).skip(1).chain([self.chroot.len()]);
        for end in ends.filter(|end| *end > 0) {
            let path = self.chroot[..end].to_owned();
            let op = Op::Create { path, data: Vec::new(), mode: CreateMode::Persistent };
            let (sender, answer) = oneshot::channel();
            let deliver = Box::new(move |result| drop(sender.send(result)));
            self.submit(Command { op, is_below: false, deliver });
            match answer.await.unwrap_or(Err(ZkError::ConnectionLoss)) {
                Ok(_) | Err(ZkError::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads a znode.
    pub async fn get(&self, path: &str) -> Result<(Vec<u8>, Stat), ZkError> {
        match self.call(Op::GetData { path: path.to_owned() }).await? {
            Response::Data { data, stat } => Ok((data, stat)),
            _ => Err(ZkError::Malformed),
        }
    }

    /// Writes a znode.
    pub async fn set(&self, path: &str, data: Vec<u8>, version: Option<i32>) -> Result<Stat, ZkError> {
        match self.call(Op::SetData { path: path.to_owned(), data, version }).await? {
            Response::Stat(stat) => Ok(stat),
            _ => Err(ZkError::Malformed),
        }
    }

    /// Names of a znode's children.
    pub async fn children(&self, path: &str) -> Result<Vec<String>, ZkError> {
        match self.call(Op::GetChildren { path: path.to_owned() }).await? {
            Response::Children(names) => Ok(names),
            _ => Err(ZkError::Malformed),
        }
    }

    /// Whether a znode is there, and what it is.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>, ZkError> {
        match self.call(Op::Exists { path: path.to_owned() }).await {
            Ok(Response::Stat(stat)) => Ok(Some(stat)),
            Ok(_) => Err(ZkError::Malformed),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a znode without children.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<(), ZkError> {
        self.call(Op::Delete { path: path.to_owned(), version }).await.map(drop)
    }

    /// All of it or nothing.
    pub async fn multi(&self, parts: Vec<Op>) -> Result<Vec<Response>, ZkError> {
        match self.call(Op::Multi(parts)).await? {
            Response::Multi(answers) => Ok(answers),
            _ => Err(ZkError::Malformed),
        }
    }

    /// Waits for a connection; gives the trouble if there is none in time.
    pub async fn connected(&self, limit: Duration) -> Result<(), String> {
        let mut state = self.state.clone();
        match timeout(limit, state.wait_for(|state| state.is_connected)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err("the client has ended".to_owned()),
            Err(_) => Err(self.state.borrow().trouble.clone().unwrap_or_else(|| "no answer in time".to_owned())),
        }
    }
}

/// kazoo takes the chroot of the last server; they are all the same in practice.
fn chroot(config: &ZooKeeper) -> String {
    let chroot = config.servers.iter().rev().find_map(|server| server.chroot.as_deref()).unwrap_or_default();
    match chroot.trim_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

struct Connection {
    servers: Vec<(String, u16)>,
    chroot: String,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    on_event: OnEvent,
    state: watch::Sender<State>,
    session: Session,
    last_zxid: i64,
    ends: CancellationToken,
}

/// A request that the server has not answered yet.
struct Pending {
    xid: i32,
    op: Op,
    is_below: bool,
    deliver: Deliver,
}

impl Connection {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut server = rand::random_range(0..self.servers.len().max(1));
        loop {
            let attempt = self.open(server);
            let opened = tokio::select! {
                opened = attempt => opened,
                () = refuse(&mut commands) => return,
                () = self.ends.cancelled() => return,
            };
            match opened {
                Ok((stream, session, timeout)) => {
                    self.begin(session);
                    let trouble = self.serve(stream, timeout, &mut commands).await;
                    if self.ends.is_cancelled() {
                        return;
                    }
                    tracing::warn!(trouble, "the connection to ZooKeeper is lost");
                    self.end(trouble);
                }
                Err(trouble) => {
                    let is_news = self.state.borrow().trouble.as_ref() != Some(&trouble);
                    if is_news {
                        tracing::warn!(trouble, "cannot connect to ZooKeeper");
                    }
                    self.end(trouble);
                    server = (server + 1) % self.servers.len().max(1);
                    let pause = RECONNECT.mul_f64(rand::random_range(0.5..1.5));
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = refuse(&mut commands) => return,
                        () = self.ends.cancelled() => return,
                    }
                }
            }
        }
    }

    /// A connection with a session: the one before if it still lives, else a new one.
    async fn open(&self, server: usize) -> Result<(Box<dyn Stream>, Session, Duration), String> {
        let (host, port) = self.servers.get(server).ok_or("no server is configured")?;
        let within = self.timeout;
        let opened = timeout(within, async {
            let mut stream = self.stream(host, *port).await?;
            let mut session = self.session.clone();
            let (opened, timeout_ms) = self.greet(&mut stream, &session).await?;
            if timeout_ms > 0 {
                session = opened;
                return Ok((stream, session, Duration::from_millis(timeout_ms as u64)));
            }
            // The session has expired, and the server closes this connection.
            let mut stream = self.stream(host, *port).await?;
            let (opened, timeout_ms) = self.greet(&mut stream, &Session::default()).await?;
            match timeout_ms {
                1.. => Ok((stream, opened, Duration::from_millis(timeout_ms as u64))),
                _ => Err("the server gives no session".to_owned()),
            }
        });
        let opened = opened.await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        opened.map_err(|trouble: String| format!("{host}:{port}: {trouble}"))
    }

    async fn stream(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, String> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(bare.to_owned());
        // The name is not looked at; one that is no DNS name must not keep the client away.
        let name = name.or_else(|_| ServerName::try_from("zookeeper")).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| format!("TLS: {error}"))?))
    }

    async fn greet(&self, stream: &mut Box<dyn Stream>, session: &Session) -> Result<(Session, i32), String> {
        let timeout_ms = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let message = wire::connect(session, self.last_zxid, timeout_ms);
        let sent = stream.write_all(&framed(&message)).await;
        sent.map_err(|error| error.to_string())?;
        stream.flush().await.map_err(|error| error.to_string())?;
        let mut frames = Frames::default();
        let answer = frames.next(stream).await.map_err(|error| error.to_string())?;
        wire::connected(&answer).map_err(|error| error.to_string())
    }

    fn begin(&mut self, session: Session) {
        let is_new = session.id != self.session.id;
        if is_new && self.session.id != 0 {
            tracing::warn!("the session of ZooKeeper has expired; a new one begins");
        }
        self.session = session;
        (self.on_event)(Event::Connected);
        self.state.send_modify(|state| {
            state.is_connected = true;
            state.trouble = None;
            state.session += u64::from(is_new);
        });
    }

    fn end(&self, trouble: String) {
        let was_connected = self.state.borrow().is_connected;
        if was_connected {
            (self.on_event)(Event::Disconnected);
        }
        self.state.send_modify(|state| {
            state.is_connected = false;
            state.trouble = Some(trouble);
        });
    }

    /// Works until the connection is lost; gives the reason. Requests without an answer fail.
    async fn serve(
        &mut self,
        stream: Box<dyn Stream>,
        session_timeout: Duration,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> String {
        let (reading, writing) = tokio::io::split(stream);
        let pending = Mutex::new(VecDeque::new());
        let zxid = Mutex::new(self.last_zxid);
        let trouble = tokio::select! {
            trouble = self.read(reading, session_timeout, &pending, &zxid) => trouble,
            trouble = self.write(writing, session_timeout, commands, &pending) => trouble,
        };
        self.last_zxid = zxid.into_inner();
        for request in pending.into_inner() {
            let Pending { deliver, .. } = request;
            deliver(Err(ZkError::ConnectionLoss));
        }
        trouble
    }

    async fn read(
        &self,
        mut stream: impl AsyncRead + Unpin,
        session_timeout: Duration,
        pending: &Mutex<VecDeque<Pending>>,
        last_zxid: &Mutex<i64>,
    ) -> String {
        let mut frames = Frames::default();
        loop {
            // Pings are answered, so silence means that the server is gone.
            let frame = match timeout(session_timeout.mul_f64(2.0 / 3.0), frames.next(&mut stream)).await {
                Ok(Ok(frame)) => frame,
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "the server is silent".to_owned(),
            };
            if let Err(trouble) = self.receive(&frame, pending, last_zxid) {
                return trouble;
            }
        }
    }

    fn receive(&self, frame: &[u8], pending: &Mutex<VecDeque<Pending>>, last_zxid: &Mutex<i64>) -> Result<(), String> {
        let (xid, zxid, code, body) = wire::header(frame).map_err(|error| error.to_string())?;
        if zxid > 0 {
            let mut last = last_zxid.lock();
            *last = zxid.max(*last);
        }
        match xid {
            wire::PING => {}
            wire::WATCHED => {
                let change = wire::watched(body, &self.chroot).map_err(|error| error.to_string())?;
                if let Some((change, path)) = change {
                    (self.on_event)(Event::Changed(change, path));
                }
            }
            _ => {
                let request = pending.lock().pop_front().filter(|request| request.xid == xid);
                let Pending { op, is_below, deliver, .. } = request.ok_or("an answer without its request")?;
                deliver(match ZkError::of(code) {
                    Some(error) => Err(error),
                    None => op.decode(body, self.chroot_of(is_below)),
                });
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        mut stream: impl AsyncWrite + Unpin,
        session_timeout: Duration,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        pending: &Mutex<VecDeque<Pending>>,
    ) -> String {
        let (mut xid, mut out) = (0, Vec::new());
        let mut next_ping = Instant::now() + session_timeout / 3;
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.enqueue(command, &mut xid, &mut out, pending),
                    None => return self.close(&mut stream, xid).await,
                },
                () = tokio::time::sleep_until(next_ping) => out.extend(framed(&wire::ping())),
                () = self.ends.cancelled() => return self.close(&mut stream, xid).await,
            }
            while let Ok(command) = commands.try_recv() {
                self.enqueue(command, &mut xid, &mut out, pending);
            }
            let deadline = Instant::now() + session_timeout;
            let written = timeout_at(deadline, async {
                stream.write_all(&out).await?;
                stream.flush().await
            });
            match written.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "the server does not read".to_owned(),
            }
            out.clear();
            next_ping = Instant::now() + session_timeout / 3;
        }
    }

    fn enqueue(&self, command: Command, xid: &mut i32, out: &mut Vec<u8>, pending: &Mutex<VecDeque<Pending>>) {
        // Negative numbers have meanings of their own.
        *xid = xid.checked_add(1).unwrap_or(1);
        let Command { op, is_below, deliver } = command;
        out.extend(framed(&op.encode(*xid, self.chroot_of(is_below))));
        pending.lock().push_back(Pending { xid: *xid, op, is_below, deliver });
    }

    fn chroot_of(&self, is_below: bool) -> &str {
        if is_below { &self.chroot } else { "" }
    }

    async fn close(&self, stream: &mut (impl AsyncWrite + Unpin), xid: i32) -> String {
        let message = framed(&Op::Close.encode(xid.wrapping_add(1), ""));
        let closed = timeout(CLOSE, async {
            stream.write_all(&message).await?;
            stream.flush().await?;
            // The server closes the connection once the session is over; reading ends then.
            std::future::pending::<std::io::Result<()>>().await
        });
        drop(closed.await);
        "closed".to_owned()
    }
}

/// Fails requests while there is no connection. Ends when there is no handle any more.
async fn refuse(commands: &mut mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        (command.deliver)(Err(ZkError::ConnectionLoss));
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(message.len() + 4);
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame
}

/// Cuts a stream into messages. A call that is dropped loses nothing.
#[derive(Default)]
struct Frames {
    buffer: Vec<u8>,
    /// How much of the buffer was given out.
    taken: usize,
}

impl Frames {
    async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
        loop {
            if let Some(frame) = self.cut()? {
                return Ok(frame);
            }
            self.buffer.drain(..std::mem::take(&mut self.taken));
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
        }
    }

    fn cut(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let rest = &self.buffer[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LIMIT_MESSAGE_BYTES {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "a message is too long"));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        let frame = frame.to_vec();
        self.taken += 4 + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_cut_wherever_reads_end() {
        let mut stream = byte_by_byte([framed(b"one"), framed(b""), framed(b"three")].concat());
        let mut frames = Frames::default();
        let mut read = Vec::new();
        for _ in 0..3 {
            read.push(frames.next(&mut stream).await.unwrap());
        }
        assert_eq!(read, [&b"one"[..], b"", b"three"]);
        assert!(frames.next(&mut stream).await.is_err());
        let mut frames = Frames::default();
        assert!(frames.next(&mut &[0xff; 8][..]).await.is_err());
    }

    /// Gives a byte at a time.
    fn byte_by_byte(bytes: Vec<u8>) -> impl AsyncRead + Unpin {
        let (mut writer, reader) = tokio::io::duplex(1);
        tokio::spawn(async move { writer.write_all(&bytes).await });
        reader
    }

    #[test]
    fn the_chroot_has_one_slash_in_front() {
        let config = |chroot: Option<&str>| ZooKeeper {
            servers: vec![crate::config::ZooKeeperServer {
                host: "h".to_owned(),
                port: 1,
                chroot: chroot.map(ToOwned::to_owned),
            }],
            tls: None,
            timeout_s: 10.0,
        };
        assert_eq!(chroot(&config(None)), "");
        assert_eq!(chroot(&config(Some("/"))), "");
        assert_eq!(chroot(&config(Some("a/b/"))), "/a/b");
    }
}
