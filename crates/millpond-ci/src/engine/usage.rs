//! Usage that counts against limits, including what this decision has reserved.

use std::collections::BTreeMap;

use super::{Pool, Reason, Scope, Snapshot};
use crate::config::{INSTANCES, Resources};
use crate::model::{Node, NodeState};

/// Resources in use or reserved.
#[derive(Debug, Default)]
pub(super) struct Usage {
    providers: BTreeMap<String, Resources>,
    pools: BTreeMap<(String, String), Resources>,
    tenants: BTreeMap<String, Resources>,
    /// How many nodes each tenant has.
    pub(super) tenant_nodes: BTreeMap<String, u64>,
    /// How many requests each provider handles.
    pub(super) pending: BTreeMap<String, u64>,
}

impl Usage {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut usage = Self::default();
        for node in snapshot.nodes.values().map(|node| &node.record).filter(|node| node.state != NodeState::Deleted) {
            let resources = resources(node);
            if let Some(provider) = &node.provider {
                add(usage.providers.entry(provider.clone()).or_default(), &resources);
                if let Some(pool) = &node.pool {
                    add(usage.pools.entry((provider.clone(), pool.clone())).or_default(), &resources);
                }
            }
            if let Some(tenant) = &node.tenant_name {
                usage.count_tenant(tenant, &resources, 1);
            }
        }
        usage.count_pending(snapshot);
        usage
    }

    fn count_pending(&mut self, snapshot: &Snapshot) {
        let pending = snapshot.requests.values().filter(|request| request.lock == super::Lock::Ours);
        for request in pending {
            let node = request.record.nodes.first().and_then(|id| snapshot.nodes.get(id));
            if let Some(provider) = node.and_then(|node| node.record.provider.as_ref()) {
                *self.pending.entry(provider.clone()).or_default() += 1;
            }
        }
    }

    fn count_tenant(&mut self, tenant: &str, resources: &Resources, nodes: u64) {
        add(self.tenants.entry(tenant.to_owned()).or_default(), resources);
        *self.tenant_nodes.entry(tenant.to_owned()).or_default() += nodes;
    }

    /// Why a pool cannot take nodes with these resources beyond those it has.
    pub(super) fn check_pool(&self, snapshot: &Snapshot, pool: &Pool, needed: &Resources) -> Result<(), Reason> {
        let empty = Resources::new();
        let pool_usage = self.pools.get(&(pool.provider.clone(), pool.name.clone())).unwrap_or(&empty);
        check(&pool.limits, pool_usage, needed, &Scope::Pool)?;
        if pool.ignores_provider_limits {
            return Ok(());
        }
        let limits = snapshot.provider_limits.get(&pool.provider).unwrap_or(&empty);
        check(limits, self.providers.get(&pool.provider).unwrap_or(&empty), needed, &Scope::Provider)
    }

    /// Why a tenant cannot have nodes with these resources beyond those it has.
    pub(super) fn check_tenant(&self, snapshot: &Snapshot, tenant: &str, needed: &Resources) -> Result<(), Reason> {
        let empty = Resources::new();
        let Some(limits) = snapshot.tenant_limits.get(tenant) else { return Ok(()) };
        let scope = Scope::Tenant(tenant.to_owned());
        check(limits, self.tenants.get(tenant).unwrap_or(&empty), needed, &scope)
    }

    /// Reserves nodes of a pool.
    pub(super) fn reserve(&mut self, pool: &Pool, launched: &Resources) {
        add(self.providers.entry(pool.provider.clone()).or_default(), launched);
        add(self.pools.entry((pool.provider.clone(), pool.name.clone())).or_default(), launched);
    }

    /// Reserves the nodes of a request for its tenant.
    pub(super) fn reserve_tenant(&mut self, tenant: &str, needed: &Resources, nodes: u64) {
        self.count_tenant(tenant, needed, nodes);
    }
}

/// The usage of a node.
pub(super) fn resources(node: &Node) -> Resources {
    node.resources.clone().unwrap_or_else(|| Resources::from([(INSTANCES.to_owned(), 1)]))
}

/// Adds resources to others.
pub(super) fn add(total: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// Whether an amount fits below a limit: never, not now, or now.
fn check(limits: &Resources, used: &Resources, needed: &Resources, scope: &Scope) -> Result<(), Reason> {
    for (resource, limit) in limits {
        let needed = needed.get(resource).copied().unwrap_or_default();
        if needed > *limit {
            return Err(Reason::ExceedsLimit {
                scope: scope.clone(),
                resource: resource.clone(),
                needed,
                limit: *limit,
            });
        }
    }
    for (resource, limit) in limits {
        let needed = needed.get(resource).copied().unwrap_or_default();
        let left = limit.saturating_sub(used.get(resource).copied().unwrap_or_default());
        if needed > left {
            return Err(Reason::AtLimit { scope: scope.clone(), resource: resource.clone(), needed, left });
        }
    }
    Ok(())
}
