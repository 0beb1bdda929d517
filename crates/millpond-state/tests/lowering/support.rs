//! Short ways to a state and back to words.

use millpond_plan::model::{PodClass, Resources, Snapshot};
use millpond_state::{Options, Reader, Reading, Taken};

/// Noon of some day.
pub(crate) const NOW: i64 = 1_794_830_400;

pub(crate) fn read(text: &str) -> Reading {
    let mut reader = Reader::new();
    reader.add("test.yaml", text.as_bytes());
    reader.finish()
}

/// The snapshot of a file without a mistake.
pub(crate) fn taken(text: &str, options: &Options) -> Taken {
    let reading = read(text);
    assert_eq!(reading.errors, []);
    reading.state.snapshot(NOW, options)
}

pub(crate) fn snapshot(text: &str) -> Snapshot {
    taken(text, &Options::default()).snapshot
}

pub(crate) fn errors(text: &str) -> Vec<String> {
    read(text).errors.iter().map(ToString::to_string).collect()
}

/// The class of the only pod.
pub(crate) fn only_class(snapshot: &Snapshot) -> &PodClass {
    assert_eq!(snapshot.pods.len(), 1);
    &snapshot.classes[snapshot.pods[0].class.index()]
}

/// Amounts by name, without the one of `pods`.
pub(crate) fn words(resources: &Resources, snapshot: &Snapshot) -> String {
    let amounts = resources.iter().map(|(id, amount)| (snapshot.resources.name(id), amount));
    let words: Vec<String> =
        amounts.filter(|(name, _)| *name != "pods").map(|(name, amount)| format!("{name}={amount}")).collect();
    words.join(" ")
}
