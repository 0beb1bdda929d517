//! Node groups: pools that the cluster-autoscaler's annotations open for scaling.

use std::collections::BTreeMap;

use super::offer::annotation;
use super::{NodeOffer, Problems, Sources, names};
use crate::meta::Invalid;
use crate::spelling::nearest;
use crate::{duration, money};

/// Greatest weight of a group.
const MOST_WEIGHT: i64 = 100;

/// How one group is scaled, where it differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Nodes that are used less than this, in thousandths, may go.
    pub utilization_milli: Option<i64>,
    /// The same for nodes with GPUs, of which only the GPUs count.
    pub gpu_utilization_milli: Option<i64>,
    /// How long a node must have been unneeded.
    pub unneeded_s: Option<i64>,
    /// How long a node that is not ready must have been unneeded.
    pub unready_s: Option<i64>,
    /// How long a machine may take to become a node, in seconds.
    pub provision_s: Option<i64>,
    /// How long a node may take to become ready, in seconds.
    pub startup_s: Option<i64>,
}

/// Machines that a pool can have with the hosts that there are (annotation): where it is less than the most that the
/// pool may have, it bounds the pool. Controllers of own hosts write it.
pub const EFFECTIVE_MAX_SIZE: &str = "millpond.dev/effective-max-size";

/// A pool with bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// The least machines.
    pub min: i64,
    /// The most machines.
    pub max: i64,
    /// The most machines by the annotation of that name, also where there are fewer hosts.
    pub asked_max: i64,
    /// What a node of it offers.
    pub offer: NodeOffer,
    /// Nano-dollars an hour of one machine.
    pub price_nanos_hour: Option<u64>,
    /// Groups of greater weight are used first; 0 without it.
    pub weight: i64,
    /// How it is scaled.
    pub options: Options,
    /// Probable mistakes.
    pub warnings: Vec<Invalid>,
}

impl NodeGroup {
    /// Reads a group; `None` if it has no bounds. Contradictory bounds are errors: such a pool is not scaled.
    pub fn of(sources: &Sources<'_>) -> Result<Option<Self>, Vec<Invalid>> {
        let annotations = sources.annotations;
        let warnings = Problems::new();
        misspelt(annotations, &warnings);
        let Some((min, max)) = bounds(annotations, &warnings)? else { return Ok(None) };
        let offer = NodeOffer::read(sources, &warnings);
        let asked = annotations.get(names::MAX_SIZE).and_then(|text| text.trim().parse().ok());
        let group = Self {
            min,
            max,
            asked_max: asked.unwrap_or(max),
            offer,
            price_nanos_hour: price(annotations, &warnings),
            weight: weight(annotations, &warnings),
            options: options(annotations, &warnings),
            warnings: Vec::new(),
        };
        Ok(Some(Self { warnings: warnings.into_inner(), ..group }))
    }
}

/// The bounds in a pool's annotations; `None` if it has none.
pub fn bounds(annotations: &BTreeMap<String, String>, warnings: &Problems) -> Result<Option<(i64, i64)>, Vec<Invalid>> {
    let given = |key: &str| annotations.get(key).map(|text| text.trim());
    let (min, max) = match (given(names::MIN_SIZE), given(names::MAX_SIZE)) {
        (None, None) => return Ok(None),
        (Some(min), Some(max)) => (min, max),
        (Some(_), None) => {
            warnings.say(annotation(names::MIN_SIZE), format!("does nothing without `{}`", names::MAX_SIZE));
            return Ok(None);
        }
        (None, Some(_)) => {
            warnings.say(annotation(names::MAX_SIZE), format!("does nothing without `{}`", names::MIN_SIZE));
            return Ok(None);
        }
    };
    let problems = Problems::new();
    let number = |key: &str, text: &str| match text.parse::<i64>() {
        Ok(number @ 0..=1_000_000) => Some(number),
        Ok(_) => {
            problems.say(annotation(key), format!("`{text}` is out of range: 0 to 1000000"));
            None
        }
        Err(_) => {
            problems.say(annotation(key), format!("`{text}` is not a whole number"));
            None
        }
    };
    let read = (number(names::MIN_SIZE, min), number(names::MAX_SIZE, max));
    if let (Some(min), Some(max)) = read {
        if min <= max {
            let effective = given(EFFECTIVE_MAX_SIZE).and_then(|text| text.parse::<i64>().ok());
            return Ok(Some((min, effective.map_or(max, |effective| max.min(effective).max(min)))));
        }
        problems.say(annotation(names::MAX_SIZE), format!("`{max}` is less than the least, {min}"));
    }
    Err(problems.into_inner())
}

fn price(annotations: &BTreeMap<String, String>, warnings: &Problems) -> Option<u64> {
    let text = annotations.get(names::PRICE)?;
    money::parse(text).map_err(|error| warnings.say(annotation(names::PRICE), format!("`{text}` {error}"))).ok()
}

fn weight(annotations: &BTreeMap<String, String>, warnings: &Problems) -> i64 {
    let Some(text) = annotations.get(names::WEIGHT) else { return 0 };
    let read = text.trim().parse().ok().filter(|weight| (0..=MOST_WEIGHT).contains(weight));
    read.unwrap_or_else(|| {
        warnings.say(annotation(names::WEIGHT), format!("`{text}` is not a number from 0 to {MOST_WEIGHT}"));
        0
    })
}

fn options(annotations: &BTreeMap<String, String>, warnings: &Problems) -> Options {
    let given = |name: &str| {
        let key = format!("{}{name}", names::OPTIONS);
        annotations.get(&key).map(|text| (key, text.trim()))
    };
    let seconds = |name: &str| {
        let (key, text) = given(name)?;
        let read = duration::parse_seconds(text);
        read.map_err(|error| warnings.say(annotation(&key), format!("`{text}` {error}"))).ok()
    };
    let share = |name: &str| {
        let (key, text) = given(name)?;
        // Dollars have the digits that a share needs, and the same reader.
        let read = money::parse(text).ok().map(|nanos| (nanos / 1_000_000) as i64).filter(|milli| *milli <= 1000);
        if read.is_none() {
            warnings.say(annotation(&key), format!("`{text}` is not a share such as `0.5`"));
        }
        read
    };
    Options {
        utilization_milli: share("scaledownutilizationthreshold"),
        gpu_utilization_milli: share("scaledowngpuutilizationthreshold"),
        unneeded_s: seconds("scaledownunneededtime"),
        unready_s: seconds("scaledownunreadytime"),
        provision_s: seconds("maxnodeprovisiontime"),
        startup_s: seconds("maxnodestartuptime"),
    }
}

/// Warns of annotations that look like one of the autoscaler's and are not.
pub fn misspelt(annotations: &BTreeMap<String, String>, warnings: &Problems) {
    for key in annotations.keys().filter(|key| !names::OF_NODE_GROUPS.contains(&key.as_str())) {
        let Some((domain, name)) = key.split_once('/') else { continue };
        let pairs = names::OF_NODE_GROUPS.iter().filter_map(|known| Some((*known, known.split_once('/')?)));
        let of_domain = |(_, (of, _)): &(&str, (&str, &str))| *of == domain || is_close(domain, of);
        let candidates: Vec<(&str, &str)> = pairs.filter(of_domain).map(|(known, (_, name))| (known, name)).collect();
        let like = nearest(name, candidates.iter().map(|(_, name)| *name));
        if let Some((known, _)) = candidates.iter().find(|(_, name)| Some(*name) == like) {
            warnings.say(annotation(key), format!("is unknown; is `{known}` meant?"));
        } else if domain == names::CAPACITY.trim_end_matches('/') {
            warnings.say(annotation(key), "is unknown to the autoscaler");
        }
    }
}

/// Whether a domain differs from another by a slip: two letters at the most.
fn is_close(domain: &str, other: &str) -> bool {
    strsim::damerau_levenshtein(domain, other) <= 2
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::capi::MachineTemplate;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<NodeGroup>, Vec<String>> {
        let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let template = MachineTemplate::read(&json!({}), "", &Problems::new());
        let sources = Sources { annotations: &annotations, template: &template, infrastructure: None, bootstrap: None };
        NodeGroup::of(&sources).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn warnings(pairs: &[(&str, &str)]) -> Vec<String> {
        let bounds = [(names::MIN_SIZE, "0"), (names::MAX_SIZE, "5")];
        let group = read(&[&bounds[..], pairs].concat()).unwrap().unwrap();
        group.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bounds_make_a_group() {
        assert_eq!(read(&[]), Ok(None));
        let group =
            read(&[(names::MIN_SIZE, "0"), (names::MAX_SIZE, "5"), (names::PRICE, "0.25"), (names::WEIGHT, "10")]);
        let group = group.unwrap().unwrap();
        assert_eq!((group.min, group.max, group.weight, group.price_nanos_hour), (0, 5, 10, Some(250_000_000)));
        assert_eq!(group.warnings, []);
        // One of the two does nothing, as with the autoscaler itself.
        assert_eq!(read(&[(names::MIN_SIZE, "1")]), Ok(None));
        for (effective, most) in [("2", 2), ("9", 5), ("0", 1), ("many", 5)] {
            let bounds = [(names::MIN_SIZE, "1"), (names::MAX_SIZE, "5"), (EFFECTIVE_MAX_SIZE, effective)];
            let group = read(&bounds).unwrap().unwrap();
            assert_eq!((group.min, group.max), (1, most), "{effective}");
        }
    }

    #[test]
    fn bounds_that_cannot_be_are_errors() {
        for (min, max, told) in [
            ("5", "2", "max-size]: `2` is less than the least, 5"),
            ("-1", "2", "min-size]: `-1` is out of range: 0 to 1000000"),
            ("a few", "2", "min-size]: `a few` is not a whole number"),
            ("0", "99999999", "max-size]: `99999999` is out of range: 0 to 1000000"),
        ] {
            let problems = read(&[(names::MIN_SIZE, min), (names::MAX_SIZE, max)]).unwrap_err();
            assert!(problems[0].ends_with(told), "{problems:?}");
        }
    }

    #[test]
    fn options_are_read() {
        let group = read(&[
            (names::MIN_SIZE, "0"),
            (names::MAX_SIZE, "5"),
            ("cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold", "0.65"),
            ("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime", "5m"),
            ("cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime", "15m0s"),
        ]);
        let options = group.unwrap().unwrap().options;
        assert_eq!(
            (options.utilization_milli, options.unneeded_s, options.provision_s),
            (Some(650), Some(300), Some(900))
        );
        assert_eq!(
            warnings(&[("cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold", "50%")]),
            [
                "metadata.annotations[cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold]: `50%` is not a share such as `0.5`"
            ]
        );
    }

    #[test]
    fn misspelt_keys_are_reported_with_the_nearest() {
        for (key, meant) in [
            ("cluster.x-k8s.io/cluster-api-autoscaler-node-group-minsize", names::MIN_SIZE),
            ("cluster.k8s.io/cluster-api-autoscaler-node-group-max-size", names::MAX_SIZE),
            ("capacity.cluster-autoscaler.kubernetes.io/gpu-cout", names::CAPACITY_GPU_COUNT),
            ("capacity.cluster-autoscaler.kubernetes.io/max-pods", names::CAPACITY_PODS),
            ("millpond.dev/wieght", names::WEIGHT),
        ] {
            assert_eq!(
                warnings(&[(key, "1")]),
                [format!("metadata.annotations[{key}]: is unknown; is `{meant}` meant?")]
            );
        }
        let other = [
            "cluster.x-k8s.io/paused",
            "machinedeployment.clusters.x-k8s.io/revision",
            "kubectl.kubernetes.io/last-applied-configuration",
            "example.com/weight",
        ];
        for key in other {
            assert_eq!(warnings(&[(key, "1")]), [""; 0], "{key}");
        }
        assert_eq!(warnings(&[("capacity.cluster-autoscaler.kubernetes.io/something-else", "1")]).len(), 1);
    }
}
