//! Amounts of resources by name (`cpu: 500m`, `memory: 16Gi`), as every kind has them, checked while they are read:
//! what is no quantity is refused where it stands.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::quantity::{self, QuantityError};

/// The unit of a resource's amounts: cores count in thousandths, all else in whole units.
pub fn parse(resource: &str, text: &str) -> Result<i64, QuantityError> {
    let parsed = if resource == "cpu" { quantity::parse_milli(text) } else { quantity::parse_units(text) };
    i64::try_from(parsed?).map_err(|_| QuantityError::TooLarge)
}

/// Amounts by resource: thousandths of `cpu`, whole units of all others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Amounts(pub BTreeMap<String, i64>);

impl Amounts {
    /// The amount of a resource.
    pub fn get(&self, resource: &str) -> Option<i64> {
        self.0.get(resource).copied()
    }

    /// Whether there are no amounts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Amounts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("resources with their quantities")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amounts, A::Error> {
                let mut amounts = BTreeMap::new();
                while let Some(resource) = map.next_key::<String>()? {
                    let amount = map.next_value_seed(AmountOf(&resource))?;
                    amounts.insert(resource, amount);
                }
                Ok(Amounts(amounts))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

impl Serialize for Amounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, amount)| (name, write(name, amount))))
    }
}

/// An amount as Kubernetes writes it.
pub fn write(resource: &str, amount: i64) -> String {
    let amount = u64::try_from(amount).unwrap_or(0);
    let bytes = resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
    match resource {
        "cpu" => quantity::cores(amount),
        _ if bytes => quantity::binary(amount),
        _ => amount.to_string(),
    }
}

/// Reads the quantity of the resource of that name, written as a text or as a number.
#[derive(Debug, Clone, Copy)]
pub struct AmountOf<'k>(pub &'k str);

impl<'de> DeserializeSeed<'de> for AmountOf<'_> {
    type Value = i64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<i64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for AmountOf<'_> {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as `500m`, `4` or `16Gi`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        parse(self.0, text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        let scaled = if self.0 == "cpu" { number.checked_mul(1000) } else { Some(number) };
        scaled.and_then(|scaled| i64::try_from(scaled).ok()).ok_or_else(|| E::custom(QuantityError::TooLarge))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        let positive = u64::try_from(number).map_err(|_| E::custom(QuantityError::Negative))?;
        self.visit_u64(positive)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_in_the_unit_of_their_resource() {
        let text = r#"{"cpu": "500m", "memory": 1024, "nvidia.com/gpu": "2", "ephemeral-storage": "1.5Gi"}"#;
        let amounts: Amounts = serde_json::from_str(text).unwrap();
        assert_eq!(amounts.get("cpu"), Some(500));
        assert_eq!(amounts.get("memory"), Some(1024));
        assert_eq!(amounts.get("nvidia.com/gpu"), Some(2));
        assert_eq!(amounts.get("ephemeral-storage"), Some(3 << 29));
        assert_eq!(serde_json::from_str::<Amounts>(r#"{"cpu": 1.5}"#).unwrap().get("cpu"), Some(1500));
        assert_eq!(serde_json::from_str::<Amounts>(r#"{"cpu": 2}"#).unwrap().get("cpu"), Some(2000));
        let written = r#"{"cpu":"500m","ephemeral-storage":"1536Mi","memory":"1Ki","nvidia.com/gpu":"2"}"#;
        assert_eq!(serde_json::to_string(&amounts).unwrap(), written);
    }

    #[test]
    fn wrong_amounts_are_refused() {
        for text in [r#""5x""#, "-1", r#""-5m""#, "true", "[]", r#""9999999999999999999""#, "1e300", "-0.5"] {
            let text = format!(r#"{{"memory": {text}}}"#);
            assert!(serde_json::from_str::<Amounts>(&text).is_err(), "{text}");
        }
    }
}
