//! The cloud by itself: stock, quotas, reservations, interruptions, late listings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use millpond_api::amounts::Amounts;
use millpond_api::node_class::NodeClass;
use millpond_api::sim_script::parse;
use millpond_api::time::Time;

use super::Cloud;
use crate::{Choice, InstanceEvent, InstanceState, LaunchRequest, Launched, OfferingKey, ProviderError, Shape};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn cloud(script: &str) -> Cloud {
    let cloud = Cloud::in_memory();
    cloud.set_script(&parse("script", script).unwrap(), at(0)).unwrap();
    cloud
}

/// `m5.large/a/spot`, with two cores.
fn choice(text: &str) -> Choice {
    let [instance_type, zone, capacity_type] = text.split('/').collect::<Vec<_>>().try_into().unwrap();
    let amounts = Amounts(BTreeMap::from([("cpu".to_owned(), 2000)]));
    let shape = Shape { labels: BTreeMap::new(), capacity: amounts.clone(), allocatable: amounts };
    Choice {
        offering: OfferingKey::new(instance_type, zone, capacity_type),
        shape: Arc::new(shape),
        price_nanos_hour: 1,
    }
}

fn request(token: &str, class: &str, choices: &[&str]) -> LaunchRequest {
    let mut node_class = NodeClass::default();
    node_class.metadata.name = class.to_owned();
    LaunchRequest {
        token: token.to_owned(),
        claim: token.to_owned(),
        class: node_class,
        choices: choices.iter().map(|text| choice(text)).collect(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
    }
}

fn launch(cloud: &Cloud, token: &str, choices: &[&str], now: i64) -> Result<Launched, ProviderError> {
    cloud.create(&request(token, "default", choices), |_| None, at(now))
}

/// What was bought, or the reason why not.
fn bought(cloud: &Cloud, token: &str, choices: &[&str], now: i64) -> String {
    match launch(cloud, token, choices, now) {
        Ok(launched) => launched.instance.offering.to_string(),
        Err(error) => error.reason().to_owned(),
    }
}

#[test]
fn stock_outs_hold_in_their_place_and_time() {
    let cloud = cloud("stockOuts: [{instanceType: 'm5.*', zone: a, capacityType: spot, from: 10s, until: 20s}]");
    let choices = ["m5.large/a/spot", "m5.large/b/spot"];
    assert_eq!(bought(&cloud, "1", &choices, 9), "m5.large/a/spot");
    let launched = launch(&cloud, "2", &choices, 10).unwrap();
    assert_eq!(launched.instance.offering.to_string(), "m5.large/b/spot");
    assert_eq!(launched.unavailable, [choice("m5.large/a/spot").offering]);
    assert_eq!(bought(&cloud, "3", &["m5.large/a/spot"], 19), "CapacityUnavailable");
    assert_eq!(bought(&cloud, "4", &["m5.large/a/on-demand"], 19), "m5.large/a/on-demand");
    assert_eq!(bought(&cloud, "5", &["c5.large/a/spot"], 19), "c5.large/a/spot");
    assert_eq!(bought(&cloud, "6", &choices, 20), "m5.large/a/spot");
    let error = launch(&cloud, "7", &["m5.large/a/spot"], 15).unwrap_err();
    assert_eq!(error.to_string(), "m5.large/a/spot is out of stock");
}

#[test]
fn stock_outs_by_the_seed_are_drawn_anew_and_repeat_themselves() {
    let out = |seed: u64, now: i64| -> Vec<usize> {
        let cloud = cloud(&format!("{{seed: {seed}, stockOuts: [{{share: 40%, period: 1m}}]}}"));
        let is_out = |index: &usize| {
            bought(&cloud, &index.to_string(), &[&format!("t{index}/a/spot")], now) != format!("t{index}/a/spot")
        };
        (0..200).filter(is_out).collect()
    };
    assert_eq!(out(1, 5), out(1, 59));
    assert_ne!(out(1, 5), out(1, 60));
    assert_ne!(out(1, 5), out(2, 5));
    assert!((60..100).contains(&out(1, 5).len()), "{}", out(1, 5).len());
}

#[test]
fn a_stock_is_used_up_and_comes_back() {
    let cloud = cloud("{shutdown: 10s, stockOuts: [{zone: a, stock: 2}]}");
    let choices = ["m5.large/a/spot", "m5.large/b/spot"];
    let first = launch(&cloud, "1", &choices, 0).unwrap().instance;
    assert_eq!(bought(&cloud, "2", &choices, 0), "m5.large/a/spot");
    assert_eq!(bought(&cloud, "3", &choices, 0), "m5.large/b/spot");
    // Each offering has a stock of its own.
    assert_eq!(bought(&cloud, "4", &["c5.large/a/spot"], 0), "c5.large/a/spot");
    cloud.delete(&first.id, at(0)).unwrap();
    assert_eq!(bought(&cloud, "5", &choices, 9), "m5.large/b/spot");
    assert_eq!(bought(&cloud, "6", &choices, 10), "m5.large/a/spot");
}

#[test]
fn quotas_count_what_is_in_use() {
    let cloud = cloud("quotas: [{capacityType: spot, vcpus: 5}, {instances: 3}]");
    let choices = ["m5.large/a/spot", "m5.large/a/on-demand"];
    assert_eq!(bought(&cloud, "1", &choices, 0), "m5.large/a/spot");
    assert_eq!(bought(&cloud, "2", &choices, 0), "m5.large/a/spot");
    let third = launch(&cloud, "3", &choices, 0).unwrap();
    assert_eq!(third.instance.offering.to_string(), "m5.large/a/on-demand");
    assert_eq!(third.unavailable.len(), 1);
    let error = launch(&cloud, "4", &choices, 0).unwrap_err();
    assert_eq!(error.reason(), "QuotaExceeded");
    assert_eq!(error.offerings().len(), 2);
    assert_eq!(error.to_string(), "2 more vCPUs are above the quota of 5 of spot, 4 of which are in use");
    cloud.delete(&third.instance.id, at(1)).unwrap();
    assert_eq!(bought(&cloud, "5", &choices, 1), "m5.large/a/on-demand");
    let error = launch(&cloud, "6", &["m5.large/a/on-demand"], 1).unwrap_err();
    assert_eq!(error.to_string(), "the quota of 3 instances is used up");
}

#[test]
fn reservations_are_used_up() {
    let cloud = Cloud::in_memory();
    let most = |offering: &OfferingKey| (offering.capacity_type == "reserved").then_some(1);
    let choices = ["m5.large/a/reserved", "m5.large/a/on-demand"];
    let buy = |token| cloud.create(&request(token, "default", &choices), most, at(0)).unwrap().instance;
    assert_eq!(buy("1").offering.capacity_type, "reserved");
    assert_eq!(buy("2").offering.capacity_type, "on-demand");
    assert_eq!(buy("1").offering.capacity_type, "reserved");
}

#[test]
fn what_a_class_says_holds_for_its_own() {
    let cloud = cloud("{image: sim-image-7, shutdown: 5s}");
    let mut class = request("1", "special", &["m5.large/a/spot"]).class;
    class.spec.sim = Some(parse("class", "{shutdown: 1m, quotas: [{instances: 1}], stockOuts: [{zone: b}]}").unwrap());
    cloud.set_class(&class, at(0)).unwrap();
    let buy = |token, class, choices| {
        let answer = cloud.create(&request(token, class, choices), |_| None, at(0));
        answer.map(|launched| launched.instance).map_err(|error| error.reason())
    };
    let special = buy("1", "special", &["m5.large/a/spot"]).unwrap();
    let other = buy("2", "default", &["m5.large/b/spot"]).unwrap();
    assert_eq!((special.image.as_str(), other.image.as_str()), ("sim-image-7", "sim-image-7"));
    assert_eq!(buy("3", "special", &["m5.large/a/spot"]), Err("QuotaExceeded"));
    assert_eq!(buy("4", "special", &["m5.large/b/spot"]), Err("CapacityUnavailable"));
    assert!(buy("5", "default", &["m5.large/b/spot"]).is_ok());
    for id in [&special.id, &other.id] {
        cloud.delete(id, at(0)).unwrap();
    }
    let there = cloud.instances(at(6)).into_iter().map(|instance| instance.token);
    assert_eq!(there.collect::<BTreeSet<_>>(), ["1", "5"].map(str::to_owned).into());
}

#[test]
fn get_and_list_are_late() {
    let cloud = cloud("{lag: {get: 2s, list: 5s}, shutdown: 1s}");
    let id = launch(&cloud, "1", &["m5.large/a/spot"], 0).unwrap().instance.id;
    let seen = |now| (cloud.get(&id, at(now)).is_ok(), cloud.list(at(now)).unwrap().len());
    assert_eq!([0, 1, 2, 4, 5].map(seen), [(false, 0), (false, 0), (true, 0), (true, 0), (true, 1)]);
    cloud.delete(&id, at(10)).unwrap();
    assert_eq!(cloud.get(&id, at(10)).unwrap().state, InstanceState::Ending);
    assert_eq!([11, 12, 13, 15, 16].map(seen), [(true, 1), (true, 1), (false, 1), (false, 1), (false, 0)]);
    // A wish for an end knows the truth.
    assert!(cloud.delete(&id, at(11)).unwrap_err().is_not_found());
}

#[test]
fn an_instance_boots_and_ends() {
    let cloud = cloud("{registrationDelay: 30s, shutdown: 20s}");
    let id = launch(&cloud, "1", &["m5.large/a/spot"], 0).unwrap().instance.id;
    let state = |now| cloud.get(&id, at(now)).map(|instance| instance.state).map_err(|error| error.reason());
    assert_eq!([0, 29].map(state), [Ok(InstanceState::Pending); 2]);
    assert_eq!(state(30), Ok(InstanceState::Running));
    cloud.delete(&id, at(40)).unwrap();
    // Asking again does not put it off.
    cloud.delete(&id, at(55)).unwrap();
    assert_eq!([40, 59].map(state), [Ok(InstanceState::Ending); 2]);
    assert_eq!(state(60), Err("NotFound"));
    assert_eq!(bought(&cloud, "1", &["m5.large/a/spot"], 61), "NotFound");
}

#[test]
fn interruptions_by_chance_come_at_their_rate() {
    let cloud = cloud("{seed: 3, interruptions: [{perHour: 50%}]}");
    let mut events = cloud.subscribe();
    for index in 0..1000 {
        let capacity_type = if index < 900 { "spot" } else { "on-demand" };
        launch(&cloud, &index.to_string(), &[&format!("m5.large/a/{capacity_type}")], 0).unwrap();
    }
    let mut left = Vec::new();
    for hour in 1..=3 {
        // Events beyond what a listener can be behind are missed; here none is.
        cloud.list(at(hour * 3600 + 120)).unwrap();
        let told = std::iter::from_fn(|| events.try_recv().ok());
        let told = told.filter(|event| matches!(event, InstanceEvent::Interrupted { .. })).count();
        left.push(told);
    }
    // Half of 900, a quarter, an eighth, give or take.
    for (told, expected) in left.iter().zip([450, 225, 112]) {
        assert!(told.abs_diff(expected) < 60, "{left:?}");
    }
    let on_demand = cloud.instances(at(4 * 3600)).iter().filter(|it| it.offering.capacity_type == "on-demand").count();
    assert_eq!(on_demand, 100);
}

#[test]
fn an_interruption_by_hand_is_reported_once() {
    let cloud = Cloud::in_memory();
    let mut events = cloud.subscribe();
    let id = launch(&cloud, "1", &["m5.large/a/spot"], 0).unwrap().instance.id;
    cloud.interrupt(&id, Duration::from_secs(120), at(0)).unwrap();
    cloud.interrupt(&id, Duration::from_secs(120), at(10)).unwrap();
    let at_end = Time(at(120).as_second());
    assert_eq!(events.try_recv().unwrap(), InstanceEvent::Interrupted { id: id.clone(), at: at_end });
    assert!(events.try_recv().is_err());
    // A drain that ends in time ends the instance earlier.
    cloud.delete(&id, at(60)).unwrap();
    assert_eq!(events.try_recv().unwrap(), InstanceEvent::Gone { id: id.clone() });
    assert!(cloud.interrupt(&id, Duration::ZERO, at(61)).unwrap_err().is_not_found());
}

#[test]
fn a_script_that_holds_goes_on_and_another_begins_anew() {
    let text = "stockOuts: [{from: 10s}]";
    let cloud = cloud(text);
    cloud.set_script(&parse("same", text).unwrap(), at(8)).unwrap();
    assert_eq!(bought(&cloud, "1", &["m5.large/a/spot"], 10), "CapacityUnavailable");
    cloud.set_script(&parse("other", "{seed: 2, stockOuts: [{from: 10s}]}").unwrap(), at(12)).unwrap();
    assert_eq!(bought(&cloud, "1", &["m5.large/a/spot"], 21), "m5.large/a/spot");
    assert_eq!(bought(&cloud, "2", &["m5.large/a/spot"], 22), "CapacityUnavailable");
}
