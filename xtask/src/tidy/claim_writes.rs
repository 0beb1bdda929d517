//! Decisions about claims are carried out in turn (ADR 17): only the module of the turn writes or deletes claims.
//!
//! Everything else passes a `Turn` along, which the compiler checks.

use super::{Finding, SourceFile, Tree};

/// The crate of the controllers.
const CONTROLLERS: &str = "crates/millpond-controllers/src";
/// The one module that writes and deletes claims.
const TURN: &str = "crates/millpond-controllers/src/turn.rs";
/// How the copy of all claims is written to.
const WRITES: [&str; 2] = ["claims.create(", "claims.delete("];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    if !file.path.starts_with(CONTROLLERS) || file.path.ends_with(TURN) {
        return Vec::new();
    }
    let lines = (1..).zip(file.text.lines());
    let found = lines.filter(|(_, line)| WRITES.iter().any(|write| line.contains(write)));
    let what = "writes a claim past the turn: use `limits::create`, `Turn::delete` or `turn::delete_after`";
    found.map(|(number, _)| Finding::line(&file.path, number, what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_written_by_the_turn_alone() {
        let check = |path: &str, text: &str| {
            check_file(&SourceFile { path: path.into(), text: text.into() })
                .iter()
                .map(|found| found.line)
                .collect::<Vec<_>>()
        };
        let text = "let a = 1;\nself.context.cluster.claims.delete(&claim, None).await\n";
        assert_eq!(check("crates/millpond-controllers/src/repair.rs", text), [2]);
        assert_eq!(check("crates/millpond-controllers/src/turn.rs", text), [0; 0]);
        assert_eq!(check("crates/millpond-hosts/src/release.rs", text), [0; 0]);
        assert_eq!(check("crates/millpond-controllers/src/repair.rs", "turn.delete(cluster, &claim).await"), [0; 0]);
    }
}
