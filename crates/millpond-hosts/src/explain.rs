//! Why a machine has its host or none, in one line.

use std::collections::BTreeMap;

use millpond_plan::matching::{Explanation, Rejection};

/// The name of a reason, from the closed list.
pub fn reason(rejection: &Rejection) -> String {
    let text = rejection.to_string();
    text.split(':').next().unwrap_or_default().to_owned()
}

/// Counts the reasons of all hosts, and says what would help.
pub fn summary(explanation: &Explanation) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (_, rejection) in &explanation.rejected {
        // A mismatch is reported with the requirement, which is the same for all hosts of a machine.
        let name = match rejection {
            Rejection::LabelMismatch { wanted, .. } => format!("LabelMismatch ({wanted})"),
            other => reason(other),
        };
        *counts.entry(name).or_default() += 1;
    }
    if counts.is_empty() {
        return "no host is registered".to_owned();
    }
    let reasons: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let total = explanation.rejected.len();
    let hosts = if total == 1 { "1 host" } else { &format!("{total} hosts") };
    let mut text = format!("no free host matches; {hosts}: {}", reasons.join(", "));
    if let Some(fix) = &explanation.fix {
        text.push_str(&format!("; `{fix}` would give one"));
    }
    text
}

#[cfg(test)]
mod tests {
    use millpond_plan::matching::{Availability, Fix};

    use super::*;

    #[test]
    fn a_summary_counts_reasons_and_says_what_helps() {
        let mismatch =
            || Rejection::LabelMismatch { key: "purpose".into(), wanted: "purpose=gpu".into(), present: None };
        let attached = Rejection::Unavailable(Availability::Attached { machine: "m".into() });
        let explanation = Explanation {
            rejected: vec![("node10".into(), mismatch()), ("node11".into(), attached), ("node12".into(), mismatch())],
            fix: Some(Fix { host: "node10".into(), labels: vec!["purpose=gpu".into()] }),
            ..Explanation::default()
        };
        assert_eq!(
            summary(&explanation),
            "no free host matches; 3 hosts: 1 Attached, 2 LabelMismatch (purpose=gpu); \
             `kubectl label byohost node10 purpose=gpu --overwrite` would give one"
        );
        assert_eq!(summary(&Explanation::default()), "no host is registered");
    }
}
