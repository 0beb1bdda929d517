//! `docs/reference/convert.md`: the conversion table, every field of every dialect.

use std::fmt::Write as _;

use millpond_api::convert::Target;
use millpond_api::convert::table::{Source, Verdict};

use super::cell;

const HEAD: &str = "# Conversions

Where every field goes in `millpond export` and `millpond import`. Printed from the table that the conversions report by: what is *dropped* here, what a cell calls an exception, and what no row speaks of is told for every object, with its value.

*Millpond* is NodePools with a NodeClass and a catalogue (`import`, `export --to karpenter`), *Karpenter with KWOK* is `export --to karpenter --node-class kwok`. [The guide](../guides/convert.md) shows it at work.\n\n¹ With exceptions, which the report names where they happen.
";

/// The page.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    for source in Source::ALL {
        let titles: Vec<&str> = Target::ALL.iter().map(|target| target.title()).collect();
        _ = write!(page, "\n## {}\n\n| Field | {} |\n|---|---|---|---|---|\n", source.title(), titles.join(" | "));
        for row in source.rows() {
            let cells: Vec<String> = Target::ALL.iter().map(|target| verdict(row.to(*target))).collect();
            _ = writeln!(page, "| `{}` | {} |", row.field, cells.join(" | "));
        }
    }
    page
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Kept(place) => cell(place),
        Verdict::Mostly(place) => format!("{} ¹", cell(place)),
        Verdict::Dropped(reason) => format!("*dropped:* {}", cell(reason)),
        Verdict::Ignored => "–".to_owned(),
    }
}
