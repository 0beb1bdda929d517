//! The properties of an object schema: found by name, and those at hand that are filled in or shown without being set.
//!
//! A write looks every field of its object up here, in each of several walks.

use std::ops::Index;

use super::{Property, Zero};

/// Known properties, sorted by name.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    entries: Vec<(Box<str>, Property)>,
    /// The first bytes of each name, as a number that orders as the names do. Searching these touches one or two
    /// lines of memory, searching the names one for each.
    starts: Vec<u64>,
    /// Places of the properties that have a default.
    defaulted: Vec<u16>,
    /// Places of the properties that are shown even where nothing was set.
    shown: Vec<u16>,
}

impl Properties {
    /// The property of this name.
    pub fn get(&self, name: &str) -> Option<&Property> {
        let start = start_of(name);
        let first = self.starts.partition_point(|other| *other < start);
        let same = self.starts[first..].iter().take_while(|other| **other == start).count();
        let (_, property) = self.entries[first..first + same].iter().find(|(known, _)| **known == *name)?;
        Some(property)
    }

    /// Whether there is a property of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Property)> {
        self.entries.iter().map(|(name, property)| (&**name, property))
    }

    /// Those that have a default.
    pub fn defaulted(&self) -> impl Iterator<Item = (&str, &Property)> {
        self.at(&self.defaulted)
    }

    /// Properties that are always written: [`Zero::Always`] and [`Zero::DistinctOrNull`].
    pub fn shown(&self) -> impl Iterator<Item = (&str, &Property)> {
        self.at(&self.shown)
    }

    fn at(&self, places: &[u16]) -> impl Iterator<Item = (&str, &Property)> {
        places.iter().map(|place| {
            let (name, property) = &self.entries[usize::from(*place)];
            (&**name, property)
        })
    }
}

/// If a name occurs several times, the last property counts.
impl Extend<(Box<str>, Property)> for Properties {
    fn extend<I: IntoIterator<Item = (Box<str>, Property)>>(&mut self, more: I) {
        let mut newest_first: Vec<_> = std::mem::take(&mut self.entries);
        newest_first.extend(more);
        newest_first.reverse();
        newest_first.sort_by(|(left, _), (right, _)| left.cmp(right));
        newest_first.dedup_by(|(later, _), (first, _)| later == first);
        let places = |wanted: fn(&Property) -> bool| {
            let places = (0_u16..).zip(&newest_first).filter(|(_, (_, property))| wanted(property));
            places.map(|(place, _)| place).collect()
        };
        self.defaulted = places(|property| property.default.is_some());
        self.shown = places(|property| matches!(property.zero, Zero::Always | Zero::DistinctOrNull));
        self.starts = newest_first.iter().map(|(name, _)| start_of(name)).collect();
        self.entries = newest_first;
    }
}

impl FromIterator<(Box<str>, Property)> for Properties {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Property)>>(properties: I) -> Self {
        let mut known = Self::default();
        known.extend(properties);
        known
    }
}

impl Index<&str> for Properties {
    type Output = Property;

    /// # Panics
    /// Where there is no property of this name.
    fn index(&self, name: &str) -> &Property {
        self.get(name).unwrap_or_else(|| panic!("there is no property `{name}`"))
    }
}

/// The first eight bytes of a name, the first one weighing most; zeros behind a shorter one.
fn start_of(name: &str) -> u64 {
    let mut start = [0; 8];
    let length = name.len().min(start.len());
    start[..length].copy_from_slice(&name.as_bytes()[..length]);
    u64::from_be_bytes(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    fn property(zero: Zero, default: Option<&str>) -> Property {
        Property { zero, default: default.map(Into::into), ..Property::new(Schema::default().into()) }
    }

    #[test]
    fn properties_are_found_whatever_they_start_with() {
        let names = ["", "a", "a\0", "abcdefgh", "abcdefghi", "abcdefghj", "abcdefg", "é", "zzzzzzzzz"];
        let properties: Properties =
            names.iter().map(|name| ((*name).into(), property(Zero::Omitted, Some(name)))).collect();
        for name in names {
            assert_eq!(properties[name].default, Some(name.into()));
        }
        for unknown in ["b", "a\0\0", "abcdefghk", "abcdef", "zzzzzzzz", "zzzzzzzzzz"] {
            assert!(!properties.contains_key(unknown), "{unknown:?}");
        }
        let in_order: Vec<&str> = properties.iter().map(|(name, _)| name).collect();
        assert!(in_order.is_sorted() && in_order.len() == names.len());
    }

    #[test]
    fn what_comes_later_replaces_and_lists_follow() {
        let mut properties: Properties =
            [("b".into(), property(Zero::Omitted, Some("old"))), ("a".into(), property(Zero::Always, None))]
                .into_iter()
                .collect();
        properties.extend([
            ("b".into(), property(Zero::DistinctOrNull, Some("older"))),
            ("b".into(), property(Zero::DistinctOrNull, Some("new"))),
            ("0".into(), property(Zero::Distinct, None)),
        ]);
        let names = |properties: Vec<(&str, &Property)>| properties.iter().map(|(name, _)| *name).collect::<String>();
        assert_eq!(properties["b"].default, Some("new".into()));
        assert_eq!(names(properties.iter().collect()), "0ab");
        assert_eq!(names(properties.shown().collect()), "ab");
        assert_eq!(names(properties.defaulted().collect()), "b");
    }
}
