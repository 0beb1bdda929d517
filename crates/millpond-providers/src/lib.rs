//! Where machines come from: the trait of a provider, the suite that every provider must pass, and the simulated
//! cloud that is the embedded default.
//!
//! ```text
//!  NodeClaim ──▶ choices: offerings that fit, cheapest first
//!                   │
//!                   ▼ LaunchRequest (token = uid of the claim)
//!   controllers ──▶ Provider ── create, get, list, delete, drifted ──▶ a cloud: sim, or one of your own
//!                   │      ▲
//!                   │      └── events: interrupted, gone
//!                   └── conformance: the contract of all of them, as checks
//! ```
//!
//! A provider knows machines; it knows nothing of pools, pods or plans, and it decides nothing: which offerings are
//! tried, in which order, comes with the request. It has no memory of its own that a controller would miss after a
//! crash: everything is found again by token ([`Instance::token`]) through [`Provider::list`] or by asking
//! [`Provider::create`] once more.
//!
//! Deliberately absent: back-off, limits, retries of launches, deletion of Node objects. Controllers do that, so that
//! it is done once and alike for all providers.
//!
//! `docs/providers.md` is the guide: the faults of the simulated cloud, and a provider of one's own.

mod choices;
pub mod conformance;
mod error;
mod instance;
mod request;
pub mod sim;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millpond_api::catalog::Catalog;
use millpond_api::node_class::NodeClass;
use tokio::sync::{broadcast, watch};

pub use choices::choices;
pub use error::ProviderError;
pub use instance::{Instance, InstanceEvent, InstanceState};
pub use request::{Choice, LaunchRequest, Launched, OfferingKey, Shape};

/// A source of machines that become nodes.
///
/// Every call may be dropped at any await point, and may be repeated; a repeated call finds what an earlier one began
/// for the same token. `conformance` checks this contract.
pub trait Provider: Send + Sync + 'static {
    /// The word in `spec.provider` of a NodeClass.
    fn name(&self) -> &'static str;

    /// What the provider ids of its instances begin with, before `://`.
    fn scheme(&self) -> &'static str {
        self.name()
    }

    /// The caller leads in the term of this number from now on, and every later call through this provider carries it.
    /// A cloud that can remember a number refuses calls of lower ones ([`ProviderError::Fenced`]), this one included: a
    /// process that led before, and does not know that it leads no more, can make and end nothing. Once this returns,
    /// no call of an earlier term takes effect any more.
    ///
    /// Clouds that cannot remember a number need not do anything: tokens still keep launches apart.
    fn begin_term(&self, _term: u64) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The name of the cloud behind the provider: an account, or a simulated cloud's own id. NodeClaims carry it, and
    /// claims of another cloud are left alone, since neither their instances nor their absence can be seen here. None
    /// where there can be only one.
    fn cloud_id(&self) -> Option<String> {
        None
    }

    /// Creates an instance: the first of the request's choices that is available.
    ///
    /// A token creates at most one instance, ever. A later call with a used token, even at the same time or from
    /// another process, returns the same instance, whatever the request says; once that instance is gone, it returns
    /// [`ProviderError::NotFound`].
    ///
    /// [`ProviderError::CapacityUnavailable`] names every choice that was tried, so that all of them are learned from
    /// one call.
    fn create<'a>(&'a self, request: &'a LaunchRequest) -> BoxFuture<'a, Result<Launched, ProviderError>>;

    /// Asks for the end of an instance. `Ok` while it is ending, [`ProviderError::NotFound`] once it is gone, or was
    /// never there: call it until then.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), ProviderError>>;

    /// The instance of a provider id; [`ProviderError::NotFound`] when it is gone.
    fn get<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Instance, ProviderError>>;

    /// Every instance that this installation made and that is not gone, by id. A cloud may tell of a new instance
    /// some time after it was made, and of an old one some time after it went.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>>;

    /// All instance types of a class with their prices; also those that are unavailable now. No I/O: this is called for
    /// every plan and every launch.
    ///
    /// A class that cannot be used ([`ProviderError::NotReady`]) says why, with the nearest name where one is
    /// misspelt.
    fn catalog(&self, class: &NodeClass) -> Result<Arc<Catalog>, ProviderError>;

    /// Counts changes of the catalogues, for a provider whose own catalogues change while it runs: plans then use
    /// [`Provider::catalog`] only. `None` if classes name a catalogue that the caller knows.
    fn catalog_changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Sets the catalogues that users added to the cluster: classes may name them, and they precede the provider's own.
    /// Providers whose types come from their cloud can ignore this.
    fn take_catalogs(&self, _catalogs: &[Arc<Catalog>]) {}

    /// Why an instance has drifted from its class, as one word (`ImageDrift`); `None` if it has not.
    fn drifted<'a>(
        &'a self,
        instance: &'a Instance,
        class: &'a NodeClass,
    ) -> BoxFuture<'a, Result<Option<String>, ProviderError>>;

    /// Conditions of a node that say that its machine is broken, with the time that each is borne.
    fn repair_policies(&self) -> Vec<RepairPolicy>;

    /// Events of instances that happen without a call, from now on; `None` if the cloud does not report any. Events may
    /// be missed (a receiver that lags, a restart): [`Provider::list`] is the truth.
    fn events(&self) -> Option<broadcast::Receiver<InstanceEvent>>;
}

/// A condition of a node that says that its machine is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairPolicy {
    /// The type of the condition: `Ready`.
    pub condition: String,
    /// The status that means unhealthy: `False` or `Unknown`.
    pub status: String,
    /// How long that is borne before the node is replaced.
    pub toleration: Duration,
}

/// The Rust of the guide compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/providers.md")]
struct Guide;
