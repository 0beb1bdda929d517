//! Texts to what can be converted: objects, and lists of instance types.

use std::io::Write;
use std::path::Path;

use millpond_api::catalog::import::{self, Options};
use millpond_api::convert::Input;
use millpond_state::{Diagnostic, Reader};

use super::super::catalog::refused;
use super::super::input::values;
use crate::failure::Failure;

/// The number of bytes that are read to detect the kind of a file.
const LIMIT_HEAD: usize = 4096;

/// Reads everything; what is odd is said, what is wrong fails.
pub(super) fn read(
    texts: &[(String, Vec<u8>)],
    region: Option<&str>,
    messages: &mut impl Write,
) -> anyhow::Result<Input> {
    let mut reader = Reader::new();
    let mut objects = Vec::new();
    let mut catalogs = Vec::new();
    for (name, bytes) in texts {
        if !is_catalog(bytes) {
            reader.add(name, bytes);
            continue;
        }
        let stem = Path::new(name).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let options = Options { name: stem, region: region.unwrap_or_default().to_owned(), ..Options::default() };
        let imported = import::read(name, bytes.as_slice(), None, &options).map_err(refused)?;
        for warning in &imported.warnings {
            writeln!(messages, "warning: {warning}")?;
        }
        catalogs.push(imported.catalog);
    }
    let reading = reader.finish();
    // Unknown fields are in the report, but for those of pools, which keep them: a misspelt one is said here.
    let is_said =
        |warning: &&Diagnostic| warning.field.as_deref() == Some("kind") || warning.problem.contains("; is `");
    for warning in reading.warnings.iter().filter(is_said) {
        writeln!(messages, "warning: {warning}")?;
    }
    if !reading.errors.is_empty() {
        let lines: Vec<String> = reading.errors.iter().map(|error| format!("  {error}")).collect();
        let message = format!("what was read cannot be converted:\n{}", lines.join("\n"));
        let hint = Some("nothing was written; mend these and try again".to_owned());
        return Err(Failure { message, code: None, hint }.into());
    }
    for (name, bytes) in texts.iter().filter(|(_, bytes)| !is_catalog(bytes)) {
        objects.extend(values(name, bytes)?);
    }
    let mut input = Input::gather(objects).map_err(|error| {
        let hint = Some("nothing was written; mend it and try again".to_owned());
        anyhow::Error::new(error).context(Failure { message: "cannot convert".to_owned(), code: None, hint })
    })?;
    catalogs.into_iter().for_each(|catalog| input.add_catalog(catalog));
    Ok(input)
}

/// Whether a file is a list of instance types: KWOK's JSON, Scaling Advisor's prices, or a catalogue of Millpond's.
fn is_catalog(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(LIMIT_HEAD)]);
    let head = head.trim_start_matches('\u{feff}').trim_start();
    let listed = head.starts_with('[') && (head.contains("\"offerings\"") || head.contains("\"hourlyPrice\""));
    listed || head.starts_with("millpond-catalog")
}
