//! The hash by which a pool notices that its nodes are no longer what its template says.
//!
//! What counts: labels and annotations of the template, taints, startup taints, the node class, `expireAfter` and
//! `terminationGracePeriod`. What does not: requirements (nodes that still meet them stay), and everything outside
//! the template. What is not said does not count at all, so that new fields leave old hashes as they are; the order
//! of taints does not matter; `expireAfter: Never` is the same as none.
//!
//! The number is Karpenter's own (`v3`), so that its tests and tools, which compute it anew, find it. It comes from a
//! library that walks Go structs: the name of each struct and field is hashed with FNV-1, name and value of a field
//! are hashed together, and the fields are combined by exclusive or, hashed once more after each. The names below are
//! therefore those of the Go types, in their order.

use std::collections::BTreeMap;

use super::{NodeClassRef, NodePool, Taint};
use crate::duration::NillableDuration;

const NANOS_SECOND: i64 = 1_000_000_000;

impl NodePool {
    /// The hash of the template, for [`super::HASH_ANNOTATION`].
    pub fn hash(&self) -> String {
        let template = &self.spec.template;
        let (meta, spec) = (&template.metadata, &template.spec);
        let meta = Struct::new("ObjectMeta")
            .field("Labels", map(&meta.labels))
            .field("Annotations", map(&meta.annotations))
            .unless(meta.labels.is_empty() && meta.annotations.is_empty());
        let period = spec.termination_grace_period.map(|period| duration("Duration", period.0, period.0 != 0));
        // A missing time is a nil pointer there, which counts; a grace period of zero is a plain zero.
        let age = spec.expire_after.and_then(NillableDuration::seconds);
        let age = age.map(|seconds| duration("NillableDuration", seconds, true));
        let spec = Struct::new("NodeClaimTemplateSpec")
            .field("Taints", taints(&spec.taints))
            .field("StartupTaints", taints(&spec.startup_taints))
            .field("NodeClassRef", Some(class(&spec.node_class_ref)))
            .field("TerminationGracePeriod", period)
            .field("ExpireAfter", age);
        let hash = Struct::new("NodeClaimTemplate").field("ObjectMeta", meta).field("Spec", Some(spec.hash));
        hash.hash.to_string()
    }
}

fn class(class: &NodeClassRef) -> u64 {
    Struct::new("NodeClassReference")
        .field("Kind", text(&class.kind))
        .field("Name", text(&class.name))
        .field("Group", text(&class.group))
        .hash
}

fn taints(taints: &[Taint]) -> Option<u64> {
    let hashes = taints.iter().map(|taint| {
        Struct::new("Taint")
            .field("Key", text(&taint.key))
            .field("Value", text(&taint.value))
            .field("Effect", text(&format!("{:?}", taint.effect)))
            .hash
    });
    (!taints.is_empty()).then(|| hashes.fold(0, |sum, hash| sum ^ hash))
}

fn duration(name: &str, seconds: i64, counts: bool) -> u64 {
    let nanos = seconds.saturating_mul(NANOS_SECOND);
    Struct::new(name).field("Duration", counts.then(|| fnv(&nanos.to_le_bytes()))).hash
}

fn map(map: &BTreeMap<String, String>) -> Option<u64> {
    let pairs = map.iter().map(|(key, value)| pair(fnv(key.as_bytes()), fnv(value.as_bytes())));
    (!map.is_empty()).then(|| finish(pairs.fold(0, |sum, hash| sum ^ hash)))
}

fn text(text: &str) -> Option<u64> {
    (!text.is_empty()).then(|| fnv(text.as_bytes()))
}

/// A struct while it is hashed, field by field.
struct Struct {
    hash: u64,
}

impl Struct {
    fn new(name: &str) -> Self {
        Self { hash: fnv(name.as_bytes()) }
    }

    /// Adds a field; one that is not said leaves no trace.
    fn field(self, name: &str, value: Option<u64>) -> Self {
        let Some(value) = value else { return self };
        Self { hash: finish(self.hash ^ pair(fnv(name.as_bytes()), value)) }
    }

    fn unless(self, empty: bool) -> Option<u64> {
        (!empty).then_some(self.hash)
    }
}

/// Two hashes in their order.
fn pair(first: u64, second: u64) -> u64 {
    fnv(&[first.to_le_bytes(), second.to_le_bytes()].concat())
}

/// Makes a sum of hashes one that cannot cancel out with others.
fn finish(sum: u64) -> u64 {
    fnv(&sum.to_le_bytes())
}

/// FNV-1 with 64 bits.
fn fnv(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use crate::karpenter::NodePool;

    fn hash(template: &str) -> String {
        let text = format!("metadata: {{name: test}}\nspec: {{template: {template}}}");
        serde_saphyr::from_str::<NodePool>(&text).unwrap().hash()
    }

    /// The numbers are what Karpenter 1.14.1 says of the same pools.
    #[test]
    fn karpenter_finds_the_same_number() {
        let class = "requirements: [], nodeClassRef: {group: millpond.dev, kind: NodeClass, name: default}";
        let cases = [
            (format!("{{spec: {{{class}}}}}"), "18121199940828435247"),
            (format!("{{spec: {{expireAfter: 720h, {class}}}}}"), "17627231589090799112"),
            (format!("{{spec: {{expireAfter: Never, {class}}}}}"), "18121199940828435247"),
            (format!("{{spec: {{expireAfter: 0s, terminationGracePeriod: 0s, {class}}}}}"), "11218052736495443766"),
        ];
        for (template, expected) in cases {
            assert_eq!(hash(&template), expected, "{template}");
        }
        let labels = "{metadata: {labels: {x: '1'}}, spec: {nodeClassRef: {group: g.io, kind: Kind, name: some}}}";
        assert_eq!(hash(labels), "9510986320130394825");
        assert_eq!(hash(FULL), "14700214980463536921");
    }

    const FULL: &str = "{
        metadata: {labels: {team: web, tier: ''}, annotations: {example.com/owner: me, b: c}},
        spec: {
          requirements: [],
          taints: [{key: a, value: b, effect: NoSchedule}, {key: gpu, effect: NoExecute}],
          startupTaints: [{key: net, effect: NoSchedule}],
          expireAfter: 1h30m, terminationGracePeriod: 48h,
          nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}";

    #[test]
    fn what_counts_and_what_does_not() {
        let same = [
            ("requirements: []", "requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}]"),
            (
                "[{key: a, value: b, effect: NoSchedule}, {key: gpu, effect: NoExecute}]",
                "[{key: gpu, effect: NoExecute}, {key: a, value: b, effect: NoSchedule}]",
            ),
            ("1h30m", "90m"),
        ];
        for (from, to) in same {
            assert!(FULL.contains(from));
            assert_eq!(hash(&FULL.replace(from, to)), hash(FULL), "{to}");
        }
        let different = [
            ("team: web", "team: shop"),
            ("tier: ''", "tier: one"),
            ("b: c", "b: d"),
            ("key: a, value: b", "key: a, value: c"),
            ("key: a, value: b, effect: NoSchedule", "key: a, value: b, effect: PreferNoSchedule"),
            ("{key: net, effect: NoSchedule}", ""),
            ("1h30m", "1h31m"),
            ("1h30m", "Never"),
            ("48h", "49h"),
            ("name: default", "name: other"),
        ];
        for (from, to) in different {
            assert!(FULL.contains(from));
            assert_ne!(hash(&FULL.replacen(from, to, 1)), hash(FULL), "{to}");
        }
    }
}
