//! Requests get nodes: in order of precedence, relative priority and fair share, each from one pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::matching::match_labels;
use super::usage::{Usage, add};
use super::{Action, Decision, DeleteReason, LIMIT_NODES, Lock, Pool, Reason, Scope, Snapshot, Source, Verdict};
use crate::config::Resources;
use crate::model::{NodeRequest, NodeState, RequestState};

/// Assigns nodes to requests. Returns the indexes of the pools whose limits hold up a request.
pub(super) fn assign(
    snapshot: &Snapshot,
    gone: &BTreeSet<String>,
    usage: &mut Usage,
    decision: &mut Decision,
) -> BTreeSet<usize> {
    let (free, freeing) = (Free::of(snapshot, gone), freeing(snapshot, gone));
    let mut round = Round { snapshot, free, usage, contended: BTreeSet::new(), freeing };
    round.run(decision);
    round.contended
}

struct Round<'s, 'u> {
    snapshot: &'s Snapshot,
    free: Free<'s>,
    usage: &'u mut Usage,
    contended: BTreeSet<usize>,
    /// Nodes of each pool that are about to go; requests that wait for them need no others to go.
    freeing: BTreeMap<usize, usize>,
}

/// Nodes that can be handed out, by pool and label; those with the fewest labels first, then the oldest.
struct Free<'s> {
    by_label: BTreeMap<(usize, &'s str), BTreeSet<(usize, &'s str)>>,
}

/// A way to provide a request.
struct Proposal {
    pool: usize,
    nodes: Vec<Source>,
    launched: Resources,
    launches: usize,
}

impl<'s> Free<'s> {
    fn of(snapshot: &'s Snapshot, gone: &BTreeSet<String>) -> Self {
        let mut free = Self { by_label: BTreeMap::new() };
        for (id, node) in &snapshot.nodes {
            let record = &node.record;
            let usable = record.state == NodeState::Ready && record.allocated_to.is_none() && node.lock == Lock::Free;
            if !usable || gone.contains(id) {
                continue;
            }
            let Some(pool) = pool_of(snapshot, record) else { continue };
            for label in &record.labels {
                free.by_label.entry((pool, label)).or_default().insert((record.labels.len(), id));
            }
        }
        free
    }

    fn remove(&mut self, snapshot: &'s Snapshot, pool: usize, id: &str) {
        let Some((id, node)) = snapshot.nodes.get_key_value(id) else { return };
        for label in &node.record.labels {
            if let Some(nodes) = self.by_label.get_mut(&(pool, label.as_str())) {
                nodes.remove(&(node.record.labels.len(), id.as_str()));
            }
        }
    }

    /// The nodes of a pool with any of these labels, the preferred first.
    fn with_labels(&self, pool: usize, labels: &'s [String]) -> Vec<&'s str> {
        let nodes: BTreeSet<(usize, &str)> =
            labels.iter().filter_map(|label| self.by_label.get(&(pool, label.as_str()))).flatten().copied().collect();
        nodes.into_iter().map(|(_, id)| id).collect()
    }

    /// The oldest node of a pool.
    fn oldest(&self, snapshot: &'s Snapshot, pool: usize) -> Option<&'s str> {
        let of_pool = self.by_label.iter().filter(|((index, _), _)| *index == pool).flat_map(|(_, nodes)| nodes);
        let age = |id: &str| snapshot.nodes[id].record.state_time;
        of_pool.map(|(_, id)| *id).min_by(|a, b| age(a).total_cmp(&age(b)).then(a.cmp(b)))
    }
}

pub(super) fn pool_of(snapshot: &Snapshot, node: &crate::model::Node) -> Option<usize> {
    let (provider, name) = (node.provider.as_ref()?, node.pool.as_ref()?);
    snapshot.pools.iter().position(|pool| pool.provider == *provider && pool.name == *name)
}

fn freeing(snapshot: &Snapshot, gone: &BTreeSet<String>) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for (id, node) in &snapshot.nodes {
        let leaves = gone.contains(id) || matches!(node.record.state, NodeState::Deleting | NodeState::Used);
        if let (true, Some(pool)) = (leaves, pool_of(snapshot, &node.record)) {
            *counts.entry(pool).or_default() += 1;
        }
    }
    counts
}

impl<'s> Round<'s, '_> {
    fn run(&mut self, decision: &mut Decision) {
        for group in self.groups() {
            let mut tenants = group;
            // The tenant with the fewest nodes is next; of equals, the one that has waited longest.
            while let Some((tenant, id)) = tenants
                .iter()
                .filter_map(|(tenant, ids)| Some((*tenant, *ids.front()?)))
                .min_by_key(|(tenant, id)| (self.usage.tenant_nodes.get(*tenant).copied().unwrap_or(0), *id))
            {
                tenants.get_mut(tenant).map(VecDeque::pop_front);
                self.request(id, &self.snapshot.requests[id].record, decision);
            }
        }
    }

    /// Open requests: by precedence and relative priority, then by tenant, in the order of submission.
    fn groups(&self) -> Vec<BTreeMap<&'s str, VecDeque<&'s str>>> {
        let mut groups: BTreeMap<(&str, i64), BTreeMap<&str, VecDeque<&str>>> = BTreeMap::new();
        for (id, request) in &self.snapshot.requests {
            if request.record.state != RequestState::Requested || request.lock == Lock::Other {
                continue;
            }
            let precedence = id.split('-').next().unwrap_or_default();
            let tenant = request.record.tenant_name.as_deref().unwrap_or_default();
            let group = groups.entry((precedence, request.record.relative_priority)).or_default();
            group.entry(tenant).or_default().push_back(id);
        }
        groups.into_values().collect()
    }

    fn request(&mut self, id: &str, request: &'s NodeRequest, decision: &mut Decision) {
        let (mut verdicts, mut best): (Vec<(usize, Reason)>, Option<Proposal>) = (Vec::new(), None);
        for index in 0..self.snapshot.pools.len() {
            match self.propose(index, request) {
                Err(reason) => verdicts.push((index, reason)),
                Ok(proposal) => {
                    let rank = |it: &Proposal| (self.snapshot.pools[it.pool].priority, it.launches, it.pool);
                    if best.as_ref().is_none_or(|best| rank(&proposal) < rank(best)) {
                        best = Some(proposal);
                    }
                }
            }
        }
        let preferred = self.preferred(request, &verdicts);
        if let Some(provider) = preferred {
            if best.as_ref().is_some_and(|best| self.snapshot.pools[best.pool].provider != provider) {
                best = self.best_of(provider, request);
            }
            if best.is_none() {
                let limited = self.of_provider(provider, &verdicts);
                self.make_room(id, request, &limited, decision);
                let rest = Reason::PrefersProvider(provider.to_owned());
                return self.wait(id, verdicts, Some(rest), decision);
            }
        }
        let foreign = best.as_ref().and_then(|best| self.foreign_before(best.pool, request));
        match (best, foreign) {
            (Some(best), None) => self.accept(id, request, best, decision),
            (Some(_), Some(foreign)) => self.wait(id, verdicts, Some(Reason::YieldsTo(foreign)), decision),
            (None, _) => self.wait_or_decline(id, request, verdicts, decision),
        }
    }

    /// The provider that the request asks for, if a pool of it may ever serve the request.
    fn preferred(&self, request: &'s NodeRequest, verdicts: &[(usize, Reason)]) -> Option<&'s str> {
        let provider = request.provider.as_deref()?;
        let can_serve = |(index, pool): (usize, &Pool)| {
            pool.provider == provider && !verdicts.iter().any(|(at, reason)| *at == index && reason.is_final())
        };
        self.snapshot.pools.iter().enumerate().any(can_serve).then_some(provider)
    }

    fn of_provider(&self, provider: &str, verdicts: &[(usize, Reason)]) -> Vec<(usize, Reason)> {
        let is_of = |(pool, _): &&(usize, Reason)| self.snapshot.pools[*pool].provider == provider;
        verdicts.iter().filter(is_of).cloned().collect()
    }

    fn best_of(&self, provider: &str, request: &'s NodeRequest) -> Option<Proposal> {
        let pools = (0..self.snapshot.pools.len()).filter(|index| self.snapshot.pools[*index].provider == provider);
        pools
            .filter_map(|index| self.propose(index, request).ok())
            .min_by_key(|it| (self.snapshot.pools[it.pool].priority, it.launches, it.pool))
    }

    /// A pool of another launcher that gets the request before this one.
    fn foreign_before(&self, pool: usize, request: &NodeRequest) -> Option<String> {
        let pool = &self.snapshot.pools[pool];
        let prefers = |provider: &str| request.provider.as_deref() == Some(provider);
        let comes_first = |other: &&super::ForeignPool| {
            let before = other.priority < pool.priority && !prefers(&pool.provider);
            let asked_for = prefers(&other.provider) && !prefers(&pool.provider);
            (before || asked_for)
                && !other.paused
                && !request.declined_by.contains(&other.id)
                && request.node_types.iter().all(|label| other.labels.contains(label))
        };
        self.snapshot.foreign.iter().find(comes_first).map(|other| other.id.clone())
    }

    /// How a pool would provide the request now, or why it does not.
    fn propose(&self, index: usize, request: &'s NodeRequest) -> Result<Proposal, Reason> {
        let pool = &self.snapshot.pools[index];
        if request.declined_by.contains(&pool.id) {
            return Err(Reason::Declined);
        }
        let needed = self.needed(pool, request)?;
        self.check_hosts(pool, request)?;
        // Of two obstacles, the permanent one is reported.
        self.absolute_limits(pool, &needed)?;
        if let Some(tenant) = &request.tenant_name {
            self.usage.check_tenant(self.snapshot, tenant, &needed)?;
        }
        if let Some(limit) = pool.max_concurrency
            && self.usage.pending.get(&pool.provider).copied().unwrap_or(0) >= limit
        {
            return Err(Reason::MaxConcurrency(limit));
        }
        match &pool.hosts {
            Some(_) => self.propose_hosts(index, request),
            None => self.propose_launches(index, request),
        }
    }

    fn needed(&self, pool: &Pool, request: &NodeRequest) -> Result<Resources, Reason> {
        match request.node_types.len() {
            0 => return Err(Reason::NoLabels),
            count if count > LIMIT_NODES => return Err(Reason::TooManyNodes(count)),
            _ => {}
        }
        let mut needed = Resources::new();
        for label in &request.node_types {
            let resources = pool.labels.get(label).ok_or_else(|| Reason::UnknownLabel(label.clone()))?;
            add(&mut needed, resources);
        }
        Ok(needed)
    }

    fn absolute_limits(&self, pool: &Pool, needed: &Resources) -> Result<(), Reason> {
        match Usage::default().check_pool(self.snapshot, pool, needed) {
            Err(reason) if reason.is_final() => Err(reason),
            _ => Ok(()),
        }
    }

    fn check_hosts(&self, pool: &Pool, request: &NodeRequest) -> Result<(), Reason> {
        let Some(hosts) = &pool.hosts else { return Ok(()) };
        if request.node_types.len() == 1 {
            // The pool's labels are those of its hosts.
            return Ok(());
        }
        let slots = hosts.iter().flat_map(|host| {
            let slots = (host.slots as usize).min(request.node_types.len());
            std::iter::repeat_n(host.labels.as_slice(), slots)
        });
        let slots: Vec<&[String]> = slots.collect();
        match_labels(&request.node_types, &slots).map(drop).ok_or(Reason::NotEnoughHosts)
    }

    fn propose_hosts(&self, index: usize, request: &'s NodeRequest) -> Result<Proposal, Reason> {
        let nodes = match &request.node_types[..] {
            [label] => {
                let first = self.free.by_label.get(&(index, label.as_str())).and_then(BTreeSet::first);
                vec![first.ok_or(Reason::NoFreeHost)?.1]
            }
            labels => {
                let free = self.free.with_labels(index, labels);
                let supply: Vec<&[String]> =
                    free.iter().map(|id| self.snapshot.nodes[*id].record.labels.as_slice()).collect();
                let matched = match_labels(labels, &supply).ok_or(Reason::NoFreeHost)?;
                matched.into_iter().map(|node| free[node]).collect()
            }
        };
        let nodes = nodes.into_iter().map(|id| Source::Ready(id.to_owned())).collect();
        Ok(Proposal { pool: index, nodes, launched: Resources::new(), launches: 0 })
    }

    fn propose_launches(&self, index: usize, request: &'s NodeRequest) -> Result<Proposal, Reason> {
        let pool = &self.snapshot.pools[index];
        let (mut nodes, mut taken, mut launched) = (Vec::new(), BTreeSet::new(), Resources::new());
        for label in &request.node_types {
            let free = self.free.by_label.get(&(index, label.as_str())).filter(|_| request.reuse);
            if let Some((_, id)) = free.and_then(|free| free.iter().find(|(_, id)| !taken.contains(id))) {
                taken.insert(*id);
                nodes.push(Source::Ready((*id).to_owned()));
                continue;
            }
            if self.snapshot.out_of_capacity.contains(&(pool.id.clone(), label.clone())) {
                return Err(Reason::OutOfCapacity(label.clone()));
            }
            if let Some(image) = self.snapshot.without_image.get(&(pool.id.clone(), label.clone())) {
                return Err(Reason::NoUpload(image.clone()));
            }
            add(&mut launched, &pool.labels[label]);
            nodes.push(Source::Launch(label.clone()));
        }
        let launches = nodes.len() - taken.len();
        if launches > 0 {
            self.usage.check_pool(self.snapshot, pool, &launched)?;
        }
        Ok(Proposal { pool: index, nodes, launched, launches })
    }

    fn accept(&mut self, id: &str, request: &NodeRequest, proposal: Proposal, decision: &mut Decision) {
        let pool = &self.snapshot.pools[proposal.pool];
        for source in &proposal.nodes {
            if let Source::Ready(node) = source {
                self.free.remove(self.snapshot, proposal.pool, node);
            }
        }
        self.usage.reserve(pool, &proposal.launched);
        if proposal.launches > 0 {
            *self.usage.pending.entry(pool.provider.clone()).or_default() += 1;
        }
        if let (Some(tenant), Ok(needed)) = (&request.tenant_name, self.needed(pool, request)) {
            self.usage.reserve_tenant(tenant, &needed, proposal.nodes.len() as u64);
        }
        let (request, pool) = (id.to_owned(), pool.id.clone());
        decision.actions.push(Action::Assign { request, pool, nodes: proposal.nodes });
    }

    fn wait_or_decline(
        &mut self,
        id: &str,
        request: &NodeRequest,
        verdicts: Vec<(usize, Reason)>,
        decision: &mut Decision,
    ) {
        if self.snapshot.pools.is_empty() || verdicts.iter().any(|(_, reason)| !reason.is_final()) {
            self.make_room(id, request, &verdicts, decision);
            return self.wait(id, verdicts, None, decision);
        }
        let ours = self.snapshot.pools.iter().map(|pool| &pool.id);
        let registered: BTreeSet<&String> = ours.clone().chain(self.snapshot.foreign.iter().map(|it| &it.id)).collect();
        let mut declined_by = request.declined_by.clone();
        declined_by.extend(ours.filter(|pool| !request.declined_by.contains(pool)).cloned());
        let fails = registered.iter().all(|pool| declined_by.contains(pool));
        if fails {
            // Pools that are gone are of no interest to the requestor.
            declined_by.retain(|pool| registered.contains(pool));
        } else if declined_by == request.declined_by {
            return self.wait(id, verdicts, None, decision);
        }
        let verdicts = self.named(verdicts);
        decision.actions.push(Action::Decline { request: id.to_owned(), declined_by, fails, verdicts });
    }

    /// Notes why a request waits; `rest` is the reason of pools that have none of their own.
    fn wait(&mut self, id: &str, verdicts: Vec<(usize, Reason)>, rest: Option<Reason>, decision: &mut Decision) {
        for (pool, reason) in &verdicts {
            let sharing = self.sharing(*pool, reason);
            self.contended.extend(sharing);
        }
        let mut verdicts = self.named(verdicts);
        for pool in &self.snapshot.pools {
            if let Some(reason) = rest.clone().filter(|_| !verdicts.iter().any(|verdict| verdict.pool == pool.id)) {
                verdicts.push(Verdict { pool: pool.id.clone(), reason });
            }
        }
        decision.waiting.insert(id.to_owned(), verdicts);
    }

    fn named(&self, verdicts: Vec<(usize, Reason)>) -> Vec<Verdict> {
        let named = |(pool, reason): (usize, Reason)| Verdict { pool: self.snapshot.pools[pool].id.clone(), reason };
        verdicts.into_iter().map(named).collect()
    }

    /// Deletes a ready node that no request wants, where only a limit is in the way.
    fn make_room(&mut self, id: &str, request: &NodeRequest, verdicts: &[(usize, Reason)], decision: &mut Decision) {
        for (pool, reason) in verdicts {
            let pools = self.sharing(*pool, reason);
            let freeing: usize = pools.iter().filter_map(|pool| self.freeing.get(pool)).sum();
            if freeing >= request.node_types.len() && !pools.is_empty() {
                let mut left = request.node_types.len();
                for pool in &pools {
                    let count = self.freeing.entry(*pool).or_default();
                    let taken = left.min(*count);
                    *count -= taken;
                    left -= taken;
                }
                return;
            }
            let oldest = pools.iter().filter_map(|pool| Some((*pool, self.free.oldest(self.snapshot, *pool)?)));
            let age = |node: &str| self.snapshot.nodes[node].record.state_time;
            let oldest = oldest.min_by(|(_, a), (_, b)| age(a).total_cmp(&age(b)).then(a.cmp(b)));
            let Some((pool, node)) = oldest else { continue };
            self.free.remove(self.snapshot, pool, node);
            let reason = DeleteReason::MakeRoom { request: id.to_owned() };
            decision.actions.push(Action::Delete { node: node.to_owned(), reason });
            return;
        }
    }

    /// The pools that launch nodes below the limit that a pool has reached: itself, or all of its provider.
    fn sharing(&self, pool: usize, reason: &Reason) -> Vec<usize> {
        let Reason::AtLimit { scope, .. } = reason else { return Vec::new() };
        let pools = &self.snapshot.pools;
        let shares = |index: &usize| match scope {
            Scope::Pool => *index == pool,
            Scope::Provider => pools[*index].provider == pools[pool].provider,
            Scope::Tenant(_) => false,
        };
        (0..pools.len()).filter(shares).filter(|index| pools[*index].hosts.is_none()).collect()
    }
}
