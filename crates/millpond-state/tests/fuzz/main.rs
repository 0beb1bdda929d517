//! Fuzz targets: whatever the bytes, reading ends, keeps no more than the input's size allows, and says where the input
//! is wrong. Rounds are counted and seeds are fixed, so that every run is the same; a failure names its seed.

mod files;
mod mutate;
mod plans;
mod quantities;
mod reading;
mod requirements;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;

/// Runs a target with so many seeds.
fn rounds(count: u64, mut target: impl FnMut(&mut SmallRng)) {
    for seed in 0..count {
        let mut random = SmallRng::seed_from_u64(seed);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&mut random))) {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            match words {
                Some(words) => panic!("seed {seed}: {words}"),
                None => resume_unwind(panic),
            }
        }
    }
}
