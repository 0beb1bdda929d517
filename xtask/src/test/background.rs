//! Building the real parts while cargo works.

use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Result, anyhow};
use millpond_testkit::real::{Part, Parts};

use super::missing;

/// A build under way.
pub(super) struct Build {
    thread: JoinHandle<Result<()>>,
    count: usize,
}

impl Build {
    /// Starts building the parts that the cache lacks. Fails at once if they cannot be built here.
    pub(super) fn start(wanted: &[Part]) -> Result<Self> {
        let parts = Parts::locate()?;
        let missing = missing(&parts, wanted)?;
        let count = missing.len();
        if count == 0 {
            println!("\nreal parts: all {} are in the cache", wanted.len());
        } else {
            Parts::can_build()?;
            println!("\nreal parts: building {count} of {} in the background, once", wanted.len());
        }
        let thread = std::thread::spawn(move || missing.iter().try_for_each(|part| build(&parts, part)));
        Ok(Self { thread, count })
    }

    /// Waits for the end.
    pub(super) fn finish(self) -> Result<String> {
        self.thread.join().map_err(|_| anyhow!("the build of the real parts panicked"))??;
        Ok(match self.count {
            0 => "all in the cache".into(),
            count => format!("{count} built"),
        })
    }
}

fn build(parts: &Parts, part: &Part) -> Result<()> {
    let started = Instant::now();
    parts.build(part)?;
    println!("real parts: {} is built ({} s)", part.name, started.elapsed().as_secs());
    Ok(())
}
