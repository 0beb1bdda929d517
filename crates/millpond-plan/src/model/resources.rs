//! Amounts of resources as dense vectors.

use serde::{Deserialize, Serialize};

use crate::symbol::{Symbol, Symbols};

/// The index of a resource in every [`Resources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceId(pub u16);

impl ResourceId {
    /// The index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// `cpu`, in thousandths of a core.
pub const CPU: ResourceId = ResourceId(0);
/// `memory`, in bytes.
pub const MEMORY: ResourceId = ResourceId(1);
/// `pods`.
pub const PODS: ResourceId = ResourceId(2);
/// `ephemeral-storage`, in bytes.
pub const STORAGE: ResourceId = ResourceId(3);

/// The names of the resources. The first four are always there; the others (extended resources, huge pages in
/// bytes, volumes that a CSI driver can still attach) get their place when they are first met.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResourceTable {
    names: Vec<Box<str>>,
}

impl ResourceTable {
    /// Only the four resources that every node has.
    pub fn new() -> Self {
        Self { names: ["cpu", "memory", "pods", "ephemeral-storage"].map(Into::into).into() }
    }

    /// The index of a resource; registers a new one.
    ///
    /// # Panics
    ///
    /// With more than 65,536 resources.
    pub fn intern(&mut self, name: &str) -> ResourceId {
        self.find(name).unwrap_or_else(|| {
            self.names.push(name.into());
            ResourceId(u16::try_from(self.names.len() - 1).expect("fewer than 65,536 resources"))
        })
    }

    /// The index of a registered resource.
    pub fn find(&self, name: &str) -> Option<ResourceId> {
        self.names.iter().position(|known| **known == *name).map(|index| ResourceId(index as u16))
    }

    /// The name of a resource.
    pub fn name(&self, resource: ResourceId) -> &str {
        &self.names[resource.index()]
    }

    /// All resources.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, &str)> {
        self.names.iter().enumerate().map(|(index, name)| (ResourceId(index as u16), &**name))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Always false: four resources are always registered.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The symbol of a resource's name.
    pub fn symbol(&self, resource: ResourceId, symbols: &mut Symbols) -> Symbol {
        symbols.intern(self.name(resource))
    }
}

impl Default for ResourceTable {
    fn default() -> Self {
        Self::new()
    }
}

/// Amounts by resource. What lies beyond its end is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources(Vec<i64>);

impl Resources {
    /// All amounts zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The amount of a resource.
    pub fn get(&self, resource: ResourceId) -> i64 {
        self.0.get(resource.index()).copied().unwrap_or(0)
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, resource: ResourceId, amount: i64) {
        let index = resource.index();
        if index >= self.0.len() {
            if amount == 0 {
                return;
            }
            self.0.resize(index + 1, 0);
        }
        self.0[index] = amount;
        self.trim();
    }

    /// Equal amounts are equal values: no zero at the end.
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// The amounts that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> {
        let amounts = self.0.iter().enumerate().filter(|(_, amount)| **amount != 0);
        amounts.map(|(index, amount)| (ResourceId(index as u16), *amount))
    }

    /// Adds; a sum beyond the range of 64 bits stays at its end.
    pub fn add(&mut self, other: &Self) {
        self.add_times(other, 1);
    }

    /// Adds a multiple of the other amounts.
    pub fn add_times(&mut self, other: &Self, times: i64) {
        if other.0.len() > self.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(theirs.saturating_mul(times));
        }
        self.trim();
    }

    /// Subtracts the other amounts.
    pub fn subtract(&mut self, other: &Self) {
        self.add_times(other, -1);
    }

    /// The greater of each, as kubelet takes it over init containers.
    pub fn raise_to(&mut self, other: &Self) {
        for (resource, amount) in other.iter() {
            if amount > self.get(resource) {
                self.set(resource, amount);
            }
        }
    }

    /// The first resource of which the request asks for more than is here. As kube-scheduler has it, what is not
    /// asked for is not looked at.
    pub fn first_lacking(&self, request: &Self) -> Option<ResourceId> {
        request.iter().find(|(resource, amount)| *amount > 0 && *amount > self.get(*resource)).map(|(id, _)| id)
    }

    /// How many of the request fit; `None` if it asks for nothing.
    pub fn times(&self, request: &Self) -> Option<u64> {
        let each = request.iter().filter(|(_, amount)| *amount > 0);
        each.map(|(resource, amount)| u64::try_from(self.get(resource) / amount).unwrap_or(0)).min()
    }
}

impl FromIterator<(ResourceId, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (ResourceId, i64)>>(amounts: I) -> Self {
        let mut all = Self::new();
        for (resource, amount) in amounts {
            all.set(resource, amount);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_amounts_are_zero_and_equal_amounts_are_equal() {
        let mut free: Resources = [(CPU, 4000), (STORAGE, 5)].into_iter().collect();
        free.set(STORAGE, 0);
        assert_eq!(free, [(CPU, 4000)].into_iter().collect());
        assert_eq!(free.get(ResourceId(99)), 0);
    }

    #[test]
    fn only_what_is_asked_for_can_lack() {
        let mut free: Resources = [(CPU, 1000), (PODS, 3)].into_iter().collect();
        free.set(MEMORY, -5);
        let request: Resources = [(CPU, 400), (PODS, 1)].into_iter().collect();
        assert_eq!(free.first_lacking(&request), None);
        assert_eq!(free.times(&request), Some(2));
        let memory: Resources = [(MEMORY, 1)].into_iter().collect();
        assert_eq!((free.first_lacking(&memory), free.times(&memory)), (Some(MEMORY), Some(0)));
        assert_eq!(free.times(&Resources::new()), None);
    }
}
