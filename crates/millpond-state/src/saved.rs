//! A planner's snapshot as a text, from which the same plan is made again.
//!
//! Objects would not do: what was out of stock, which groups backed off and where earlier plans put pods is in the
//! snapshot alone. The text is for the planner of the same version; a digest finds what was changed by hand, since places in
//! tables are not checked one by one.

use millpond_plan::model::Snapshot;
use millpond_plan::plan::Settings;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The kind of the document.
pub const KIND: &str = "DecisionSnapshot";
const API_VERSION: &str = "millpond.dev/v1alpha1";
/// Rises with every change of the snapshot's types.
const FORMAT: u32 = 1;
/// The kind stands within the first bytes.
pub const HEAD: usize = 256;

/// A text cannot be planned with.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It is something else, or was cut off.
    #[error("this is no snapshot of a decision")]
    Malformed(#[from] serde_json::Error),
    /// Another version of Millpond wrote it.
    #[error("the snapshot has format {0}, and this version of Millpond reads format {FORMAT}")]
    Format(u32),
    /// It is not what was written.
    #[error("the snapshot was changed after it was saved")]
    Changed,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'d> {
    api_version: String,
    kind: String,
    format: u32,
    settings: Settings,
    digest: String,
    #[serde(borrow)]
    snapshot: &'d RawValue,
}

/// Writes a snapshot, and the settings that it was planned with.
pub fn save(snapshot: &Snapshot, settings: &Settings) -> serde_json::Result<String> {
    let text = serde_json::value::to_raw_value(snapshot)?;
    serde_json::to_string(&Document {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        format: FORMAT,
        settings: *settings,
        digest: digest(text.get()),
        snapshot: &text,
    })
}

/// Whether a text is such a document, rather than objects.
pub fn is_saved(text: &[u8]) -> bool {
    // The head is what `save` writes first.
    let head = String::from_utf8_lossy(&text[..text.len().min(HEAD)]);
    head.contains(&format!("\"kind\":\"{KIND}\""))
}

/// Reads what [`save`] wrote.
pub fn load(text: &str) -> Result<(Snapshot, Settings), SavedError> {
    let document: Document<'_> = serde_json::from_str(text)?;
    if document.format != FORMAT {
        return Err(SavedError::Format(document.format));
    }
    if document.digest != digest(document.snapshot.get()) {
        return Err(SavedError::Changed);
    }
    Ok((serde_json::from_str(document.snapshot.get())?, document.settings))
}

/// FNV-1a: finds accidents, and is not meant to stop anything else.
fn digest(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use millpond_plan::plan::Settings;
    use millpond_plan::testing::{Recipe, random_snapshot};

    use super::*;

    #[test]
    fn what_was_saved_gives_the_same_plan() {
        for seed in 0..40 {
            let snapshot =
                if seed % 2 == 0 { random_snapshot(seed, 40) } else { Recipe::everything(30).snapshot(seed) };
            for consolidate in [false, true] {
                let settings = Settings { consolidate, ..Settings::default() };
                let text = save(&snapshot, &settings).unwrap();
                assert!(is_saved(text.as_bytes()));
                let (read, with) = load(&text).unwrap();
                assert_eq!(with, settings);
                let (before, after) = (millpond_plan::plan(&snapshot, &settings), millpond_plan::plan(&read, &with));
                assert_eq!(format!("{before:?}"), format!("{after:?}"), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_changed_text_is_refused() {
        let text = save(&random_snapshot(1, 10), &Settings::default()).unwrap();
        let at = text.rfind("\"now\":").unwrap() + 6;
        let mut changed = text.clone();
        changed.replace_range(at..=at, if &text[at..=at] == "1" { "2" } else { "1" });
        assert!(matches!(load(&changed), Err(SavedError::Changed)));
        assert!(matches!(load(&text.replace("\"format\":1", "\"format\":7")), Err(SavedError::Format(7))));
        assert!(matches!(load(&text[..text.len() / 2]), Err(SavedError::Malformed(_))));
        assert!(!is_saved(br#"{"apiVersion":"v1","kind":"List","items":[]}"#));
    }
}
