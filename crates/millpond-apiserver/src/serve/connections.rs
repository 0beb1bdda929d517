//! The table of connections, with a limit in total and per client address.
//!
//! When no place is free, the connection that is missed least gives its place to the new one: one without a request
//! in flight, of an unknown client before a known one, idle for the longest. So connections that were opened to keep
//! others out only push each other out. A new connection is refused only when all places are busy.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::limits::Limits;

/// All connections of a listener.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    table: Arc<Mutex<Table>>,
    limits: Limits,
}

#[derive(Debug, Default)]
struct Table {
    places: HashMap<u64, OpenConnection>,
    per_address: HashMap<IpAddr, usize>,
    next: u64,
}

#[derive(Debug)]
struct OpenConnection {
    address: IpAddr,
    activity: Arc<Activity>,
    evict: CancellationToken,
}

/// A connection's place in the table; dropping it gives the place back.
#[derive(Debug)]
pub(super) struct Entry {
    table: Arc<Mutex<Table>>,
    number: u64,
    activity: Arc<Activity>,
    evict: CancellationToken,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { table: Arc::default(), limits }
    }

    /// Finds a slot for a new connection, evicting an idle one if none is free; `None` if all are busy.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Entry> {
        // A client's address can have two notations.
        let address = address.to_canonical();
        let mut table = self.table.lock();
        if table.per_address.get(&address).is_some_and(|count| *count >= self.limits.per_address) {
            table.evict_idle(Some(address))?;
        }
        if table.places.len() >= self.limits.total {
            table.evict_idle(None)?;
        }
        let number = table.next;
        table.next += 1;
        *table.per_address.entry(address).or_default() += 1;
        let (activity, evict) = (Arc::new(Activity::new()), CancellationToken::new());
        table.places.insert(number, OpenConnection { address, activity: activity.clone(), evict: evict.clone() });
        Some(Entry { table: self.table.clone(), number, activity, evict })
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.table.lock().places.len()
    }
}

impl Table {
    /// Evicts an idle connection, of one address or of any; `None` if all are busy.
    fn evict_idle(&mut self, address: Option<IpAddr>) -> Option<()> {
        let idle = self
            .places
            .iter()
            .filter(|(_, place)| address.is_none_or(|address| place.address == address) && !place.activity.is_busy());
        let missed_least =
            idle.min_by_key(|(number, place)| (place.activity.is_known(), place.activity.idle_since(), **number));
        let number = *missed_least?.0;
        if let Some(place) = self.remove(number) {
            place.evict.cancel();
        }
        Some(())
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let place = self.places.remove(&number)?;
        if let Some(count) = self.per_address.get_mut(&place.address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&place.address);
            }
        }
        Some(place)
    }
}

impl Entry {
    /// The activity of the connection.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Ends when another connection has taken the place.
    pub(super) async fn evicted(&self) {
        self.evict.cancelled().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.table.lock().remove(self.number);
    }
}
