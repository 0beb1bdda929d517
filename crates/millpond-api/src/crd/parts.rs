//! Parts that several kinds have: quantities, durations, requirements, taints, conditions.

use super::schema::{Schema, int32, int64, list, map, object, string};

/// The form of a name with a domain before it, if wanted: keys of labels, taints and resources.
pub(super) const KEY: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
/// The form of the value of a label.
pub(super) const VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// The form of a quantity that is not negative. As many digits as 64 bits hold with the suffix: what cannot be counted
/// is refused here, where its author reads it.
const QUANTITY: &str = r"^\+?(([0-9]{1,18}(\.[0-9]*)?|\.[0-9]+)([num]|[eE]-[0-9]+)?|([0-9]{1,15}(\.[0-9]*)?|\.[0-9]+)(k|Ki)|([0-9]{1,12}(\.[0-9]*)?|\.[0-9]+)Mi?|([0-9]{1,9}(\.[0-9]*)?|\.[0-9]+)Gi?|([0-9]{1,6}(\.[0-9]*)?|\.[0-9]+)Ti?|([0-9]{1,3}(\.[0-9]*)?|\.[0-9]+)Pi?|([0-7](\.[0-9]*)?|\.[0-9]+)Ei?|([0-9]{1,3}(\.[0-9]*)?|\.[0-9]+)[eE]\+?1[0-5]|([0-9]{1,9}(\.[0-9]*)?|\.[0-9]+)[eE]\+?[0-9])$";
/// The longest key: a domain of 253 letters, a slash and a name of 63.
const LIMIT_KEY: u32 = 317;
/// The longest value of a label.
const LIMIT_VALUE: u32 = 63;
/// The longest text of a duration or a quantity; nothing sensible comes near.
const LIMIT_NUMBER: u32 = 64;

/// A quantity such as `500m`, `4` or `16Gi`.
pub(super) fn quantity(description: &str) -> Schema {
    Schema::int_or_string(description).pattern(QUANTITY).at_least(0).length(0, LIMIT_NUMBER)
}

/// Resources with their quantities.
pub(super) fn quantities(description: &str) -> Schema {
    map(description, quantity(""))
}

/// A duration such as `1h30m`.
pub(super) fn duration(description: &str) -> Schema {
    string(description).pattern("^([0-9]{1,9}(s|m|h))+$").length(0, LIMIT_NUMBER)
}

/// A duration such as `1h30m`, or `Never`.
pub(super) fn duration_or_never(description: &str) -> Schema {
    string(description).pattern("^(([0-9]{1,9}(s|m|h))+|Never)$").length(0, LIMIT_NUMBER)
}

/// A time.
pub(super) fn time(description: &str) -> Schema {
    string(description).format("date-time")
}

/// Dollars such as `0.096`.
pub(super) fn dollars(description: &str) -> Schema {
    string(description).pattern(r"^[0-9]{1,7}(\.[0-9]{1,9})?$")
}

/// The class of the nodes. On a pool, group and kind never change.
pub(super) fn node_class_ref(changes: bool) -> Schema {
    let schema = object("The node class that says where nodes come from")
        .required("group", string("API group of the node class, such as millpond.dev").not_empty().pattern("^[^/]*$"))
        .required("kind", string("Kind of the node class, such as NodeClass").not_empty())
        .required("name", string("Name of the node class").not_empty());
    if changes {
        return schema;
    }
    schema
        .rule_at(".group", "self.group == oldSelf.group", "nodeClassRef.group is immutable: make another pool")
        .rule_at(".kind", "self.kind == oldSelf.kind", "nodeClassRef.kind is immutable: make another pool")
}

/// The kind of object that a requirement is part of, which decides the keys and fields that it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// A pool: it may not name the pool label, and may have `minValues`.
    Pool,
    /// A claim: as a pool, and it may name its pool.
    Claim,
    /// An overlay: it may name pools, and has no `minValues`.
    Overlay,
}

/// Requirements on labels of nodes.
pub(super) fn requirements(description: &str, speaker: Speaker) -> Schema {
    let numbers = "'Gt', 'Lt', 'Gte', 'Lte'";
    let key = string("The label").length(0, LIMIT_KEY).pattern(KEY);
    let key = key
        .rule(
            "self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] || \
             !self.split('/')[0].endsWith('karpenter.sh')",
            "label domain \"karpenter.sh\" is restricted: only karpenter.sh/capacity-type may be spoken of",
        )
        .rule("self != 'kubernetes.io/hostname'", "label \"kubernetes.io/hostname\" is restricted");
    let key = match speaker {
        Speaker::Pool => key.rule("self != 'karpenter.sh/nodepool'", "label \"karpenter.sh/nodepool\" is restricted"),
        Speaker::Claim | Speaker::Overlay => key,
    };
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];
    let value = string("").length(0, LIMIT_VALUE).pattern(VALUE);
    let requirement = object("A requirement on one label")
        .required("key", key)
        .required("operator", string("How the label is compared with the values").one_of(&operators))
        .field("values", list("What the label is compared with: one whole number for Gt, Lt, Gte and Lte", value))
        .rule_at(
            ".values",
            "self.operator != 'In' || (has(self.values) && self.values.size() > 0)",
            "requirements with operator 'In' must have a value defined",
        )
        .rule_at(
            ".values",
            &format!(
                "!(self.operator in [{numbers}]) || (has(self.values) && self.values.size() == 1 && \
                 self.values[0].matches('^[0-9]{{1,18}}$'))"
            ),
            "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
        );
    let requirement = match speaker {
        Speaker::Overlay => requirement.rule_at(
            ".values",
            "self.operator != 'NotIn' || (has(self.values) && self.values.size() > 0)",
            "requirements with operator 'NotIn' must have a value defined",
        ),
        Speaker::Pool | Speaker::Claim => requirement
            .field(
                "minValues",
                int64("How many different values the instance types of one launch must leave open")
                    .at_least(1)
                    .at_most(50),
            )
            .rule_at(
                ".minValues",
                "self.operator != 'In' || !has(self.minValues) || !has(self.values) || \
                 self.values.size() >= self.minValues",
                "requirements with 'minValues' must have at least that many values specified in the 'values' field",
            ),
    };
    let requirements = list(description, requirement).max_items(100);
    if speaker == Speaker::Pool { without_contradictions(requirements) } else { requirements }
}

/// Rejects requirements on one label that contradict each other, as far as that is possible without comparing long
/// lists.
fn without_contradictions(requirements: Schema) -> Schema {
    requirements
        .rule(
            "self.all(a, a.operator != 'DoesNotExist' || !self.exists(b, b.key == a.key && \
             b.operator in ['In', 'Exists', 'Gt', 'Lt', 'Gte', 'Lte']))",
            "requirements contradict each other: a label that must not exist is given a value by another requirement",
        )
        .rule(
            "self.all(a, !(a.operator in ['Gt', 'Gte']) || self.all(b, b.key != a.key || \
             !(b.operator in ['Lt', 'Lte']) || int(a.values[0]) + (a.operator == 'Gt' ? 1 : 0) <= \
             int(b.values[0]) - (b.operator == 'Lt' ? 1 : 0)))",
            "requirements contradict each other: no number lies between the bounds of a label",
        )
}

/// Taints of nodes.
pub(super) fn taints(description: &str) -> Schema {
    let taint = object("Keeps away pods that do not tolerate it")
        .required("key", string("Name of the taint").length(1, LIMIT_KEY).pattern(KEY))
        .field("value", string("Value of the taint").length(0, LIMIT_VALUE).pattern(VALUE))
        .required(
            "effect",
            string("What happens to pods that do not tolerate it").one_of(&[
                "NoSchedule",
                "PreferNoSchedule",
                "NoExecute",
            ]),
        )
        .field("timeAdded", time("When it was added"));
    list(description, taint)
}

/// `status.conditions`; `reason` and `message` may be missing where Karpenter leaves them out.
pub(super) fn conditions(strict: bool) -> Schema {
    let kind = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    let reason = string("Why, in one word");
    let message = string("Why, in a sentence").length(0, 32768);
    let condition = object("A condition of the object")
        .required("type", string("What").length(0, 316).pattern(kind))
        .required("status", string("True, False or Unknown").one_of(&["True", "False", "Unknown"]))
        .required("lastTransitionTime", time("When the status last changed"))
        .field("observedGeneration", int64("The metadata.generation that the condition is about").at_least(0));
    let condition = if strict {
        condition
            .required("reason", reason.length(1, 1024).pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))
            .required("message", message)
    } else {
        condition
            .field("reason", reason.length(0, 1024).pattern("^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"))
            .field("message", message)
    };
    list("Conditions of the object; Ready summarizes the others", condition).keyed_by("type")
}

/// Names an object in another namespace, or in the same.
pub(super) fn namespaced_name(description: &str) -> Schema {
    object(description)
        .required("name", string("Its name").not_empty())
        .field("namespace", string("Its namespace; the same one without it"))
}

/// A number that is not negative.
pub(super) fn count(description: &str) -> Schema {
    int32(description).at_least(0)
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::QUANTITY;
    use crate::quantity;

    #[test]
    fn every_quantity_that_the_schema_takes_can_be_counted() {
        let form = Regex::new(QUANTITY).unwrap();
        let digits = [
            "0",
            "7",
            "9.5",
            ".5",
            "12",
            "999",
            "1000",
            "999999",
            "1000000",
            "999999999999",
            "999999999999999999",
            "9999999999999999999",
        ];
        let suffixes = [
            "", "n", "u", "m", "k", "Ki", "M", "Mi", "G", "Gi", "T", "Ti", "P", "Pi", "E", "Ei", "e3", "E15", "e16",
            "e+2", "e-3", "E30",
        ];
        let mut taken = 0;
        for (digits, suffix) in digits.iter().flat_map(|digits| suffixes.map(|suffix| (digits, suffix))) {
            let text = format!("{digits}{suffix}");
            if form.is_match(&text) {
                let counted = quantity::parse_units(&text).ok().and_then(|units| i64::try_from(units).ok());
                assert!(counted.is_some(), "{text}");
                taken += 1;
            }
        }
        assert!(taken > 100, "{taken}");
        for text in
            ["0", "4", "1.5", ".5", "500m", "100n", "16Gi", "1000000Mi", "2Pi", "7Ei", "1e3", "1E9", "5e-1", "+3"]
        {
            assert!(form.is_match(text), "{text}");
        }
        for text in ["", "1E30", "9Ei", "1x", "-1", "1e", "1KiB", "1ki", "+"] {
            assert!(!form.is_match(text), "{text}");
        }
    }
}
