//! Chooses a node for each label of a request: a bipartite matching, so that a node with several labels is not wasted
//! on a label that another node could serve.

/// For each wanted label the index of a node that has it, each node at most once; `None` if there are not enough.
/// Earlier nodes are preferred.
pub(super) fn match_labels<L: AsRef<str>>(wanted: &[String], supply: &[&[L]]) -> Option<Vec<usize>> {
    if supply.len() < wanted.len() {
        return None;
    }
    let mut taken_by: Vec<Option<usize>> = vec![None; supply.len()];
    for index in 0..wanted.len() {
        let mut seen = vec![false; supply.len()];
        if !augment(index, wanted, supply, &mut taken_by, &mut seen) {
            return None;
        }
    }
    let mut matched = vec![0; wanted.len()];
    for (node, label) in taken_by.iter().enumerate() {
        if let Some(label) = label {
            matched[*label] = node;
        }
    }
    Some(matched)
}

fn augment<L: AsRef<str>>(
    label: usize,
    wanted: &[String],
    supply: &[&[L]],
    taken_by: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for node in 0..supply.len() {
        if seen[node] || !supply[node].iter().any(|has| has.as_ref() == wanted[label]) {
            continue;
        }
        seen[node] = true;
        let free = taken_by[node].is_none_or(|other| augment(other, wanted, supply, taken_by, seen));
        if free {
            taken_by[node] = Some(label);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_several_labels_are_not_wasted() {
        let wanted = |labels: &str| labels.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        let supply: [&[&str]; 3] = [&["a", "b"], &["a"], &["a", "b", "c"]];
        assert_eq!(match_labels(&wanted("a b"), &supply[..2]), Some(vec![1, 0]));
        assert_eq!(match_labels(&wanted("a b c"), &supply), Some(vec![1, 0, 2]));
        assert_eq!(match_labels(&wanted("b b c"), &supply), None);
        assert_eq!(match_labels(&wanted("a a a a"), &supply), None);
        assert_eq!(match_labels(&wanted("a"), &supply), Some(vec![0]));
    }
}
