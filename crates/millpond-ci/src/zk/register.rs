//! The components of a launcher: itself, and one for each pool whose provider it leads. All end with the session, and
//! are made again in the next one.
//!
//! Of several launchers with the same provider one leads it: the first contender of a lock per provider. The others
//! wait, and take over when its session ends.

use std::collections::{BTreeMap, BTreeSet};

use super::paths;
use super::store::Store;
use super::wire::{CreateMode, Op, Response, ZkError};
use crate::launcher::{PoolId, PoolSpec};
use crate::model::{Component, ComponentKind, ComponentState, PoolComponent, to_bytes};

/// What a launcher is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The host.
    pub hostname: String,
    /// The version of the program.
    pub version: String,
    /// Launcher or builder.
    pub kind: ComponentKind,
}

pub(super) struct Register {
    store: Store,
    identity: Identity,
    /// The session that everything below belongs to.
    session: u64,
    component: Option<String>,
    /// Whether this session has a counter of what tenants were given.
    has_turn: bool,
    contenders: BTreeMap<String, String>,
    pools: BTreeMap<PoolId, (String, PoolSpec)>,
}

impl Register {
    pub(super) fn new(store: Store, identity: Identity) -> Self {
        Self {
            store,
            identity,
            session: 0,
            component: None,
            has_turn: false,
            contenders: BTreeMap::new(),
            pools: BTreeMap::new(),
        }
    }

    /// Works until the client has ended.
    pub(super) async fn run(mut self) {
        use crate::launcher::Backend as _;
        let (mut changes, mut wanted) = (self.store.changes(), self.store.wanted());
        let mut state = self.store.client().state();
        loop {
            let (session, is_connected) = {
                let state = state.borrow_and_update();
                (state.session, state.is_connected)
            };
            changes.borrow_and_update();
            if session != self.session {
                self.begin(session);
            }
            let pools = wanted.borrow_and_update().clone();
            if is_connected && self.store.mirror().lock().is_complete() {
                match self.renew(pools).await {
                    Ok(()) | Err(ZkError::ConnectionLoss | ZkError::SessionExpired) => {}
                    Err(error) => tracing::warn!(%error, "cannot announce this process in ZooKeeper"),
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                changed = wanted.changed() => if changed.is_err() { return },
                changed = state.changed() => if changed.is_err() { return },
            }
        }
    }

    fn begin(&mut self, session: u64) {
        self.session = session;
        self.component = None;
        self.has_turn = false;
        self.contenders.clear();
        self.pools.clear();
        let mut mirror = self.store.mirror().lock();
        mirror.our_turn = None;
        mirror.ours.clear();
        mirror.held.clear();
    }

    async fn renew(&mut self, wanted: Option<Vec<PoolSpec>>) -> Result<(), ZkError> {
        let client = self.store.client().clone();
        if self.component.is_none() {
            let component = Component::running(self.identity.kind, &self.identity.hostname, &self.identity.version);
            let path = self.make(self.identity.kind, to_bytes(&component)).await?;
            self.component = Some(path);
        }
        let Some(wanted) = wanted else { return Ok(()) };
        if !self.has_turn {
            self.take_part().await?;
        }
        let providers: BTreeSet<&str> = wanted.iter().map(|pool| pool.provider.as_str()).collect();
        let dropped: Vec<String> =
            self.contenders.keys().filter(|provider| !providers.contains(provider.as_str())).cloned().collect();
        let mut led = BTreeSet::new();
        for provider in &providers {
            if self.leads(provider).await? {
                led.insert((*provider).to_owned());
            }
        }
        let serves = |pool: &&PoolSpec| led.contains(&pool.provider);
        let served: BTreeMap<PoolId, PoolSpec> = wanted
            .iter()
            .filter(serves)
            .map(|pool| ((pool.provider.clone(), pool.name.clone()), pool.clone()))
            .collect();
        let gone: Vec<PoolId> = self.pools.keys().filter(|id| !served.contains_key(*id)).cloned().collect();
        for id in gone {
            if let Some((path, _)) = self.pools.remove(&id) {
                // No decision is made for it from here on.
                self.store.mirror().lock().ours.remove(&id);
                ignore_missing(client.delete(&path, None).await)?;
            }
        }
        for (id, spec) in served {
            self.announce(id, spec).await?;
        }
        // Only now another launcher may lead them.
        for provider in dropped {
            if let Some(path) = self.contenders.remove(&provider) {
                ignore_missing(client.delete(&path, None).await)?;
            }
        }
        Ok(())
    }

    /// Makes the counter of what this launcher gives to tenants, and tells the others that there is one more: what they
    /// have decided without it is refused.
    async fn take_part(&mut self) -> Result<(), ZkError> {
        let client = self.store.client();
        client.ensure(paths::TENANTS).await?;
        let path = self.store.turn();
        let parts = vec![
            Op::SetData { path: paths::TENANTS.to_owned(), data: Vec::new(), version: None },
            Op::Create { path: path.clone(), data: Vec::new(), mode: CreateMode::Ephemeral },
        ];
        client.multi(parts).await?;
        self.store.mirror().lock().our_turn = Some(path);
        self.has_turn = true;
        Ok(())
    }

    /// Whether this process leads a provider; contends for it if it does not yet.
    async fn leads(&mut self, provider: &str) -> Result<bool, ZkError> {
        let folder = paths::election(provider);
        if !self.contenders.contains_key(provider) {
            self.store.client().ensure(&folder).await?;
            let Response::Created { path, .. } = self.store.client().call(self.store.contender(&folder)).await? else {
                return Err(ZkError::Malformed);
            };
            self.contenders.insert(provider.to_owned(), path);
        }
        let holder = self.store.mirror().lock().holder(&folder);
        Ok(holder.is_some() && holder.as_ref() == self.contenders.get(provider))
    }

    async fn announce(&mut self, id: PoolId, spec: PoolSpec) -> Result<(), ZkError> {
        let known = self.pools.get(&id);
        if known.is_some_and(|(_, known)| *known == spec) {
            return Ok(());
        }
        let name = self.name(&id);
        let component = PoolComponent {
            hostname: self.identity.hostname.clone(),
            id: Some(name.clone()),
            kind: ComponentKind::Pool,
            model_api: 0,
            name: Some(spec.name.clone()),
            paused: false,
            priority: spec.priority,
            provider_name: Some(spec.provider.clone()),
            state: ComponentState::Running,
            supported_labels: spec.labels.clone(),
            version: Some(self.identity.version.clone()),
        };
        let path = match known {
            Some((path, _)) => {
                let path = path.clone();
                self.store.client().set(&path, to_bytes(&component), None).await?;
                path
            }
            None => self.make(ComponentKind::Pool, to_bytes(&component)).await?,
        };
        tracing::info!(provider = spec.provider, pool = spec.name, id = name, "this launcher serves the pool");
        self.store.mirror().lock().ours.insert(id.clone(), name);
        self.pools.insert(id, (path, spec));
        self.store.changed();
        Ok(())
    }

    /// The id of a pool, which stays as long as this process lives.
    fn name(&self, (provider, pool): &PoolId) -> String {
        let mut mirror = self.store.mirror().lock();
        let id = mirror.our_ids.entry((provider.clone(), pool.clone()));
        let unique = || uuid::Uuid::new_v4().simple();
        id.or_insert_with(|| format!("{}-PoolWorker.{provider}-{pool}-{}", self.identity.hostname, unique())).clone()
    }

    async fn make(&self, kind: ComponentKind, data: Vec<u8>) -> Result<String, ZkError> {
        let folder = format!("{}/{}", paths::COMPONENTS, kind.name());
        self.store.client().ensure(&folder).await?;
        let path = format!("{folder}/{}", self.identity.hostname);
        self.store.client().create(&path, data, CreateMode::EphemeralSequential).await
    }
}

fn ignore_missing(result: Result<(), ZkError>) -> Result<(), ZkError> {
    match result {
        Err(ZkError::NoNode) => Ok(()),
        result => result,
    }
}
