//! Pieces of objects that are read without copying: texts, maps of texts, amounts.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use millpond_api::amounts::AmountOf;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A text that points into what was read where it can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;

        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }

        deserializer.deserialize_str(Borrow)
    }
}

/// Keys with texts, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Pairs<'a>(pub Vec<(Text<'a>, Text<'a>)>);

impl Pairs<'_> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rfind(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(4).min(64));
                while let Some(entry) = map.next_entry()? {
                    pairs.push(entry);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

/// The annotations that planning uses; others, which may be long, are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Annotations<'a>(pub Vec<(&'static str, Text<'a>)>);

/// On a workload of a saved cluster: its pods were saved with it, so the reader creates none.
pub const PODS_LISTED: &str = "millpond.dev/pods-listed";

/// Annotations that mean something here.
pub const ANNOTATIONS: [&str; 11] = [
    millpond_api::capi::names::NODE_MACHINE,
    millpond_api::capi::names::NODE_CLUSTER_NAMESPACE,
    millpond_api::karpenter::DO_NOT_DISRUPT,
    PODS_LISTED,
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "controller.kubernetes.io/pod-deletion-cost",
    "kubernetes.io/config.mirror",
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-class",
];

impl Annotations<'_> {
    /// The value of one of [`ANNOTATIONS`].
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rfind(|(name, _)| *name == key).map(|(_, value)| &**value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Annotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Annotations<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations<'de>, A::Error> {
                let mut known = Vec::new();
                while let Some(key) = map.next_key::<Text<'_>>()? {
                    match ANNOTATIONS.iter().find(|name| **name == &*key) {
                        Some(name) => known.push((*name, map.next_value()?)),
                        None => _ = map.next_value::<IgnoredAny>()?,
                    }
                }
                Ok(Annotations(known))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

/// Amounts of resources: thousandths of `cpu`, whole units of all others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Amounts<'a>(pub Vec<(Text<'a>, i64)>);

impl Amounts<'_> {
    /// The amount of a resource.
    pub fn get(&self, resource: &str) -> Option<i64> {
        self.0.iter().rfind(|(name, _)| &**name == resource).map(|(_, amount)| *amount)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Amounts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Amounts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("resources with their quantities")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amounts<'de>, A::Error> {
                let mut amounts = Vec::new();
                while let Some(name) = map.next_key::<Text<'_>>()? {
                    let amount = map.next_value_seed(AmountOf(&name))?;
                    amounts.push((name, amount));
                }
                Ok(Amounts(amounts))
            }
        }

        deserializer.deserialize_map(Map)
    }
}

/// A number or a text, as `minAvailable` has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CountOrShare {
    /// So many.
    Count(u32),
    /// A percentage.
    Percent(u32),
}

impl<'de> Deserialize<'de> for CountOrShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = CountOrShare;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number such as `2` or a share such as `\"50%\"`")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<CountOrShare, E> {
                u32::try_from(number).map(CountOrShare::Count).map_err(|_| E::custom("is too large a number"))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<CountOrShare, E> {
                u64::try_from(number).map_err(|_| E::custom("is a negative number")).and_then(|n| self.visit_u64(n))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<CountOrShare, E> {
                let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                let percent = digits.and_then(|digits| digits.parse().ok()).filter(|percent| *percent <= 100);
                percent.map(CountOrShare::Percent).ok_or_else(|| E::custom("is not a share from `0%` to `100%`"))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
