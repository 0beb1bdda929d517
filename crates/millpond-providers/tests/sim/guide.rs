//! The class of the guide is one that works.

use std::sync::Arc;

use millpond_api::node_class::NodeClass;
use millpond_providers::Provider as _;
use millpond_providers::sim::{Cloud, SimProvider};

use crate::stage::{clock, no_api};

const GUIDE: &str = include_str!("../../../../docs/providers.md");

#[tokio::test(start_paused = true)]
async fn the_class_of_the_guide_can_be_used() {
    let (_, rest) = GUIDE.split_once("```yaml\n").expect("a class");
    let (text, _) = rest.split_once("```").expect("its end");
    let class: NodeClass = serde_saphyr::from_str(text).expect("a class");
    assert_eq!(class.validate(), []);
    let script = class.spec.sim.clone().expect("a script");
    // Each part of a script is shown.
    let written = serde_json::to_value(&script).expect("a value");
    let shown = written.as_object().expect("an object").len();
    assert_eq!(shown, 12, "{written}");
    let provider = SimProvider::new(Arc::new(Cloud::in_memory()), no_api(), clock());
    provider.catalog(&class).expect("it is ready");
}
