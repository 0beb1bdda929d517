//! The cloud's file: everything that was answered is in it, whenever the process dies.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use millpond_api::sim_script::parse;
use millpond_providers::sim::{Cloud, OpenError, SimProvider};
use millpond_providers::{Instance, LaunchRequest, Provider as _};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::stage::{START, class, clock, no_api, some_choices};

fn start() -> Timestamp {
    START.parse().expect("a time")
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(start().as_second() + seconds).expect("a time")
}

/// Launches by number.
fn requests() -> impl Fn(usize) -> LaunchRequest {
    let class = class("default", "{provider: sim, catalog: aws}");
    let provider = SimProvider::new(Arc::new(Cloud::in_memory()), no_api(), clock());
    let choices = some_choices(&provider, &class);
    move |index| LaunchRequest {
        token: format!("token-{index}"),
        claim: format!("claim-{index}"),
        class: class.clone(),
        choices: choices.clone(),
        labels: [("team".to_owned(), "a \"b\"\n".to_owned())].into(),
        annotations: Default::default(),
        taints: Vec::new(),
    }
}

/// What a file holds, as another process finds it.
fn found(path: &Path, now: Timestamp) -> Vec<Instance> {
    Cloud::open(path).unwrap_or_else(|error| panic!("{error}")).instances(now)
}

/// The file as a kill leaves it: nothing is closed, flushed or told.
fn killed(path: &Path, directory: &Path) -> std::path::PathBuf {
    let copy = directory.join("killed");
    std::fs::copy(path, &copy).expect("a copy");
    copy
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_survives_a_kill() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cloud");
    let request = requests();
    let cloud = Cloud::open(&path).expect("a cloud");
    let mut random = StdRng::seed_from_u64(1);
    for step in 0..60 {
        let now = at(step);
        match random.random_range(0..5) {
            0 => {
                let script = format!("{{seed: {step}, shutdown: {}s}}", random.random_range(0..10));
                cloud.set_script(&parse("script", &script).expect("a script"), now).expect("a script");
            }
            1 | 2 => {
                let there = cloud.instances(now);
                if let Some(instance) = there.get(random.random_range(0..there.len().max(1))) {
                    cloud.delete(&instance.id, now).expect("its end");
                }
            }
            _ => _ = cloud.create(&request(step as usize), |_| None, now).expect("an instance"),
        }
        let copy = killed(&path, directory.path());
        assert_eq!(found(&copy, now), cloud.instances(now), "step {step}");
        assert_eq!(Cloud::open(&copy).expect("a cloud").script(), cloud.script(), "step {step}");
    }
    // The same tokens give the same instances, those that are gone stay gone.
    let (now, copy) = (at(60), killed(&path, directory.path()));
    let again = Cloud::open(&copy).expect("a cloud");
    for step in 0..60 {
        let known = |cloud: &Cloud| {
            let answer = cloud.create(&LaunchRequest { choices: Vec::new(), ..request(step) }, |_| None, now);
            answer.map(|launched| launched.instance.id).map_err(|error| error.reason())
        };
        assert_eq!(known(&again), known(&cloud), "step {step}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_torn_last_record_is_dropped_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cloud");
    let request = requests();
    let mut lengths = vec![];
    {
        let cloud = Cloud::open(&path).expect("a cloud");
        for index in 0..3 {
            lengths.push(std::fs::metadata(&path).expect("a file").len() as usize);
            cloud.create(&request(index), |_| None, at(0)).expect("an instance");
        }
    }
    let whole = std::fs::read(&path).expect("a file");
    for length in 0..=whole.len() {
        let cut = directory.path().join("cut");
        std::fs::write(&cut, &whole[..length]).expect("a file");
        let instances = found(&cut, at(0));
        let complete = lengths.iter().skip(1).chain([&whole.len()]).filter(|end| **end <= length).count();
        assert_eq!(instances.len(), complete, "{length} of {} bytes", whole.len());
        // It goes on from there, as if the torn record had never been.
        let cloud = Cloud::open(&cut).expect("a cloud");
        cloud.create(&request(9), |_| None, at(1)).expect("an instance");
        drop(cloud);
        assert_eq!(found(&cut, at(1)).len(), complete + 1, "{length} of {} bytes", whole.len());
    }
}

#[tokio::test(start_paused = true)]
async fn damage_is_reported_with_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cloud");
    let request = requests();
    let cloud = Cloud::open(&path).expect("a cloud");
    for index in 0..3 {
        cloud.create(&request(index), |_| None, at(0)).expect("an instance");
    }
    drop(cloud);
    let mut bytes = std::fs::read(&path).expect("a file");
    let second_line = bytes.iter().position(|byte| *byte == b'\n').expect("a line") + 40;
    bytes[second_line] ^= 1;
    std::fs::write(&path, &bytes).expect("a file");
    let error = Cloud::open(&path).expect_err("damage");
    assert!(matches!(error, OpenError::Damaged { line: 2, .. }), "{error}");
    assert!(error.to_string().ends_with("is damaged in line 2: its checksum is wrong"), "{error}");
    // And a file of something else.
    std::fs::write(&path, "apiVersion: v1\nkind: List\n").expect("a file");
    assert!(matches!(Cloud::open(&path), Err(OpenError::Damaged { line: 1, .. })));
}

#[tokio::test(start_paused = true)]
async fn the_file_is_its_owners_and_one_processs() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cloud");
    std::fs::write(&path, "").expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let cloud = Cloud::open(&path).expect("a cloud");
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let error = Cloud::open(&path).expect_err("in use");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(cloud);
    Cloud::open(&path).expect("free again");
}

#[tokio::test(start_paused = true)]
async fn the_file_does_not_grow_with_what_is_no_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cloud");
    let request = requests();
    let cloud = Cloud::open(&path).expect("a cloud");
    let mut most = 0;
    // An instance an hour: each is forgotten a day after its end.
    for index in 0..1500 {
        let now = at(3600 * index as i64);
        let id = cloud.create(&request(index), |_| None, now).expect("an instance").instance.id;
        cloud.delete(&id, now).expect("its end");
        if index % 25 != 0 {
            continue;
        }
        let lines = std::fs::read(&path).expect("a file").iter().filter(|byte| **byte == b'\n').count();
        most = most.max(lines);
    }
    assert!(most < 1200, "{most} lines");
    let now = at(3600 * 1500);
    let kept = cloud.create(&request(5000), |_| None, now).expect("an instance").instance;
    drop(cloud);
    assert_eq!(found(&path, now).into_iter().map(|it| it.id).collect::<Vec<_>>(), [kept.id]);
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launches_side_by_side_are_all_written_down() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("cloud");
    let request = requests();
    let provider = SimProvider::new(Arc::new(Cloud::open(&path).expect("a cloud")), no_api(), clock());
    let requests: Vec<LaunchRequest> = (0..40).map(&request).collect();
    let launched = futures::future::join_all(requests.iter().map(|request| provider.create(request))).await;
    let mut ids: Vec<String> =
        launched.into_iter().map(|launched| launched.expect("an instance").instance.id).collect();
    ids.sort();
    let copy = killed(&path, directory.path());
    assert_eq!(found(&copy, at(0)).into_iter().map(|it| it.id).collect::<Vec<_>>(), ids);
}
