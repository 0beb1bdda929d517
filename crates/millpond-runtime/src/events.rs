//! Events: what controllers and stand-ins report to the users of `kubectl describe`.
//!
//! They are sent by one task from a bounded queue. A full queue drops events, as client-go's recorder does: events must
//! never hold up work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, Resource};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Events that wait to be sent; the next ones are dropped.
const WAITING_EVENTS: usize = 4096;
/// Events that are being sent at a time: enough for thousands a second where nothing else is to do, few enough to leave the
/// API to those who work. A pod that comes with a thousand others costs three of them.
const EVENTS_IN_FLIGHT: usize = 2;
/// The longest note that the API takes.
const LONGEST_NOTE: usize = 1024;

/// Who speaks, and in which tone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventReason {
    /// The component in whose name the event is written.
    pub component: &'static str,
    /// What it was doing.
    pub action: &'static str,
    /// The reason, in one word.
    pub reason: &'static str,
    /// Whether it is a warning.
    pub warning: bool,
}

/// Takes events.
#[derive(Clone)]
pub struct EventRecorder {
    clock: Clock,
    sender: Option<mpsc::Sender<Event>>,
    count: Arc<AtomicU64>,
}

impl EventRecorder {
    /// A recorder and the task that sends; without a client nothing is sent.
    pub fn new(client: Option<Client>, clock: Clock) -> (Self, Sender) {
        let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
        let recorder = Self { clock, sender: client.is_some().then_some(sender), count: Arc::default() };
        (recorder, Sender { client, receiver })
    }

    /// Tells something about an object.
    pub fn record<K: Resource<DynamicType = ()>>(&self, about: &K, reason: EventReason, note: impl Into<String>) {
        let Some(sender) = &self.sender else {
            return;
        };
        let event = self.event(&about.object_ref(&()), reason, note.into());
        if sender.try_send(event).is_err() {
            tracing::debug!(reason = reason.reason, "event dropped");
        }
    }

    fn event(&self, about: &ObjectReference, reason: EventReason, mut note: String) -> Event {
        if note.len() > LONGEST_NOTE {
            let mut end = LONGEST_NOTE - " ...".len();
            while !note.is_char_boundary(end) {
                end -= 1;
            }
            note.truncate(end);
            note.push_str(" ...");
        }
        // Unique as long as fewer than 2^16 events share one instant of the clock.
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let stamp = (self.clock.now().as_nanosecond() as u64 & !0xffff) | (count & 0xffff);
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{stamp:x}", about.name.as_deref().unwrap_or("unnamed"))),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            action: Some(reason.action.to_owned()),
            event_time: Some(self.clock.micro_time()),
            note: Some(note),
            reason: Some(reason.reason.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some(reason.component.to_owned()),
            reporting_instance: Some(format!("{}-millpond", reason.component)),
            type_: Some(if reason.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }
}

/// The task that sends events.
pub struct Sender {
    client: Option<Client>,
    receiver: mpsc::Receiver<Event>,
}

impl Sender {
    /// Sends until the token is cancelled.
    pub async fn run(mut self, token: CancellationToken) {
        self.send_all(token).await;
    }

    /// The same for a loop that may be started again.
    pub async fn send_all(&mut self, token: CancellationToken) {
        let Some(client) = self.client.clone() else {
            return token.cancelled().await;
        };
        let mut in_flight = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                event = self.receiver.recv(), if in_flight.len() < EVENTS_IN_FLIGHT => match event {
                    Some(event) => in_flight.push(send(client.clone(), event)),
                    None => break,
                },
            }
        }
        while in_flight.next().await.is_some() {}
    }
}

async fn send(client: Client, event: Event) {
    let api: Api<Event> = Api::namespaced(client, event.metadata.namespace.as_deref().unwrap_or("default"));
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(%error, reason = event.reason.as_deref().unwrap_or_default(), "event not written");
    }
}
