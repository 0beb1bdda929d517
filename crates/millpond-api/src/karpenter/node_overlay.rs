//! `karpenter.sh/v1alpha1` NodeOverlay: own prices and own resources of instance types.
//!
//! What it does to a catalogue is in [`crate::catalog::overlay`], which also reads it from files with the place of
//! what is wrong in them.

use serde::{Deserialize, Serialize};

use super::{GROUP, PoolRequirement};
use crate::amounts::Amounts;
use crate::catalog::overlay::{LIMIT_WEIGHT, Overlay, PriceRule, extended};
use crate::meta::{Condition, Invalid, ObjectMeta, is_default, kind};
use crate::money;
use crate::selector::Requirement;

/// Changes prices and resources of what it matches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeOverlay {
    /// Name and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Desired state.
    #[serde(default)]
    pub spec: NodeOverlaySpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: NodeOverlayStatus,
}

kind!(NodeOverlay, GROUP, "v1alpha1", "NodeOverlay", "nodeoverlays", namespaced: false);

/// Matching instance types, and how they change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// All must hold.
    #[serde(default)]
    pub requirements: Vec<PoolRequirement>,
    /// The price: `0.096`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Change of the price: `-30%`, `+0.05`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    /// Dollars an hour on top of the resulting price, for licences: Millpond's addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surcharge: Option<String>,
    /// Extended resources that the types have besides their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amounts>,
    /// Overlays of greater weight win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

impl NodeOverlay {
    /// The overlay's effect on a catalogue, or all its errors.
    pub fn to_overlay(&self) -> Result<Overlay, Vec<Invalid>> {
        let spec = &self.spec;
        let mut invalid = Vec::new();
        let mut requirements = Vec::new();
        for (index, PoolRequirement { key, operator, values, .. }) in spec.requirements.iter().enumerate() {
            let requirement = Requirement { key: key.clone(), operator: *operator, values: values.clone() };
            if let Err(error) = requirement.check() {
                invalid.push(Invalid::new(format!("spec.requirements[{index}]"), error.to_string()));
            }
            requirements.push(requirement);
        }
        let weight = spec.weight.map_or(Ok(0), u32::try_from).ok().filter(|weight| *weight <= LIMIT_WEIGHT);
        if weight.is_none() {
            invalid.push(Invalid::new("spec.weight", format!("is not from 1 to {LIMIT_WEIGHT}")));
        }
        let mut capacity = std::collections::BTreeMap::new();
        for (name, count) in spec.capacity.iter().flat_map(Amounts::iter) {
            match extended(name, &count.to_string()) {
                Ok(count) => drop(capacity.insert(name.to_owned(), count)),
                Err(problem) => invalid.push(Invalid::new(format!("spec.capacity.{name}"), problem)),
            }
        }
        let price = self.price(&mut invalid);
        let surcharge = dollars("spec.surcharge", spec.surcharge.as_deref(), &mut invalid);
        if !invalid.is_empty() {
            return Err(invalid);
        }
        Ok(Overlay {
            name: self.metadata.name.clone(),
            weight: weight.unwrap_or(0),
            requirements,
            price,
            surcharge_nanos_hour: surcharge.unwrap_or(0),
            capacity,
        })
    }

    fn price(&self, invalid: &mut Vec<Invalid>) -> Option<PriceRule> {
        let adjustment = self.spec.price_adjustment.as_deref();
        if self.spec.price.is_some() && adjustment.is_some() {
            invalid.push(Invalid::new("spec.price", "stands beside `priceAdjustment`; only one of them may"));
        }
        let price = dollars("spec.price", self.spec.price.as_deref(), invalid).map(PriceRule::Absolute);
        let adjusted = adjustment.map(PriceRule::parse_adjustment).transpose().unwrap_or_else(|problem| {
            invalid.push(Invalid::new("spec.priceAdjustment", problem));
            None
        });
        price.or(adjusted)
    }
}

fn dollars(field: &str, text: Option<&str>, invalid: &mut Vec<Invalid>) -> Option<u64> {
    text.map(money::parse).transpose().unwrap_or_else(|error| {
        invalid.push(Invalid::new(field, error.to_string()));
        None
    })
}

/// Observed state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct NodeOverlayStatus {
    /// `Ready` among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::overlay;

    #[test]
    fn the_kind_and_the_file_say_the_same() {
        let text = "apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: ours}
spec:
  weight: 10
  requirements: [{key: size, operator: In, values: [large]}]
  priceAdjustment: -30%
  surcharge: '0.05'
  capacity: {example.com/licence: '2'}
";
        let kind: NodeOverlay = serde_saphyr::from_str(text).unwrap();
        assert_eq!(kind.to_overlay().unwrap(), overlay::parse("file", text).unwrap()[0]);
    }

    #[test]
    fn all_that_is_wrong_is_reported() {
        let text = "{metadata: {name: a}, spec: {weight: 10001, price: cheap, priceAdjustment: '5', surcharge: '-1',
            requirements: [{key: a, operator: In}], capacity: {cpu: 1, 'a b': 1}}}";
        let invalid = serde_saphyr::from_str::<NodeOverlay>(text).unwrap().to_overlay().unwrap_err();
        let fields: Vec<_> = invalid.iter().map(|invalid| invalid.field.as_str()).collect();
        let expected = [
            "spec.requirements[0]",
            "spec.weight",
            "spec.capacity.a b",
            "spec.capacity.cpu",
            "spec.price",
            "spec.price",
            "spec.priceAdjustment",
            "spec.surcharge",
        ];
        assert_eq!(fields, expected);
    }
}
