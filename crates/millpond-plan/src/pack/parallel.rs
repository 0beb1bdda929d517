//! Work shared by a few threads, with results that do not depend on how many.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Computes two results, in parallel if there are at least two threads.
pub(crate) fn both<A, B: Send>(threads: usize, one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    if threads < 2 {
        let one = one();
        return (one, other());
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        (one, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Computes `task(0..count)`; results are in the order of the index, whichever thread computed them. Each
/// thread keeps a state of its own, for working memory only.
pub(crate) fn map<S, T: Send>(
    threads: usize,
    count: usize,
    state: impl Fn() -> S + Sync,
    task: impl Fn(&mut S, usize) -> T + Sync,
) -> Vec<T> {
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        let mut state = state();
        return (0..count).map(|index| task(&mut state, index)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut state = state();
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return done;
            }
            done.push((index, task(&mut state, index)));
        }
    };
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for other in others {
            results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}
