//! Events that are told once, not with every look: the same words about the same object only after a while.

use std::collections::HashMap;
use std::time::Duration;

use kube::Resource;
use millpond_runtime::events::{Recorder, Voice};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What still holds is told again after this long: events live for an hour.
const AGAIN_AFTER: Duration = Duration::from_mins(10);
/// Words that are remembered; the oldest are forgotten, and may then be told too often.
const REMEMBERED: usize = 4096;

/// Tells people what happens, without repeating itself.
pub struct News {
    recorder: Recorder,
    told: Mutex<HashMap<(String, &'static str, String), Instant>>,
}

impl News {
    /// Tells through this recorder.
    pub fn new(recorder: Recorder) -> Self {
        Self { recorder, told: Mutex::default() }
    }

    /// Tells something about an object, unless that was just told.
    pub fn tell<K: Resource<DynamicType = ()>>(&self, about: &K, voice: Voice, note: impl Into<String>) {
        let note = note.into();
        if self.is_new(about.meta().uid.as_deref().unwrap_or_default(), voice.reason, &note) {
            self.recorder.tell(about, voice, note);
        }
    }

    fn is_new(&self, uid: &str, reason: &'static str, note: &str) -> bool {
        let now = Instant::now();
        let mut told = self.told.lock();
        let key = (uid.to_owned(), reason, note.to_owned());
        if told.get(&key).is_some_and(|at| now - *at < AGAIN_AFTER) {
            return false;
        }
        if told.len() >= REMEMBERED {
            told.retain(|_, at| now - *at < AGAIN_AFTER);
        }
        if told.len() >= REMEMBERED
            && let Some(oldest) = told.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
        {
            told.remove(&oldest);
        }
        told.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use millpond_runtime::clock::Clock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_told_twice_in_a_row() {
        let news = News::new(Recorder::new(None, Clock::Machine).0);
        assert!(news.is_new("a", "FailedDraining", "budget"));
        assert!(!news.is_new("a", "FailedDraining", "budget"));
        assert!(news.is_new("b", "FailedDraining", "budget"), "of another object");
        assert!(news.is_new("a", "FailedDraining", "another budget"), "in other words");
        tokio::time::advance(AGAIN_AFTER).await;
        assert!(news.is_new("a", "FailedDraining", "budget"), "it still holds");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let news = News::new(Recorder::new(None, Clock::Machine).0);
        assert!(news.is_new("first", "R", ""));
        tokio::time::advance(Duration::from_secs(1)).await;
        for count in 0..REMEMBERED {
            assert!(news.is_new(&count.to_string(), "R", ""));
        }
        assert_eq!(news.told.lock().len(), REMEMBERED);
        assert!(news.is_new("first", "R", ""), "the oldest was forgotten");
        assert!(!news.is_new(&(REMEMBERED - 1).to_string(), "R", ""));
    }
}
