//! What conversions write is taken as it is: every field is known and every rule holds.

use millpond_api::catalog::built_in;
use millpond_api::convert::{Input, Settings, Target, convert};
use serde_json::Value;

use super::server::ApiServer;

const CONSTRAINT: &str = include_str!("../../../../examples/scaling-advisor/constraint.yaml");
const POOLS: &str = include_str!("../../../../examples/web/pools.yaml");

fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn converted(objects: Vec<Value>, target: Target) -> Vec<Value> {
    let settings = Settings { most_types: Some(20), ..Settings::new(built_in("aws").unwrap()) };
    convert(&Input::gather(objects).unwrap(), target, &settings).unwrap().objects
}

/// Creates what each conversion writes of the kinds that scale.
pub(crate) async fn check(server: &ApiServer) {
    let templates = converted(objects(CONSTRAINT), Target::ClusterAutoscaler);
    let made = [
        converted(objects(CONSTRAINT), Target::Millpond),
        converted(objects(CONSTRAINT), Target::ScalingAdvisor),
        converted(objects(POOLS), Target::Millpond),
        converted(objects(POOLS), Target::ScalingAdvisor),
        converted(templates, Target::Millpond),
    ];
    let mut kinds = Vec::new();
    for (number, mut object) in
        made.into_iter().enumerate().flat_map(|(number, made)| made.into_iter().map(move |it| (number, it)))
    {
        let kind = object["kind"].as_str().unwrap().to_owned();
        if kind == "ConfigMap" {
            continue;
        }
        // They are beside each other here, in one namespace.
        let name = format!("{}-{number}", object["metadata"]["name"].as_str().unwrap());
        object["metadata"]["name"] = name.clone().into();
        if kind == "ScalingConstraint" {
            object["metadata"]["namespace"] = "default".into();
        }
        let answer = server.create(&object).await;
        assert_eq!((answer.code, &answer.warnings[..]), (201, &[][..]), "{kind} {name}: {:#}", answer.body);
        kinds.push(kind);
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ["NodeClass", "NodePool", "ScalingConstraint"]);
}
