//! Chooses the next spec.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// These specs start a controller of their own, whose metrics use a port that the runner cannot choose: they run one at
/// a time.
const WITH_PORT: &str = "Chaos Runaway Scale-Up ";

/// Specs that wait.
pub(super) struct Queue<'s>(Mutex<State<'s>>);

struct State<'s> {
    waiting: VecDeque<(usize, &'s str)>,
    port_is_taken: bool,
}

/// A spec that a worker runs, until it is dropped.
pub(super) struct Turn<'q, 's> {
    pub(super) place: usize,
    pub(super) spec: &'s str,
    queue: &'q Queue<'s>,
}

impl<'s> Queue<'s> {
    pub(super) fn new(specs: &'s [String]) -> Self {
        let waiting = (1..).zip(specs.iter().map(String::as_str)).collect();
        Self(Mutex::new(State { waiting, port_is_taken: false }))
    }

    /// The first spec that can run now. When there is none, the worker that holds the
    /// port comes back for those that want it.
    pub(super) fn next(&self) -> Option<Turn<'_, 's>> {
        let mut state = self.state();
        let can_run = |(_, spec): &(usize, &str)| !(state.port_is_taken && spec.starts_with(WITH_PORT));
        let at = state.waiting.iter().position(can_run)?;
        let (place, spec) = state.waiting.remove(at)?;
        state.port_is_taken |= spec.starts_with(WITH_PORT);
        Some(Turn { place, spec, queue: self })
    }

    fn state(&self) -> MutexGuard<'_, State<'s>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        if self.spec.starts_with(WITH_PORT) {
            self.queue.state().port_is_taken = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_that_want_the_port_do_not_meet() {
        let specs = ["A", "Chaos Runaway Scale-Up one", "Chaos Runaway Scale-Up two", "B"].map(String::from);
        let queue = Queue::new(&specs);
        let place = |turn: &Option<Turn<'_, '_>>| turn.as_ref().map(|turn| turn.place);
        assert_eq!(place(&queue.next()), Some(1));
        let first = queue.next();
        assert_eq!(place(&first), Some(2));
        assert_eq!(place(&queue.next()), Some(4));
        assert_eq!(place(&queue.next()), None);
        drop(first);
        assert_eq!(place(&queue.next()), Some(3));
        assert_eq!(place(&queue.next()), None);
    }
}
