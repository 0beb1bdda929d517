//! One sentence for the step of a funnel that leaves no offering.

use std::collections::BTreeSet;

use super::funnel::{Inquiry, Step, Subject, by_text};
use super::words::{self, Round};
use crate::market::{Market, Usage};
use crate::model::{AffinityTerm, Limits, PODS, PoolId, Problem, ResourceId, Snapshot, Spread, TypeId};
use crate::pack::BitSet;
use crate::plan::Rule;
use crate::requirement::{Requirement, Requirements};
use crate::symbol::Symbol;
use crate::topology::Domain;

/// How the sentence about a pool that is not ready begins.
pub(super) const NOT_READY: &str = "not ready: ";

/// How alike two values must be for one to be named beside the other, out of one.
const ALIKE: f64 = 0.5;

/// Why nothing is left after a step, of what was there before it.
pub(super) fn sentence(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet, step: &Step) -> String {
    match (step.rule, step.subject) {
        (Rule::Pod, _) => inquiry.class().problem.as_ref().map(problem).unwrap_or_default(),
        (Rule::PoolNotReady, _) => not_ready(inquiry.snapshot, pool),
        (Rule::PoolRequirements, _) => own_requirements(inquiry.snapshot, pool),
        (Rule::Taints, Subject::Taint(taint)) => {
            format!("taint {} is not tolerated", words::taint(inquiry.snapshot, &taint))
        }
        (Rule::NodeAffinity, Subject::Label(key)) => label(inquiry, pool, before, key),
        (Rule::NodeAffinity, _) => alternatives(inquiry, pool, before),
        (Rule::Volumes, Subject::Volume(index)) => volume(inquiry, before, index),
        (Rule::Resources, Subject::Resource(resource)) => too_large(inquiry, before, resource),
        (Rule::Unavailable, _) => out_of_stock(inquiry, before),
        (Rule::MinValues, Subject::Label(key)) => min_values(inquiry, pool, before, key),
        (Rule::HostPorts, _) => ports(inquiry, before),
        (Rule::PodAffinity, _) => near(inquiry, pool, before),
        (Rule::PodAntiAffinity, _) => apart(inquiry, pool, before),
        (Rule::TopologySpread, _) => spread(inquiry, pool, before),
        (Rule::PoolLimit, subject) => {
            let limits = &inquiry.snapshot.pools[pool.index()].limits;
            let usage = &inquiry.usage[pool.index()];
            limit(inquiry.snapshot, inquiry.market, before, subject, limits, usage, "the pool's limit")
        }
        (Rule::ClusterLimit, subject) => {
            let usage = &inquiry.usage[inquiry.snapshot.pools.len()];
            let limits = &inquiry.snapshot.limits;
            limit(inquiry.snapshot, inquiry.market, before, subject, limits, usage, "the cluster's limit")
        }
        (rule, _) => format!("{rule} leaves nothing"),
    }
}

/// The pod's own problem, which no node can solve.
pub(super) fn problem(problem: &Problem) -> String {
    match problem {
        Problem::ClaimMissing(claim) => format!("PersistentVolumeClaim {claim} does not exist"),
        Problem::ClaimUnbound(claim) => {
            format!("PersistentVolumeClaim {claim} is not bound, and its class does not wait for the pod")
        }
        Problem::StorageClassMissing(class) => format!("StorageClass {class} does not exist"),
        Problem::ClaimInUse(claim) => {
            format!("PersistentVolumeClaim {claim} may be used by one pod at a time, and another uses it")
        }
        Problem::Contradiction(what) => format!("its requirements contradict each other: {what}"),
        Problem::Devices(claim) => {
            format!("it asks for devices by ResourceClaim {claim}, and no pool is known to have such devices")
        }
        Problem::OtherScheduler(name) => format!("scheduler {name} looks after it"),
    }
}

pub(super) fn not_ready(snapshot: &Snapshot, pool: PoolId) -> String {
    let pool = &snapshot.pools[pool.index()];
    match (&pool.not_ready, pool.replicas) {
        (Some(reason), _) => format!("{NOT_READY}{reason}"),
        (None, Some(replicas)) => {
            format!("has a fixed size of {}", words::count(usize::try_from(replicas).unwrap_or(usize::MAX), "node"))
        }
        (None, None) => "not ready".to_owned(),
    }
}

/// Why a pool has no offering for any pod.
pub(super) fn own_requirements(snapshot: &Snapshot, pool: PoolId) -> String {
    let of = &snapshot.pools[pool.index()];
    if of.types.is_empty() {
        return "its provider has no instance types".to_owned();
    }
    let mut left = of.types.clone();
    for (key, requirement) in by_text(snapshot, of.requirements.iter()) {
        let before = left.clone();
        left.retain(|of| type_allows(snapshot, *of, key, requirement));
        if left.is_empty() {
            let values = before.iter().filter_map(|of| snapshot.types[of.index()].labels.get(key));
            let found = texts(snapshot, values.flat_map(|values| values.named().0.iter().copied()));
            let wanted = words::wanted(snapshot, key, requirement);
            let types = words::count(before.len(), "type");
            let why = match &found[..] {
                [] => format!("none of {types} has the label"),
                found => {
                    let have = if before.len() == 1 { "has" } else { "have" };
                    format!("{types} {have} {}", words::list(found))
                }
            };
            let near = nearest_value(snapshot, requirement, &found);
            let near = near.map_or_else(String::new, |near| format!("; the nearest is {near}"));
            return format!("its own requirement {wanted} leaves no type: {why}{near}");
        }
    }
    let previous: Vec<&str> =
        left.iter().filter(|id| !of.names(**id)).map(|id| snapshot.text(snapshot.types[id.index()].name)).collect();
    if !left.is_empty() && previous.len() == left.len() {
        let types = words::list(&previous);
        return format!(
            "its own requirements leave only types of previous generations, and name none of them: {types}"
        );
    }
    format!("its own requirements together leave none of its {}", words::count(of.types.len(), "type"))
}

/// Of several values that there are, the one that is most like what is wanted: the next number, or the text that
/// differs least. None where there is no choice, or nothing is alike.
fn nearest_value<'f>(snapshot: &Snapshot, wanted: &Requirement, found: &'f [String]) -> Option<&'f str> {
    if found.len() < 2 {
        return None;
    }
    let (named, excluded) = wanted.named();
    let (least, most) = wanted.bounds();
    let texts: Vec<&str> = named.iter().filter(|_| !excluded).map(|value| snapshot.text(*value)).collect();
    let numbers: Vec<i64> = texts.iter().filter_map(|text| text.parse().ok()).chain(least).chain(most).collect();
    if !numbers.is_empty() {
        let distance = |value: &i64| numbers.iter().map(|number| number.abs_diff(*value)).min();
        let there = found.iter().filter_map(|text| Some((distance(&text.parse().ok()?)?, text)));
        return there.min().map(|(_, text)| text.as_str());
    }
    let likeness = |value: &str| {
        let each = texts.iter().map(|text| strsim::normalized_levenshtein(text, value));
        each.fold(0.0, f64::max)
    };
    let alike = found.iter().map(String::as_str).filter(|value| likeness(value) >= ALIKE);
    alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)).then_with(|| b.cmp(a)))
}

/// Whether a type can have a label as its pool wants it.
pub(super) fn type_allows(snapshot: &Snapshot, of: TypeId, key: Symbol, wanted: &Requirement) -> bool {
    match snapshot.types[of.index()].labels.get(key) {
        Some(offered) => offered.intersects(wanted, &snapshot.symbols),
        // The provider would have given the labels that it sets; any other label is the pool's to give.
        None => wanted.allows_missing() || key == snapshot.names.pool || !snapshot.well_known.contains(&key),
    }
}

/// The first of a pool's own requirements, by text, with which no type is left.
pub(super) fn first_impossible(snapshot: &Snapshot, pool: PoolId) -> Option<Symbol> {
    let of = &snapshot.pools[pool.index()];
    let mut left = of.types.clone();
    let mut requirements = by_text(snapshot, of.requirements.iter()).into_iter();
    let impossible = requirements.find(|(key, wanted)| {
        left.retain(|of| type_allows(snapshot, *of, *key, wanted));
        left.is_empty()
    });
    impossible.map(|(key, _)| key)
}

fn label(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet, key: Symbol) -> String {
    let requirement = inquiry.class().node_terms.first().and_then(|term| term.get(key));
    requirement.map_or_else(String::new, |requirement| label_sentence(inquiry, pool, before, key, requirement))
}

/// Why no offer before has the label as it is wanted.
fn label_sentence(
    inquiry: &Inquiry<'_>,
    pool: PoolId,
    before: &BitSet,
    key: Symbol,
    requirement: &Requirement,
) -> String {
    let snapshot = inquiry.snapshot;
    let wanted = words::wanted(snapshot, key, requirement);
    if [snapshot.names.hostname, snapshot.names.node_name].contains(&key) {
        return format!("{wanted} is the name of a node, which no new node gets");
    }
    if key == snapshot.names.pool {
        let named = texts(snapshot, requirement.named().0.iter().copied());
        let not = if requirement.named().1 { "any pool but" } else { "pool" };
        return format!("the pod asks for {not} {}", words::list(&named));
    }
    let found = texts(snapshot, before.iter().filter_map(|offer| inquiry.market.offer(offer).labels.get(key)));
    let elsewhere = |offer: usize| {
        let labels = &inquiry.market.offer(offer).labels;
        requirement.allows(labels.get(key), &snapshot.symbols)
    };
    let narrowed = inquiry.market.of_pool(pool).iter().any(elsewhere);
    if narrowed {
        return format!("no type has {wanted} together with {}", asked_before(inquiry, key).join(", "));
    }
    if let Some(allowed) = forbidden_by_pool(inquiry, pool, key, requirement) {
        return format!("{wanted} is not allowed by the pool: it has {}", words::wanted(snapshot, key, &allowed));
    }
    match (found.is_empty(), requirement.only_value()) {
        (true, _) => format!("{wanted} is asked for, and its nodes have no label {}", snapshot.text(key)),
        (false, Some(_)) => format!("{wanted} is none of {}", words::list(&found)),
        (false, None) => format!("{wanted} allows none of {}", words::list(&found)),
    }
}

/// The requirements of the same node affinity term that were applied before the one on this label.
fn asked_before(inquiry: &Inquiry<'_>, key: Symbol) -> Vec<String> {
    let snapshot = inquiry.snapshot;
    let term = inquiry.class().node_terms.iter().find(|term| term.get(key).is_some());
    let asked = term.map(|term| by_text(snapshot, term.iter())).unwrap_or_default();
    let before = asked.into_iter().take_while(|(asked, _)| *asked != key);
    before.map(|(key, requirement)| words::wanted(snapshot, key, requirement)).collect()
}

/// The pool's own requirement, if some of its provider's types have what is asked for and the pool does not allow it.
fn forbidden_by_pool(
    inquiry: &Inquiry<'_>,
    pool: PoolId,
    key: Symbol,
    requirement: &Requirement,
) -> Option<Requirement> {
    let snapshot = inquiry.snapshot;
    let of = &snapshot.pools[pool.index()];
    let allowed = of.requirements.get(key)?;
    let has = |kind: &TypeId| {
        let labels = &snapshot.types[kind.index()].labels;
        labels.get(key).is_some_and(|offered| offered.intersects(requirement, &snapshot.symbols))
    };
    (of.types.iter().any(has) && !allowed.intersects(requirement, &snapshot.symbols)).then(|| allowed.clone())
}

fn alternatives(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet) -> String {
    let terms = &inquiry.class().node_terms;
    if terms.is_empty() {
        return "its node affinity has no terms: no node will do".to_owned();
    }
    let (nearest, satisfied, left, key) = terms
        .iter()
        .enumerate()
        .filter_map(|(index, term)| furthest(inquiry, before, term).map(|(done, left, key)| (index, done, left, key)))
        .max_by_key(|(index, done, left, _)| (*done, left.len(), std::cmp::Reverse(*index)))
        .unwrap_or((0, 0, before.clone(), inquiry.snapshot.names.pool));
    let why = terms[nearest].get(key).map(|requirement| label_sentence(inquiry, pool, &left, key, requirement));
    let of = terms.len();
    let met = if satisfied == 0 { String::new() } else { format!(" (which meets {satisfied} more)") };
    format!("none of its {of} node affinity terms: the nearest{met} fails as {}", why.unwrap_or_default())
}

/// How many labels of a term hold before one leaves nothing, what was left then, and which label it is.
fn furthest(inquiry: &Inquiry<'_>, before: &BitSet, term: &Requirements) -> Option<(usize, BitSet, Symbol)> {
    let mut left = before.clone();
    for (done, (key, requirement)) in by_text(inquiry.snapshot, term.iter()).into_iter().enumerate() {
        let mut next = left.clone();
        next.intersect(&inquiry.market.satisfying(key, requirement, inquiry.snapshot));
        if next.is_empty() {
            return Some((done, left, key));
        }
        left = next;
    }
    None
}

fn volume(inquiry: &Inquiry<'_>, before: &BitSet, index: u32) -> String {
    let snapshot = inquiry.snapshot;
    let mut wanted = Vec::new();
    let mut keys = BTreeSet::new();
    for term in &inquiry.class().volume_terms[index as usize] {
        let parts = by_text(snapshot, term.iter());
        keys.extend(parts.iter().map(|(key, _)| *key));
        wanted.push(parts.iter().map(|(key, one)| words::wanted(snapshot, *key, one)).collect::<Vec<_>>().join(", "));
    }
    let mut found = Vec::new();
    for key in keys {
        let values = texts(snapshot, before.iter().filter_map(|offer| inquiry.market.offer(offer).labels.get(key)));
        if !values.is_empty() {
            found.push(format!("{} {}", words::label(snapshot, key), words::list(&values)));
        }
    }
    let found = if found.is_empty() { "no such label".to_owned() } else { found.join(", ") };
    format!("a volume is in {}; what is left has {found}", wanted.join(" or "))
}

fn too_large(inquiry: &Inquiry<'_>, before: &BitSet, resource: ResourceId) -> String {
    let snapshot = inquiry.snapshot;
    let asked = inquiry.class().requests.get(resource);
    let name = snapshot.resources.name(resource);
    let types = inquiry.types(before).len();
    let largest = before.iter().max_by_key(|&offer| inquiry.market.offer(offer).free.get(resource));
    let free = largest.map_or(0, |offer| inquiry.market.offer(offer).free.get(resource));
    let whole = before.iter().map(|offer| {
        let kind = inquiry.market.offer(offer).instance_type;
        snapshot.types[kind.index()].allocatable.get(resource)
    });
    let whole = whole.max().unwrap_or(0);
    if resource == PODS {
        return format!(
            "even the largest node may have {}, and daemons are all of them",
            words::count(usize::try_from(whole).unwrap_or(0), "pod")
        );
    }
    let amount = |value, round| words::amount(snapshot, resource, value, round);
    let asked_text = amount(asked, Round::Up);
    if whole <= 0 {
        return format!("{name} {asked_text} asked for, none of {} left has any", words::count(types, "type"));
    }
    let offers = match types {
        1 => format!("the one type left ({}) offers", type_names(inquiry, before)[0]),
        _ => format!("the largest of {} left offers", words::count(types, "type")),
    };
    let daemons = if whole >= asked {
        let taken = amount(whole.saturating_sub(free), Round::Up);
        format!(" once daemons have taken {taken}")
    } else {
        String::new()
    };
    format!("{name} {asked_text} asked for, {offers} {}{daemons}", amount(free, Round::Down))
}

fn type_names(inquiry: &Inquiry<'_>, offers: &BitSet) -> Vec<String> {
    let types = inquiry.types(offers).into_iter();
    texts(inquiry.snapshot, types.map(|of| inquiry.snapshot.types[of.index()].name))
}

fn out_of_stock(inquiry: &Inquiry<'_>, before: &BitSet) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut used_up = true;
    for index in before.iter() {
        let offer = inquiry.market.offer(index);
        let offering = &inquiry.snapshot.types[offer.instance_type.index()].offerings[offer.offering as usize];
        used_up &= offer.left.is_some() && offering.available;
        names.push(offer_name(inquiry, index));
    }
    names.sort();
    names.dedup();
    let what = if used_up { "used up" } else { "out of stock" };
    match &names[..] {
        [one] => format!("{one} is {what}"),
        [one, other] => format!("both offers that would do are {what}: {one}, {other}"),
        all => format!("all {} offers that would do are {what}: {}", all.len(), words::list(all)),
    }
}

/// `spot m5.large in us-east-1a`.
pub(super) fn offer_name(inquiry: &Inquiry<'_>, offer: usize) -> String {
    let snapshot = inquiry.snapshot;
    let offer = inquiry.market.offer(offer);
    let kind = &snapshot.types[offer.instance_type.index()];
    let offering = &kind.offerings[offer.offering as usize];
    let (how, zone) = (offering.capacity_type.name(), snapshot.text(offering.zone));
    format!("{how} {} in {zone}", snapshot.text(kind.name))
}

fn min_values(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet, key: Symbol) -> String {
    let requirement = inquiry.snapshot.pools[pool.index()].requirements.get(key);
    let wanted = requirement.and_then(Requirement::min_values).unwrap_or(0);
    let left = requirement.map_or(0, |requirement| inquiry.values_left(key, requirement, before).len());
    let label = words::label(inquiry.snapshot, key);
    format!("minValues of {label} wants {wanted} different values, what fits the pod leaves {left}")
}

fn ports(inquiry: &Inquiry<'_>, before: &BitSet) -> String {
    let taken = before.iter().find_map(|offer| inquiry.taken_port(offer));
    taken.map_or_else(
        || "ports of the host are taken".to_owned(),
        |port| format!("port {} of the host is taken by a daemon on every node", port.port),
    )
}

/// The values of a label among some offers that the class's rules between pods allow, and those that they do not.
fn domains(inquiry: &Inquiry<'_>, key: Symbol, offers: &BitSet) -> (Vec<String>, Vec<String>) {
    let mut known: BTreeSet<Symbol> = inquiry.market.values(key).map(|(value, _)| value).collect();
    known.extend(inquiry.snapshot.nodes.iter().filter_map(|node| node.labels.get(key)));
    let allowed = |value: &Symbol| inquiry.topology.check_domain(inquiry.class, key, Domain::value(*value)).is_ok();
    let allowed = texts(inquiry.snapshot, known.into_iter().filter(allowed));
    let offered =
        texts(inquiry.snapshot, offers.iter().filter_map(|offer| inquiry.market.offer(offer).labels.get(key)));
    (allowed, offered)
}

/// Offers of a pool that the rules between pods would allow and that are out of stock.
pub(super) fn sold_out(inquiry: &Inquiry<'_>, pool: PoolId, key: Symbol) -> BitSet {
    let sold_out = |&offer: &usize| {
        let value = inquiry.market.offer(offer).labels.get(key);
        let free = inquiry.market.offer(offer).free.first_lacking(&inquiry.class().requests).is_none();
        let allowed = |value| inquiry.topology.check_domain(inquiry.class, key, Domain::value(value)).is_ok();
        free && !inquiry.in_stock(offer) && value.is_some_and(allowed)
    };
    inquiry.market.of_pool(pool).iter().filter(sold_out).collect()
}

/// The values of a label that the rules allow, and those that offerings have.
fn only_where(inquiry: &Inquiry<'_>, pool: PoolId, key: Symbol, before: &BitSet) -> String {
    let (allowed, offered) = domains(inquiry, key, before);
    let label = words::label(inquiry.snapshot, key);
    let offered = match &offered[..] {
        [] => format!("nodes of the pool have no label {}", inquiry.snapshot.text(key)),
        some => format!("what is left is in {}", words::list(some)),
    };
    match &allowed[..] {
        [] => format!("no {label} will do; {offered}"),
        some if !sold_out(inquiry, pool, key).is_empty() => {
            format!("only {label} {} will do, which is out of stock; {offered}", words::list(some))
        }
        some => format!("only {label} {} will do, {offered}", words::list(some)),
    }
}

fn near(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet) -> String {
    let snapshot = inquiry.snapshot;
    let terms = &inquiry.class().affinity;
    let fails = |term: &&AffinityTerm| term_fails(inquiry, term.key, before, Rule::PodAffinity);
    let Some(term) = terms.iter().find(fails).or(terms.first()) else {
        return "pods that must be near are not".to_owned();
    };
    let pods = selected(snapshot, term.selector.as_ref());
    if term.key == snapshot.names.hostname {
        return format!("must share a node with {pods}, and a new node has none");
    }
    let label = words::label(snapshot, term.key);
    format!("must be in the same {label} as {pods}: {}", only_where(inquiry, pool, term.key, before))
}

/// Whether no offer's value of a label passes the rules on that label.
fn term_fails(inquiry: &Inquiry<'_>, key: Symbol, before: &BitSet, rule: Rule) -> bool {
    let mut values = before.iter().map(|offer| inquiry.market.offer(offer).labels.get(key));
    if key == inquiry.snapshot.names.hostname {
        let fresh = Domain(inquiry.place(before.iter().next().unwrap_or(0)).spot);
        return inquiry.topology.check_domain(inquiry.class, key, fresh) == Err(rule);
    }
    values.all(|value| match value {
        Some(value) => inquiry.topology.check_domain(inquiry.class, key, Domain::value(value)) == Err(rule),
        None => true,
    })
}

fn apart(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet) -> String {
    let snapshot = inquiry.snapshot;
    let terms = &inquiry.class().anti_affinity;
    let fails = |term: &&AffinityTerm| term_fails(inquiry, term.key, before, Rule::PodAntiAffinity);
    if let Some(term) = terms.iter().find(fails) {
        let pods = selected(snapshot, term.selector.as_ref());
        let label = words::label(snapshot, term.key);
        return format!("must not share a {label} with {pods}: {}", only_where(inquiry, pool, term.key, before));
    }
    let keys: BTreeSet<Symbol> = inquiry.topology.keys_of(inquiry.class).collect();
    let mut failing = keys.into_iter().filter(|key| term_fails(inquiry, *key, before, Rule::PodAntiAffinity));
    match failing.next() {
        Some(key) => {
            let label = words::label(snapshot, key);
            format!("other pods do not share a {label} with it: {}", only_where(inquiry, pool, key, before))
        }
        None => "pods that must not be near are everywhere that it could go".to_owned(),
    }
}

fn spread(inquiry: &Inquiry<'_>, pool: PoolId, before: &BitSet) -> String {
    let snapshot = inquiry.snapshot;
    let hard = || inquiry.class().spread.iter().filter(|spread| spread.hard);
    let lacking = |spread: &&Spread| {
        let has = |offer: usize| inquiry.market.offer(offer).labels.get(spread.key).is_some();
        spread.key != snapshot.names.hostname && !before.iter().any(has)
    };
    if let Some(spread) = hard().find(lacking) {
        let key = snapshot.text(spread.key);
        return format!("is spread over label {key}, which nodes of the pool do not have");
    }
    let fails = |spread: &&Spread| term_fails(inquiry, spread.key, before, Rule::TopologySpread);
    match hard().find(fails) {
        Some(spread) => {
            let label = words::label(snapshot, spread.key);
            let domains = only_where(inquiry, pool, spread.key, before);
            let wanted = spread.min_domains.map(|wanted| format!(" and minDomains {wanted}")).unwrap_or_default();
            format!("spread over {label} with maxSkew {}{wanted}: {domains}", spread.max_skew)
        }
        None => {
            let keys: Vec<&str> = hard().map(|spread| words::label(snapshot, spread.key)).collect();
            format!("spreads over {} together allow nothing that is left", keys.join(" and "))
        }
    }
}

/// `pods with app=db`.
pub(super) fn selected(snapshot: &Snapshot, selector: Option<&Requirements>) -> String {
    let Some(selector) = selector else { return "no pod at all".to_owned() };
    if selector.is_empty() {
        return "any pod".to_owned();
    }
    let parts = by_text(snapshot, selector.iter()).into_iter().map(|(key, one)| match one.only_value() {
        Some(value) => format!("{}={}", snapshot.text(key), snapshot.text(value)),
        None => format!("{} {}", snapshot.text(key), one.describe(&snapshot.symbols, words::SHOWN)),
    });
    format!("pods with {}", parts.collect::<Vec<_>>().join(", "))
}

pub(super) fn limit(
    snapshot: &Snapshot,
    market: &Market,
    before: &BitSet,
    subject: Subject,
    limits: &Limits,
    usage: &Usage,
    whose: &str,
) -> String {
    let capacity =
        |offer: usize, resource| snapshot.types[market.offer(offer).instance_type.index()].capacity.get(resource);
    match subject {
        Subject::Resource(resource) => {
            let limit = limits.resources.iter().find(|(of, _)| *of == resource).map_or(0, |(_, limit)| *limit);
            let smallest = before.iter().map(|offer| capacity(offer, resource)).min().unwrap_or(0);
            let amount = |value, round| words::amount(snapshot, resource, value, round);
            format!(
                "{whose} of {} {} leaves {}, the smallest node that would do has {}",
                snapshot.resources.name(resource),
                amount(limit, Round::Down),
                amount(limit.saturating_sub(usage.capacity.get(resource)).max(0), Round::Down),
                amount(smallest, Round::Up),
            )
        }
        Subject::Price => {
            let cheapest = before.iter().map(|offer| market.offer(offer).price).min().unwrap_or(0);
            let limit = u128::from(limits.price.unwrap_or(0));
            format!(
                "{whose} of {} leaves {}, the cheapest node that would do costs {}",
                words::price(limit),
                words::price(limit.saturating_sub(usage.price)),
                words::node_price(cheapest),
            )
        }
        _ => {
            let limit = limits.nodes.unwrap_or(0);
            format!("{whose} of {} is reached", words::count(usize::try_from(limit).unwrap_or(usize::MAX), "node"))
        }
    }
}

/// Texts of symbols, sorted, each once.
pub(super) fn texts(snapshot: &Snapshot, symbols: impl Iterator<Item = Symbol>) -> Vec<String> {
    let sorted: BTreeSet<&str> = symbols.map(|symbol| snapshot.text(symbol)).collect();
    sorted.into_iter().map(str::to_owned).collect()
}
