//! The reasons that Millpond writes into conditions, events and status fields: what each means, and what to do.
//!
//! [`SECTIONS`] is the only list. [`page`] renders it as `docs/reference/reasons.md`, and `cargo xtask tidy` compares
//! it with the code: a reason that the code writes has a row, and every row is written by the code. The rows are in
//! `nodes.rs` (NodePools, claims, nodes and their pods), `groups.rs` (Cluster API, advice) and `dialects.rs` (own
//! hosts, GPU jobs, CI nodes).
//!
//! Reasons of the parts that `millpond up` plays (kube-scheduler, kubelet, workload controllers, Cluster API) are not
//! listed: they are the originals'. A condition that is true has its own type as its reason unless a row says
//! otherwise.

mod dialects;
mod groups;
mod nodes;

use std::fmt::Write as _;

/// One reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// The reason as objects carry it, in CamelCase.
    pub name: &'static str,
    /// Where it is written.
    pub carriers: &'static [Carrier],
    /// What has happened or holds.
    pub meaning: &'static str,
    /// What to do; `None` where nothing is to be done.
    pub remedy: Option<&'static str>,
}

/// Where a reason is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// An event of type Normal about objects of these kinds.
    Event(&'static str),
    /// An event of type Warning about objects of these kinds.
    Warning(&'static str),
    /// A condition of objects of these kinds: `Launched=Unknown`.
    Condition(&'static str, &'static str),
    /// Another field of the status of these kinds.
    Field(&'static str, &'static str),
}

/// Reasons of one subject.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// The subject.
    pub title: &'static str,
    /// Its reasons, in the order of an object's life.
    pub reasons: &'static [Reason],
}

/// All reasons.
pub const SECTIONS: &[Section] = &[
    Section { title: "Pods that wait", reasons: nodes::PENDING_PODS },
    Section { title: "Launching nodes", reasons: nodes::LAUNCHES },
    Section { title: "Nodes that join", reasons: nodes::JOINS },
    Section { title: "Disruption", reasons: nodes::DISRUPTION },
    Section { title: "Termination", reasons: nodes::TERMINATION },
    Section { title: "NodePools, NodeClasses, NodeOverlays", reasons: nodes::POOLS },
    Section { title: "Capacity buffers", reasons: nodes::BUFFERS },
    Section { title: "Node groups of Cluster API", reasons: groups::NODE_GROUPS },
    Section { title: "Advice", reasons: groups::ADVICE },
    Section { title: "Own hosts: ByoHost", reasons: dialects::HOSTS },
    Section { title: "Own hosts: ByoMachine and its cluster", reasons: dialects::MACHINES },
    Section { title: "GPU jobs", reasons: dialects::GPU_JOBS },
    Section { title: "CI nodes", reasons: dialects::CI_NODES },
    Section { title: "Images of CI nodes", reasons: dialects::CI_IMAGES },
];

/// The rows of a reason: one for each subject that uses it.
pub fn find(name: &str) -> impl Iterator<Item = &'static Reason> {
    SECTIONS.iter().flat_map(|section| section.reasons).filter(move |reason| reason.name == name)
}

/// A reason that asks for nothing.
const fn info(name: &'static str, carriers: &'static [Carrier], meaning: &'static str) -> Reason {
    Reason { name, carriers, meaning, remedy: None }
}

/// A reason with something to do.
const fn act(name: &'static str, carriers: &'static [Carrier], meaning: &'static str, remedy: &'static str) -> Reason {
    Reason { name, carriers, meaning, remedy: Some(remedy) }
}

/// `docs/reference/reasons.md`.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for section in SECTIONS {
        let _ =
            write!(page, "\n## {}\n\n| Reason | Where | Meaning | What to do |\n|---|---|---|---|\n", section.title);
        for reason in section.reasons {
            let carriers: Vec<String> = reason.carriers.iter().map(Carrier::cell).collect();
            let remedy = reason.remedy.unwrap_or("nothing");
            let _ = writeln!(page, "| `{}` | {} | {} | {remedy} |", reason.name, carriers.join("; "), reason.meaning);
        }
    }
    page
}

/// The text of the page before its tables.
const HEAD: &str = "# Reasons

Made from `millpond-api` by `cargo xtask generate`.

Millpond writes these reasons into conditions and events, and no others. The message beside a reason has the names and \
amounts. A condition that holds has its own type as reason unless a row says otherwise. Stand-ins of `millpond up` \
(scheduler, kubelets, workload controllers, Cluster API) write the reasons of the original.

[Debugging](../guides/debugging.md) says where to look in which order.

```sh
kubectl get events -A --field-selector reportingComponent=millpond      # millpond-hosts for own hosts
kubectl describe nodeclaim NAME
```
";

impl Carrier {
    fn cell(&self) -> String {
        match self {
            Self::Event(kinds) => format!("event of {kinds}"),
            Self::Warning(kinds) => format!("warning of {kinds}"),
            Self::Condition(kinds, condition) => format!("{kinds}: `{condition}`"),
            Self::Field(kinds, field) => format!("{kinds}: `{field}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> impl Iterator<Item = &'static Reason> {
        SECTIONS.iter().flat_map(|section| section.reasons)
    }

    #[test]
    fn a_reason_is_what_the_api_takes() {
        for reason in all() {
            let name = reason.name;
            assert!(name.starts_with(|first: char| first.is_ascii_uppercase()), "{name}");
            assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric()), "{name}");
            assert!(!reason.carriers.is_empty(), "{name} is written nowhere");
        }
    }

    #[test]
    fn a_section_has_a_reason_once_and_in_full() {
        for section in SECTIONS {
            let mut names = BTreeSet::new();
            for reason in section.reasons {
                assert!(names.insert(reason.name), "{} has {} twice", section.title, reason.name);
                let texts = [Some(reason.meaning), reason.remedy];
                for text in texts.into_iter().flatten() {
                    assert!(!text.is_empty() && !text.ends_with('.') && !text.contains(['|', '\n']), "{}", reason.name);
                }
            }
        }
    }

    /// A warning or a condition that is false asks for something, or its text says that it passes.
    #[test]
    fn a_warning_says_what_to_do() {
        for reason in all() {
            let warns = reason.carriers.iter().any(|carrier| matches!(carrier, Carrier::Warning(_)));
            assert!(!warns || reason.remedy.is_some(), "{} warns and says nothing to do", reason.name);
        }
    }

    #[test]
    fn a_reason_is_found_in_every_section_that_has_it() {
        let sections = find("LaunchFailed").count();
        assert_eq!(sections, 2, "claims and CI nodes");
        assert_eq!(find("Nonsense").count(), 0);
    }

    #[test]
    fn the_page_has_every_reason() {
        let page = page();
        assert!(all().all(|reason| page.contains(&format!("| `{}` |", reason.name))));
    }
}
