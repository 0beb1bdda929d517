//! The suite on the simulated cloud, in memory and in a file, in fair weather and in foul.

use millpond_api::sim_script::parse;
use millpond_providers::conformance::{Check, Outcome, all_kept, report, run};
use millpond_providers::sim::Script;

use crate::stage::SimStage;

fn assert_all_kept(checks: &[Check]) {
    assert!(all_kept(checks), "{}", report(checks));
    let skipped = checks.iter().find(|check| matches!(check.outcome, Outcome::Skipped(_)));
    assert_eq!(skipped, None, "the simulated cloud can arrange everything");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_in_memory_keeps_its_promises() {
    assert_all_kept(&run(async || SimStage::in_memory(&Script::default())).await);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_in_a_file_keeps_its_promises() {
    assert_all_kept(&run(async || SimStage::in_a_file(&Script::default())).await);
}

/// Slow, forgetful, late, and busy.
const FOUL: &str = "
registrationDelay: 30s
registrationJitter: 20s
shutdown: 45s
lag: {get: 3s, list: 20s}
throttle: {perSecond: 5, burst: 10}
calls:
- {share: 15%, lost: true}
- {share: 15%, error: other}
- {share: 10%, error: throttled, retryAfter: 2s}
- {share: 30%, delay: 4s}
";

#[tokio::test(start_paused = true)]
async fn promises_hold_in_foul_weather() {
    for seed in 0..8 {
        let script = Script { seed: Some(seed), ..parse("foul", FOUL).expect("a script") };
        println!("seed {seed}");
        assert_all_kept(&run(async || SimStage::in_memory(&script)).await);
        if seed < 2 {
            assert_all_kept(&run(async || SimStage::in_a_file(&script)).await);
        }
    }
}
