//! Strict limits: no claim is created before its usage is reserved, and reserved usage counts.
//!
//! Every claim that Millpond writes goes through [`create`]. Where a limit holds (of its pool, or of the whole
//! cluster), the claim is first reserved: its name and its usage are written into an annotation of the limiting object,
//! on condition that the object has not changed meanwhile. What counts against the limit is
//!
//! > all claims of a consistent list + all reservations whose claim is not in that list
//!
//! so two controllers, or a round of planning and a consolidation, can never both take what is left: the second one's
//! write conflicts, it reads again, and sees what the first one took. A claim carries what was reserved for it, until
//! it says itself what it has.
//!
//! A reservation whose claim was never written (a crash between the two) lapses after [`LAPSES_AFTER`]; the process
//! that reserved writes its claim within [`WRITTEN_WITHIN`] or not at all. If the claim is written later nevertheless
//! (the process was suspended in between), usage is counted again before the launch ([`is_overrun`]).
//!
//! Limits are read from the API, never from a copy: a controller that acts on an old view of the cluster is held by
//! limits that it has not seen.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use millpond_api::amounts::Amounts;
use millpond_api::karpenter::PRICE_LIMIT_ANNOTATION;
use millpond_api::{labels, money};
use millpond_runtime::error::{Error, Result};
use millpond_runtime::meta::Key;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::clouds;
use crate::cluster::{Cluster, FIELD_MANAGER, is_our_class, pool_name};
use crate::context::Context;
use crate::kinds::NodeClaim;
use crate::turn::Turn;

/// Annotation of a claim: what it counts against limits until it says what it has.
pub const RESERVED_ANNOTATION: &str = "millpond.dev/reserved";
/// Annotation of what limits: claims that are about to be written.
pub const RESERVATIONS_ANNOTATION: &str = "millpond.dev/reservations";

/// A reservation without a claim counts for this long.
const LAPSES_AFTER: Duration = Duration::from_mins(1);
/// A claim is written within this time after its reservation, or not at all.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// A claim that was written this many seconds after its reservation is counted again before its launch. Others count
/// its reservation for twice that time.
const LATE_AFTER_S: i64 = 30;
/// Limit on write conflicts on the same object.
const TRIES: usize = 10;
/// Claims that are written at a time; the cluster's own limit on writes holds as well.
const AT_A_TIME: usize = 64;

/// Usage that counts against limits: resources, nodes and price.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Capacity.
    #[serde(default)]
    pub resources: Amounts,
    /// Nano-dollars per hour.
    #[serde(default)]
    pub nanos_hour: u64,
    /// Nodes.
    #[serde(default)]
    pub nodes: u64,
}

/// The reservation of a claim, as stored in its annotation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Reserved {
    #[serde(flatten)]
    take: Usage,
    /// When it was reserved, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
}

impl Usage {
    fn add(&mut self, other: &Self) {
        for (name, amount) in other.resources.iter() {
            *self.resources.0.entry(name.to_owned()).or_default() += amount;
        }
        self.nanos_hour += other.nanos_hour;
        self.nodes += other.nodes;
    }

    /// Whether the usage is within a limit.
    fn within(&self, limit: &Limit) -> bool {
        let resources = limit.amounts.iter().all(|(name, most)| match name {
            "nodes" => i128::from(self.nodes) <= i128::from(most),
            _ => self.resources.get(name).unwrap_or(0) <= most,
        });
        resources && limit.nanos_hour.is_none_or(|most| self.nanos_hour <= most)
    }
}

/// A reservation, as stored in the annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reservation {
    take: Usage,
    /// Seconds since 1970.
    at: i64,
}

impl Reservation {
    fn is_lapsed(&self, now: i64) -> bool {
        now - self.at > LAPSES_AFTER.as_secs() as i64
    }
}

/// The upper limits of a usage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Limit {
    amounts: Amounts,
    nanos_hour: Option<u64>,
}

impl Limit {
    fn is_none(&self) -> bool {
        self.amounts.is_empty() && self.nanos_hour.is_none()
    }
}

/// The owner of a limit: a pool, or ClusterLimits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Cluster(String),
    Pool(String),
}

impl Scope {
    fn name(&self) -> &str {
        match self {
            Self::Cluster(name) | Self::Pool(name) => name,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Cluster(_) => "ClusterLimits",
            Self::Pool(_) => "NodePool",
        }
    }

    fn api(&self, cluster: &Cluster) -> Api<DynamicObject> {
        match self {
            Self::Cluster(_) => limits_api(cluster),
            Self::Pool(_) => {
                let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool");
                Api::all_with(cluster.urgent_client.clone(), &ApiResource::from_gvk_with_plural(&kind, "nodepools"))
            }
        }
    }

    fn counts(&self, claim: &NodeClaim) -> bool {
        match self {
            Self::Cluster(_) => is_our_class(&claim.spec.node_class_ref),
            Self::Pool(name) => pool_name(claim) == Some(name),
        }
    }

    fn failed(&self, verb: &'static str, source: kube::Error) -> Error {
        Error::Api { verb, kind: self.kind().to_owned(), key: Key::new("", self.name()), source: Box::new(source) }
    }
}

fn limits_api(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("millpond.dev", "v1alpha1", "ClusterLimits");
    Api::all_with(cluster.urgent_client.clone(), &ApiResource::from_gvk_with_plural(&kind, "clusterlimits"))
}

/// Writes claims as far as limits allow, in their order; tells the name of each that was written. The reason is that
/// of the metric: one of [`crate::metrics::created_for`], or that of the nodes that they replace.
pub(crate) async fn create(
    context: &Context,
    turn: &Turn<'_>,
    claims: Vec<Option<NodeClaim>>,
    reason: &str,
) -> Result<Vec<Option<String>>> {
    if claims.iter().all(Option::is_none) {
        return Ok(vec![None; claims.len()]);
    }
    let cluster = &context.cluster;
    let (begun, at) = (Instant::now(), cluster.now().0);
    let allowed = reserve_all(context, &claims).await?;
    let total = claims.len();
    let write = |(index, mut claim): (usize, NodeClaim)| async move {
        note_reserved(&mut claim, at);
        clouds::name_cloud(context, &mut claim);
        // A write that waits for its turn is given up in time; one that is on its way is waited for by others.
        match tokio::time::timeout_at(begun + WRITTEN_WITHIN, turn.create(cluster, &claim)).await {
            Ok(Ok(created)) => {
                context.metrics.claim_created(&created, reason);
                Some((index, created.name().to_owned()))
            }
            Ok(Err(error)) => {
                tracing::warn!(claim = claim.name(), %error, cause = error.cause(), "claim not written");
                None
            }
            Err(_) => {
                tracing::warn!(claim = claim.name(), "not written: it took too long");
                None
            }
        }
    };
    let due = claims.into_iter().enumerate().filter(|(index, _)| allowed[*index]);
    let due: Vec<(usize, NodeClaim)> = due.filter_map(|(index, claim)| Some((index, claim?))).collect();
    let written: Vec<Option<(usize, String)>> =
        stream::iter(due).map(write).buffer_unordered(AT_A_TIME).collect().await;
    let mut names = vec![None; total];
    for (index, name) in written.into_iter().flatten() {
        names[index] = Some(name);
    }
    Ok(names)
}

/// Reserves claims with every limit that applies; returns which are within all limits.
async fn reserve_all(context: &Context, claims: &[Option<NodeClaim>]) -> Result<Vec<bool>> {
    let cluster = &context.cluster;
    let mut allowed: Vec<bool> = claims.iter().map(Option::is_some).collect();
    let mut reserved: Vec<(Scope, Vec<usize>)> = Vec::new();
    for (scope, members) in scopes(cluster, claims).await? {
        let wanted: Vec<(usize, &NodeClaim)> = members
            .into_iter()
            .filter(|&index| allowed[index])
            .filter_map(|i| Some((i, claims[i].as_ref()?)))
            .collect();
        let granted = reserve(cluster, &scope, &wanted).await?;
        if granted.len() < wanted.len() {
            context.metrics.limit_refused(scope.kind(), scope.name(), wanted.len() - granted.len());
        }
        for (index, _) in wanted {
            allowed[index] = granted.contains(&index);
        }
        reserved.push((scope, granted));
    }
    // A reservation that one limit granted and another one refused is released.
    for (scope, granted) in reserved {
        let refused = granted.into_iter().filter(|&index| !allowed[index]);
        let names: Vec<&str> = refused.filter_map(|index| claims[index].as_ref().map(NodeClaim::name)).collect();
        free(cluster, &scope, &names).await;
    }
    Ok(allowed)
}

/// Releases the reservation of a claim that ends, so that it need not lapse first. To be called while the claim still
/// exists.
pub(crate) async fn release(context: &Context, claim: &NodeClaim) {
    let cluster = &context.cluster;
    let stands = |annotations: &BTreeMap<String, String>| {
        let text = annotations.get(RESERVATIONS_ANNOTATION);
        let reservation = text.and_then(|text| read_reservations(text).remove(claim.name()));
        reservation.is_some_and(|reservation| !reservation.is_lapsed(cluster.now().0))
    };
    if let Some(pool) = pool_name(claim).and_then(|name| cluster.pools.get(&Key::new("", name)))
        && stands(pool.annotations())
    {
        free(cluster, &Scope::Pool(pool.name().to_owned()), &[claim.name()]).await;
    }
    for limits in cluster.limits.list() {
        if stands(limits.annotations()) {
            free(cluster, &Scope::Cluster(limits.name().to_owned()), &[claim.name()]).await;
        }
    }
}

/// Whether a claim must not launch: it was written so long after it was reserved that others may not have counted it,
/// and with it there would be too much. Who wrote in time was counted, and is not asked for again.
pub(crate) async fn is_overrun(context: &Context, claim: &NodeClaim) -> Result<bool> {
    if !is_late(claim) {
        return Ok(false);
    }
    for scope in scopes(&context.cluster, &[Some(claim.clone())]).await?.into_keys() {
        match tally(&context.cluster, &scope).await? {
            Headroom::Nothing => return Ok(true),
            Headroom::Some(tally) if !tally.taken.within(&tally.limit) => return Ok(true),
            Headroom::All | Headroom::Some(_) => {}
        }
    }
    Ok(false)
}

/// Compares two clocks that may differ: the API server's, and that of the process that reserved.
fn is_late(claim: &NodeClaim) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    let (Some(at), Some(created)) = (reserved_of(claim).at, created) else { return false };
    created - at > LATE_AFTER_S
}

/// The usage that machines of a claim may have: no more of the limited resources than was reserved.
pub(crate) struct ReservedCapacity {
    /// `None` for claims that another controller wrote: nothing was reserved for them.
    reserved: Option<Usage>,
    limits: Vec<Limit>,
}

impl ReservedCapacity {
    /// The reservation of a claim, under the limits in the mirrors.
    pub(crate) fn of(context: &Context, claim: &NodeClaim) -> Self {
        let reserved = claim.annotations().contains_key(RESERVED_ANNOTATION).then(|| reserved_of(claim).take);
        let pool = pool_name(claim).and_then(|name| context.pool(name));
        let of_pool = pool.map(|pool| Limit {
            amounts: pool.spec.limits.clone().unwrap_or_default(),
            nanos_hour: pool.annotations().get(PRICE_LIMIT_ANNOTATION).and_then(|text| money::parse(text).ok()),
        });
        let of_cluster = context.cluster.limits.list().into_iter().map(|limits| Limit {
            amounts: limits.spec.limits.clone().unwrap_or_default(),
            nanos_hour: limits.spec.dollars_per_hour.as_ref().map(|dollars| dollars.0),
        });
        Self { reserved, limits: of_pool.into_iter().chain(of_cluster).collect() }
    }

    /// Whether a machine is within the reservation.
    pub(crate) fn covers(&self, capacity: &Amounts, nanos_hour: u64) -> bool {
        let Some(reserved) = &self.reserved else { return true };
        let fits = |name: &str| capacity.get(name).unwrap_or(0) <= reserved.resources.get(name).unwrap_or(0);
        self.limits.iter().all(|limit| {
            limit.amounts.iter().all(|(name, _)| name == "nodes" || fits(name))
                && (limit.nanos_hour.is_none() || nanos_hour <= reserved.nanos_hour)
        })
    }
}

/// The limits that apply to these claims, each with the claims concerned.
async fn scopes(cluster: &Cluster, claims: &[Option<NodeClaim>]) -> Result<BTreeMap<Scope, Vec<usize>>> {
    let failed = |source| Scope::Cluster(String::new()).failed("list", source);
    let of_cluster = limits_api(cluster).list_metadata(&ListParams::default()).await.map_err(failed)?;
    let mut scopes: BTreeMap<Scope, Vec<usize>> = BTreeMap::new();
    for (index, claim) in claims.iter().enumerate() {
        let Some(claim) = claim else { continue };
        for limits in &of_cluster.items {
            scopes.entry(Scope::Cluster(limits.name_any())).or_default().push(index);
        }
        if let Some(pool) = pool_name(claim) {
            scopes.entry(Scope::Pool(pool.to_owned())).or_default().push(index);
        }
    }
    Ok(scopes)
}

/// Reserves claims in their order; returns which are within the limit.
async fn reserve(cluster: &Cluster, scope: &Scope, wanted: &[(usize, &NodeClaim)]) -> Result<Vec<usize>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    for _ in 0..TRIES {
        match try_reserve(cluster, scope, wanted).await? {
            Some(granted) => return Ok(granted),
            None => tracing::debug!(scope = scope.name(), "another writer reserved meanwhile"),
        }
    }
    tracing::warn!(scope = scope.name(), "could not reserve: others wrote it again and again");
    Ok(Vec::new())
}

async fn try_reserve(cluster: &Cluster, scope: &Scope, wanted: &[(usize, &NodeClaim)]) -> Result<Option<Vec<usize>>> {
    let Tally { object, limit, mut taken, mut standing, written } = match tally(cluster, scope).await? {
        Headroom::Nothing => return Ok(Some(Vec::new())),
        Headroom::All => return Ok(Some(wanted.iter().map(|(index, _)| *index).collect())),
        Headroom::Some(tally) => *tally,
    };
    let now = cluster.now().0;
    let mut granted = Vec::new();
    for (index, claim) in wanted {
        // A claim of the same name from another writer counts for itself.
        if standing.contains_key(claim.name()) || written.contains(claim.name()) {
            continue;
        }
        let take = usage_of(claim);
        let mut together = taken.clone();
        together.add(&take);
        if together.within(&limit) {
            taken = together;
            granted.push(*index);
            standing.insert(claim.name().to_owned(), Reservation { take, at: now });
        }
    }
    if granted.is_empty() {
        return Ok(Some(granted));
    }
    Ok(write_reservations(&scope.api(cluster), scope, &object, &standing).await?.then_some(granted))
}

/// The usage of a limit.
struct Tally {
    /// The object with the limit, as read before the claims.
    object: DynamicObject,
    limit: Limit,
    /// The usage of all claims and of all reservations without a claim.
    taken: Usage,
    /// Reservations without a claim.
    standing: BTreeMap<String, Reservation>,
    /// Names of all claims.
    written: HashSet<String>,
}

/// The remainder of a limit.
enum Headroom {
    Nothing,
    All,
    Some(Box<Tally>),
}

/// Counts what there is: first what limits, then the claims.
async fn tally(cluster: &Cluster, scope: &Scope) -> Result<Headroom> {
    let object = match scope.api(cluster).get_opt(scope.name()).await.map_err(|source| scope.failed("read", source))? {
        Some(object) => object,
        // A pool that is gone buys nothing; limits that are gone limit nothing.
        None if matches!(scope, Scope::Pool(_)) => return Ok(Headroom::Nothing),
        None => return Ok(Headroom::All),
    };
    let limit = match limit_of(&object) {
        Ok(limit) => limit,
        Err(why) => {
            // An unreadable limit allows nothing: buying too little is safer than too much.
            tracing::warn!(kind = scope.kind(), name = scope.name(), why, "a limit cannot be read, nothing is bought");
            return Ok(Headroom::Nothing);
        }
    };
    if limit.is_none() {
        return Ok(Headroom::All);
    }
    let claims = list_claims(cluster, scope).await?;
    let now = cluster.now().0;
    let written: HashSet<String> = claims.iter().map(|claim| claim.name().to_owned()).collect();
    let mut standing = reservations(&object);
    standing.retain(|name, reservation| !reservation.is_lapsed(now) && !written.contains(name));
    let mut taken = Usage::default();
    claims.iter().filter(|claim| scope.counts(claim)).for_each(|claim| taken.add(&usage_of(claim)));
    standing.values().for_each(|reservation| taken.add(&reservation.take));
    Ok(Headroom::Some(Box::new(Tally { object, limit, taken, standing, written })))
}

/// Frees the reservations of claims that will not be written. If that fails, they lapse.
async fn free(cluster: &Cluster, scope: &Scope, names: &[&str]) {
    if names.is_empty() {
        return;
    }
    for _ in 0..TRIES {
        match try_free(cluster, scope, names).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return tracing::warn!(%error, cause = error.cause(), "reservations stand until they lapse"),
        }
    }
}

async fn try_free(cluster: &Cluster, scope: &Scope, names: &[&str]) -> Result<bool> {
    let api = scope.api(cluster);
    let Some(object) = api.get_opt(scope.name()).await.map_err(|source| scope.failed("read", source))? else {
        return Ok(true);
    };
    let mut standing = reservations(&object);
    let before = standing.len();
    standing.retain(|name, _| !names.contains(&name.as_str()));
    if standing.len() == before {
        return Ok(true);
    }
    write_reservations(&api, scope, &object, &standing).await
}

/// Writes reservations into the limiting object, unless it changed since it was read; returns whether they were
/// written.
async fn write_reservations(
    api: &Api<DynamicObject>,
    scope: &Scope,
    object: &DynamicObject,
    standing: &BTreeMap<String, Reservation>,
) -> Result<bool> {
    let text = serde_json::to_string(standing).unwrap_or_default();
    let patch = json!({"metadata": {
        "resourceVersion": object.metadata.resource_version,
        "annotations": {RESERVATIONS_ANNOTATION: text},
    }});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch_metadata(scope.name(), &params, &Patch::Merge(&patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(source) => Err(scope.failed("reserve in", source)),
    }
}

/// All claims from a consistent list, because a mirror may lag behind.
async fn list_claims(cluster: &Cluster, scope: &Scope) -> Result<Vec<NodeClaim>> {
    let api: Api<NodeClaim> = Api::all(cluster.urgent_client.clone());
    let mut params = ListParams::default();
    if let Scope::Pool(name) = scope {
        params = params.labels(&format!("{}={name}", labels::NODE_POOL));
    }
    let list = api.list(&params).await.map_err(|source| scope.failed("list the claims of", source))?;
    Ok(list.items)
}

fn limit_of(object: &DynamicObject) -> Result<Limit, String> {
    let spec = &object.data["spec"];
    let amounts = match &spec["limits"] {
        Value::Null => Amounts::default(),
        limits => serde_json::from_value(limits.clone()).map_err(|error| format!("spec.limits: {error}"))?,
    };
    let dollars = match &spec["dollarsPerHour"] {
        Value::Null => object.annotations().get(PRICE_LIMIT_ANNOTATION).cloned(),
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let nanos_hour = dollars.map(|text| money::parse(&text).map_err(|error| format!("`{text}`: {error}")));
    Ok(Limit { amounts, nanos_hour: nanos_hour.transpose()? })
}

fn reservations(object: &DynamicObject) -> BTreeMap<String, Reservation> {
    object.annotations().get(RESERVATIONS_ANNOTATION).map(|text| read_reservations(text)).unwrap_or_default()
}

fn read_reservations(text: &str) -> BTreeMap<String, Reservation> {
    serde_json::from_str(text).unwrap_or_default()
}

fn reserved_of(claim: &NodeClaim) -> Reserved {
    let text = claim.annotations().get(RESERVED_ANNOTATION);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Records in a claim when it was reserved.
fn note_reserved(claim: &mut NodeClaim, at: i64) {
    let reserved = Reserved { at: Some(at), ..reserved_of(claim) };
    let text = serde_json::to_string(&reserved).unwrap_or_default();
    claim.annotations_mut().insert(RESERVED_ANNOTATION.to_owned(), text);
}

/// The usage of a claim: the larger of its capacity and its reservation, for each resource.
fn usage_of(claim: &NodeClaim) -> Usage {
    let mut take = reserved_of(claim).take;
    for (name, amount) in claim.status.capacity.iter() {
        let known = take.resources.0.entry(name.to_owned()).or_default();
        *known = (*known).max(amount);
    }
    take.nodes = 1;
    take
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(cpu: i64, nanos_hour: u64) -> Usage {
        Usage { resources: Amounts([("cpu".to_owned(), cpu)].into()), nanos_hour, nodes: 1 }
    }

    #[test]
    fn limits_count_resources_nodes_and_money() {
        let mut taken = take(4000, 5);
        taken.add(&take(2000, 5));
        let within = |limits: &str, nanos_hour| {
            taken.within(&Limit { amounts: serde_json::from_str(limits).unwrap(), nanos_hour })
        };
        assert!(within(r#"{"cpu": "6", "nodes": 2, "memory": "1Gi"}"#, Some(10)));
        assert!(!within(r#"{"cpu": "5"}"#, None));
        assert!(!within(r#"{"nodes": 1}"#, None));
        assert!(!within("{}", Some(9)));
    }

    #[test]
    fn a_claim_counts_what_it_has_and_no_less_than_was_reserved() {
        let reserved = serde_json::to_string(&take(4000, 5)).unwrap();
        let claim: NodeClaim = serde_json::from_value(json!({
            "metadata": {"name": "a", "annotations": {RESERVED_ANNOTATION: reserved}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "millpond.dev", "kind": "NodeClass", "name": "x"}},
            "status": {"capacity": {"cpu": "2", "memory": "4Gi"}},
        }))
        .unwrap();
        let take = usage_of(&claim);
        assert_eq!((take.resources.get("cpu"), take.nanos_hour, take.nodes), (Some(4000), 5, 1));
        assert_eq!(take.resources.get("memory"), Some(4 << 30));
    }
}
