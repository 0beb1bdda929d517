//! Deduplicates events: the same message about the same object is recorded again only after a while.

use std::collections::HashMap;
use std::time::Duration;

use kube::Resource;
use millpond_runtime::events::{EventReason, EventRecorder};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A state that still holds is recorded again after this long: events live for an hour.
const DEDUPE_TIMEOUT: Duration = Duration::from_mins(10);
/// The number of remembered events; the oldest are forgotten, and may then be recorded too often.
const REMEMBERED: usize = 4096;

/// Tells people what happens, without repeating itself.
pub struct DedupingRecorder {
    recorder: EventRecorder,
    recent: Mutex<HashMap<(String, &'static str, String), Instant>>,
}

impl DedupingRecorder {
    /// Records through this recorder.
    pub fn new(recorder: EventRecorder) -> Self {
        Self { recorder, recent: Mutex::default() }
    }

    /// Records an event about an object, unless the same event was recorded recently.
    pub fn record<K: Resource<DynamicType = ()>>(&self, about: &K, event_reason: EventReason, note: impl Into<String>) {
        let note = note.into();
        if self.is_new(about.meta().uid.as_deref().unwrap_or_default(), event_reason.reason, &note) {
            self.recorder.record(about, event_reason, note);
        }
    }

    fn is_new(&self, uid: &str, reason: &'static str, note: &str) -> bool {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        let key = (uid.to_owned(), reason, note.to_owned());
        if recent.get(&key).is_some_and(|at| now - *at < DEDUPE_TIMEOUT) {
            return false;
        }
        if recent.len() >= REMEMBERED {
            recent.retain(|_, at| now - *at < DEDUPE_TIMEOUT);
        }
        if recent.len() >= REMEMBERED
            && let Some(oldest) = recent.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
        {
            recent.remove(&oldest);
        }
        recent.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use millpond_runtime::clock::Clock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_event_is_recorded_twice_in_a_row() {
        let recorder = DedupingRecorder::new(EventRecorder::new(None, Clock::Machine).0);
        assert!(recorder.is_new("a", "FailedDraining", "budget"));
        assert!(!recorder.is_new("a", "FailedDraining", "budget"));
        assert!(recorder.is_new("b", "FailedDraining", "budget"), "of another object");
        assert!(recorder.is_new("a", "FailedDraining", "another budget"), "in other words");
        tokio::time::advance(DEDUPE_TIMEOUT).await;
        assert!(recorder.is_new("a", "FailedDraining", "budget"), "it still holds");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let recorder = DedupingRecorder::new(EventRecorder::new(None, Clock::Machine).0);
        assert!(recorder.is_new("first", "R", ""));
        tokio::time::advance(Duration::from_secs(1)).await;
        for count in 0..REMEMBERED {
            assert!(recorder.is_new(&count.to_string(), "R", ""));
        }
        assert_eq!(recorder.recent.lock().len(), REMEMBERED);
        assert!(recorder.is_new("first", "R", ""), "the oldest was forgotten");
        assert!(!recorder.is_new(&(REMEMBERED - 1).to_string(), "R", ""));
    }
}
