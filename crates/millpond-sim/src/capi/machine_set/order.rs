//! The order in which a MachineSet deletes Machines when it is scaled down.

use std::cmp::Reverse;

use jiff::Timestamp;

/// The order among equal Machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Any; in fact the first by name, so that the same ones are chosen each time.
    #[default]
    Random,
    /// The youngest.
    Newest,
    /// The oldest.
    Oldest,
}

/// The properties of a Machine that decide its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name of the Machine.
    pub name: String,
    /// It is being deleted.
    pub leaving: bool,
    /// The delete-machine annotation is set on it.
    pub marked: bool,
    /// It has a node that is not known to be unhealthy.
    pub healthy: bool,
    /// When it was made.
    pub created: Timestamp,
}

/// The tiers, first to leave first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Leaving,
    Marked,
    Ill,
    Rest,
}

impl Candidate {
    fn tier(&self) -> Tier {
        match self {
            Self { leaving: true, .. } => Tier::Leaving,
            Self { marked: true, .. } => Tier::Marked,
            Self { healthy: false, .. } => Tier::Ill,
            _ => Tier::Rest,
        }
    }
}

/// The indexes of `count` candidates, first to leave first. Those that are leaving already come first, so that they
/// are counted before others are asked to leave.
pub fn choose(candidates: &[Candidate], order: Order, count: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..candidates.len()).collect();
    // Age decides within the last tier alone.
    let age = |one: &Candidate| match (one.tier(), order) {
        (Tier::Rest, Order::Oldest) => (one.created, Reverse(Timestamp::MAX)),
        (Tier::Rest, Order::Newest) => (Timestamp::MIN, Reverse(one.created)),
        _ => (Timestamp::MIN, Reverse(Timestamp::MAX)),
    };
    chosen.sort_by(|a, b| {
        let key = |index: usize| {
            let one = &candidates[index];
            (one.tier(), age(one), &one.name)
        };
        key(*a).cmp(&key(*b))
    });
    chosen.truncate(count);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, age: i64) -> Candidate {
        let created = Timestamp::from_second(1_000_000 - age).expect("a time");
        Candidate { name: name.to_owned(), leaving: false, marked: false, healthy: true, created }
    }

    #[test]
    fn the_first_to_leave() {
        let leaving = Candidate { leaving: true, ..machine("z-leaving", 5) };
        let marked = Candidate { marked: true, ..machine("y-marked", 5) };
        let ill = Candidate { healthy: false, ..machine("x-ill", 5) };
        let bench_objects = [machine("b-old", 90), ill, machine("a-young", 10), marked, leaving, machine("c-old", 90)];
        let names = |order, count| -> Vec<&str> {
            choose(&bench_objects, order, count).into_iter().map(|index| bench_objects[index].name.as_str()).collect()
        };
        let tiers = ["z-leaving", "y-marked", "x-ill"];
        for order in [Order::Random, Order::Newest, Order::Oldest] {
            assert_eq!(names(order, 3), tiers, "{order:?}");
        }
        assert_eq!(names(Order::Random, 6)[3..], ["a-young", "b-old", "c-old"]);
        assert_eq!(names(Order::Newest, 6)[3..], ["a-young", "b-old", "c-old"]);
        assert_eq!(names(Order::Oldest, 6)[3..], ["b-old", "c-old", "a-young"]);
        assert_eq!(names(Order::Oldest, 0), [""; 0]);
        assert_eq!(names(Order::Oldest, 99).len(), 6);
    }
}
