//! Overlays that are objects of a cluster.

use std::collections::BTreeMap;

use super::{LIMIT_WEIGHT, Overlay, check_extended, is_weight, price_rule};
use crate::karpenter::NodeOverlay;
use crate::meta::Invalid;
use crate::money;
use crate::selector::Requirement;

impl Overlay {
    /// Reads an overlay from an object, or returns its first error.
    pub fn of(object: &NodeOverlay) -> Result<Self, Invalid> {
        let spec = &object.spec;
        let mut requirements = Vec::with_capacity(spec.requirements.len());
        for (index, asked) in spec.requirements.iter().enumerate() {
            let key = crate::labels::current_name(&asked.key).to_owned();
            let requirement = Requirement { key, operator: asked.operator, values: asked.values.clone() };
            let checked = requirement.check();
            checked.map_err(|error| Invalid::new(format!("spec.requirements[{index}]"), error.to_string()))?;
            requirements.push(requirement);
        }
        let weight = match spec.weight {
            None => 0,
            Some(weight) => u32::try_from(weight)
                .ok()
                .filter(|weight| is_weight(*weight))
                .ok_or_else(|| Invalid::new("spec.weight", format!("`{weight}` is not from 1 to {LIMIT_WEIGHT}")))?,
        };
        let price = price_rule(spec.price.as_deref(), spec.price_adjustment.as_deref());
        let price = price.map_err(|(field, problem)| Invalid::new(field, problem))?;
        let surcharge = spec.surcharge.as_deref().map(money::parse).transpose();
        let surcharge = surcharge.map_err(|error| Invalid::new("spec.surcharge", error.to_string()))?;
        let mut capacity = BTreeMap::new();
        for (name, amount) in spec.capacity.iter().flat_map(crate::amounts::Amounts::iter) {
            let field = || format!("spec.capacity.{name}");
            check_extended(name).map_err(|problem| Invalid::new(field(), problem))?;
            let amount = u64::try_from(amount).map_err(|_| Invalid::new(field(), "is a negative amount"))?;
            capacity.insert(name.to_owned(), amount);
        }
        Ok(Self {
            name: object.metadata.name.clone(),
            weight,
            requirements,
            price,
            surcharge_nanos_hour: surcharge.unwrap_or(0),
            capacity,
        })
    }
}
