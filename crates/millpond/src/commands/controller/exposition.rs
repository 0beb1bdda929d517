//! Prometheus' older text format (0.0.4), made from OpenMetrics.
//!
//! In OpenMetrics the family of a counter has a name of its own, and its samples end with `_total`. In the older format the
//! family has the name of its samples: with OpenMetrics' names Prometheus would take the samples for ones without a type.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Families in the older format; their samples are the same in both.
pub(super) fn prometheus(openmetrics: &str) -> String {
    let types = openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let types: HashMap<&str, &str> = types.collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        // Writing to a text does not fail.
        let _ = match described(line) {
            None if line.starts_with('#') => Ok(()),
            None => writeln!(text, "{line}"),
            Some((keyword, family, what)) => {
                let (suffix, kind) = older(types.get(family).copied().unwrap_or_default());
                writeln!(text, "# {keyword} {family}{suffix} {}", if keyword == "TYPE" { kind } else { what })
            }
        };
    }
    text
}

/// The keyword, the family and the rest of a line that both formats have.
fn described(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let (family, what) = rest.split_once(' ').unwrap_or((rest, ""));
    matches!(keyword, "HELP" | "TYPE").then_some((keyword, family, what))
}

/// What the samples of a type end with, and what the type is called in the older format.
fn older(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "stateset" => ("", "gauge"),
        "unknown" => ("", "untyped"),
        other => ("", other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_counters_are_named_as_their_samples() {
        let openmetrics = "# HELP nodes Nodes by state.\n# TYPE nodes gauge\nnodes{state=\"ready\"} 3\n\
                           # HELP writes Writes that were sent.\n# TYPE writes counter\n# UNIT writes bytes\n\
                           writes_total{verb=\"patch\"} 7\n# HELP build Version.\n# TYPE build info\n\
                           build_info{version=\"1\"} 1\n# TYPE seconds histogram\nseconds_bucket{le=\"+Inf\"} 2\n# EOF\n";
        insta::assert_snapshot!(prometheus(openmetrics), @r#"
        # HELP nodes Nodes by state.
        # TYPE nodes gauge
        nodes{state="ready"} 3
        # HELP writes_total Writes that were sent.
        # TYPE writes_total counter
        writes_total{verb="patch"} 7
        # HELP build_info Version.
        # TYPE build_info gauge
        build_info{version="1"} 1
        # TYPE seconds histogram
        seconds_bucket{le="+Inf"} 2
        "#);
    }
}
