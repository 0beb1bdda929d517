//! The demo's changes over time, decided by a seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use super::scene::{MOVERS, job};

/// Steps from one crest of the load to the next.
const PERIOD: u64 = 24;
/// One step in this many creates a Job.
const JOB_EVERY: u64 = 2;
/// One step in this many changes the image of a Deployment.
const UPDATE_EVERY: u64 = 16;

/// One event of the demo.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// A Deployment changes its size.
    Scale {
        /// Name of the Deployment.
        deployment: &'static str,
        /// The new size.
        replicas: i64,
    },
    /// A Deployment gets a new image.
    Update {
        /// Name of the Deployment.
        deployment: &'static str,
        /// The new image.
        image: String,
    },
    /// A Job starts.
    Run(Value),
}

/// Decides what happens next.
pub struct Script {
    random: StdRng,
    step: u64,
}

impl Script {
    /// A script that is the same for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), step: 0 }
    }

    /// The events of this step: one Deployment follows its tide, and sometimes a Job or an update is added.
    pub fn next_moves(&mut self) -> Vec<Move> {
        self.step += 1;
        let step = self.step;
        let mover = &MOVERS[(step % MOVERS.len() as u64) as usize];
        let phase = (step % PERIOD) as f64 / PERIOD as f64 * std::f64::consts::TAU;
        let tide = (1.0 - phase.cos()) / 2.0;
        let noise: f64 = self.random.random_range(-0.15..0.15);
        let size = mover.least as f64 + (mover.most - mover.least) as f64 * (tide + noise).clamp(0.0, 1.0);
        let mut moves = vec![Move::Scale { deployment: mover.name, replicas: size.round() as i64 }];
        if step.is_multiple_of(JOB_EVERY) {
            let seconds = self.random.random_range(20..90);
            let pods = self.random.random_range(1..6);
            let on_gpu = self.random.random_range(0..3) == 0;
            moves.push(Move::Run(job(step, seconds, if on_gpu { 1 } else { pods }, on_gpu)));
        }
        if step.is_multiple_of(UPDATE_EVERY) {
            let mover = &MOVERS[self.random.random_range(0..MOVERS.len())];
            let version = 1 + step / UPDATE_EVERY;
            moves.push(Move::Update { deployment: mover.name, image: format!("example.com/{}:{version}", mover.name) });
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(seed: u64, steps: usize) -> Vec<Move> {
        let mut script = Script::new(seed);
        (0..steps).flat_map(|_| script.next_moves()).collect()
    }

    #[test]
    fn the_seed_decides_and_sizes_stay_within_bounds() {
        assert_eq!(play(5, 50), play(5, 50));
        assert_ne!(play(5, 50), play(6, 50));
        let mut seen = std::collections::BTreeMap::new();
        for step in play(5, 200) {
            if let Move::Scale { deployment, replicas } = step {
                let mover = MOVERS.iter().find(|mover| mover.name == deployment).expect("a mover");
                assert!((mover.least..=mover.most).contains(&replicas), "{deployment} to {replicas}");
                let range = seen.entry(deployment).or_insert((replicas, replicas));
                *range = (range.0.min(replicas), range.1.max(replicas));
            }
        }
        assert!(seen.len() == MOVERS.len() && seen.values().all(|(low, high)| high - low > 5), "{seen:?}");
        let jobs = play(5, 30).into_iter().filter(|step| matches!(step, Move::Run(_))).count();
        assert_eq!(jobs, 15);
    }
}
