//! Prices of nodes: the instance types of Karpenter's KWOK provider, which are those of Millpond's catalogue `kwok`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use millpond_testkit::real::{Part, Parts};
use serde::Deserialize;
use serde_json::Value;

const TYPE: &str = "node.kubernetes.io/instance-type";
const ZONE: &str = "topology.kubernetes.io/zone";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Type, zone and capacity type.
type Offering = (String, String, String);

/// Dollars an hour of every offering.
#[derive(Debug, PartialEq)]
pub(super) struct Prices(BTreeMap<Offering, f64>);

impl Prices {
    /// Reads Karpenter's prices.
    pub(super) fn read(parts: &Parts) -> Result<Self> {
        let files = parts.data_files(&Part::KARPENTER)?;
        let file = files.iter().find(|file| file.ends_with("instance_types.json")).context("no file of types")?;
        let text = std::fs::read(file).with_context(|| format!("read `{}`", file.display()))?;
        let types: Vec<KwokType> =
            serde_json::from_slice(&text).with_context(|| format!("understand `{}`", file.display()))?;
        let mut prices = BTreeMap::new();
        for kind in types {
            for offering in kind.offerings.into_iter().filter(|offering| offering.available) {
                let zone = offering.only(ZONE)?;
                prices.insert((kind.name.clone(), zone, offering.only(CAPACITY_TYPE)?), offering.price);
            }
        }
        Ok(Self(prices))
    }

    /// Fails if Millpond's catalogue has others.
    pub(super) fn ensure_same(&self, millpond: &Path) -> Result<()> {
        let mut command = Command::new(millpond);
        command.args(["catalog", "types", "--catalog", "kwok", "-o", "json"]);
        let output = command.output().context("run millpond")?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        let ours = Self::of_millpond(&output.stdout)?;
        let (theirs, ours) = (&self.0, &ours.0);
        ensure!(
            ours.keys().eq(theirs.keys()),
            "the catalogues differ: {} offerings of Millpond's, {} of Karpenter's",
            ours.len(),
            theirs.len()
        );
        for (offering, price) in theirs {
            // Millpond keeps whole billionths of a dollar.
            let other = ours.get(offering).copied().unwrap_or_default();
            ensure!(
                (other - price).abs() <= 1e-9,
                "{offering:?} costs ${other} an hour at Millpond, ${price} at Karpenter"
            );
        }
        Ok(())
    }

    fn of_millpond(json: &[u8]) -> Result<Self> {
        let page: MillpondTypes = serde_json::from_slice(json).context("understand the catalogue")?;
        let mut prices = BTreeMap::new();
        for kind in page.items {
            for offering in kind.offerings.into_iter().filter(|offering| offering.available) {
                let key = (kind.name.clone(), offering.zone, offering.capacity_type);
                prices.insert(key, offering.price_per_hour);
            }
        }
        Ok(Self(prices))
    }

    /// The price of a Node, by its labels.
    pub(super) fn of_node(&self, node: &Value) -> Result<f64> {
        let label = |name: &str| node["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        let offering = (label(TYPE), label(ZONE), label(CAPACITY_TYPE));
        match self.0.get(&offering) {
            Some(price) => Ok(*price),
            None => bail!("node {} is of no known offering: {offering:?}", node["metadata"]["name"]),
        }
    }
}

#[derive(Deserialize)]
struct KwokType {
    name: String,
    offerings: Vec<KwokOffering>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct KwokOffering {
    price: f64,
    available: bool,
    requirements: Vec<KwokRequirement>,
}

#[derive(Deserialize)]
struct KwokRequirement {
    key: String,
    values: Vec<String>,
}

impl KwokOffering {
    fn only(&self, key: &str) -> Result<String> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key);
        match requirement.map(|requirement| requirement.values.as_slice()) {
            Some([value]) => Ok(value.clone()),
            _ => bail!("an offering has not exactly one {key}"),
        }
    }
}

#[derive(Deserialize)]
struct MillpondTypes {
    items: Vec<MillpondType>,
}

#[derive(Deserialize)]
struct MillpondType {
    name: String,
    offerings: Vec<MillpondOffering>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MillpondOffering {
    zone: String,
    capacity_type: String,
    available: bool,
    price_per_hour: f64,
}
