//! Catalogues from files of others: CSV price lists, the JSON of Karpenter's
//! KWOK provider, the prices of Gardener's Scaling Advisor. A mistake is answered with file, line, column, field and text;
//! nothing is guessed. Memory is bounded: a file has a size limit, and so has
//! everything in it.

mod advisor_file;
pub(super) mod build;
mod csv_file;
mod kwok_file;

use std::fmt;
use std::io::Read;

use super::{Catalog, Provider, text};

/// The largest file that is read: EC2 of two regions in KWOK's JSON is a third of it.
pub const LIMIT_BYTES: u64 = 32 << 20;
/// The most types of a catalogue: more than all clouds have together.
pub const LIMIT_TYPES: usize = 50_000;
/// The most offerings of a catalogue.
pub const LIMIT_OFFERINGS: usize = 1_000_000;
/// The most characters of a file that a message repeats.
const LIMIT_QUOTED: usize = 60;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// The JSON of Karpenter's KWOK provider.
    KwokJson,
    /// The price list of Gardener's Scaling Advisor.
    AdvisorJson,
    /// Millpond's own.
    Millpond,
}

/// Options for what a foreign file does not contain.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The catalogue's name.
    pub name: String,
    /// Whose machines; [`Provider::Generic`] for CSV and [`Provider::Kwok`] for JSON when not said.
    pub provider: Option<Provider>,
    /// The region; of a price list with several, the one that is taken.
    pub region: String,
    /// Zones of every type that names none.
    pub zones: Vec<String>,
    /// Thousandths of on-demand that spot is estimated at.
    pub spot_per_mille: Option<u32>,
    /// Where the facts come from.
    pub source: String,
}

/// The result of an import, with warnings about parts that were not understood but do no harm.
#[derive(Debug)]
pub struct Imported {
    /// The catalogue.
    pub catalog: Catalog,
    /// One line each.
    pub warnings: Vec<String>,
}

/// A mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// The field, where there is one.
    pub field: Option<String>,
    /// The offending text.
    pub text: String,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file, self.line, self.column)?;
        if let Some(field) = &self.field {
            write!(f, "field `{field}`: ")?;
        }
        if !self.text.is_empty() {
            let quoted: String = self.text.chars().take(LIMIT_QUOTED).flat_map(char::escape_debug).collect();
            let more = if self.text.chars().nth(LIMIT_QUOTED).is_some() { "…" } else { "" };
            write!(f, "`{quoted}{more}` ")?;
        }
        f.write_str(&self.problem)
    }
}

/// A line of a file, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileLine<'a> {
    pub(super) file: &'a str,
    pub(super) line: u64,
}

impl FileLine<'_> {
    pub(super) fn at(self, column: u64, text: &str, problem: impl Into<String>) -> FileError {
        self.error(column, None, text, problem.into())
    }

    pub(super) fn field(self, column: u64, field: &str, text: &str, problem: impl Into<String>) -> FileError {
        self.error(column, Some(field.to_owned()), text, problem.into())
    }

    fn error(self, column: u64, field: Option<String>, text: &str, problem: String) -> FileError {
        // A hostile line is as long as the file; the message keeps a piece of it.
        let text = text.chars().take(LIMIT_QUOTED + 1).collect();
        FileError { file: self.file.to_owned(), line: self.line, column, field, text, problem }
    }
}

/// Reading failed: the file could not be read, or holds a mistake.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It could not be read.
    #[error("cannot read `{file}`")]
    Read {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is larger than [`LIMIT_BYTES`].
    #[error("`{file}` is larger than {} MiB", LIMIT_BYTES >> 20)]
    TooLarge {
        /// The file.
        file: String,
    },
    /// It holds a mistake.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Reads a file in the given format, or in the one that it looks like.
pub fn read(file: &str, reader: impl Read, format: Option<Format>, options: &Options) -> Result<Imported, ImportError> {
    let mut bytes = Vec::new();
    let limited = reader.take(LIMIT_BYTES + 1).read_to_end(&mut bytes);
    limited.map_err(|source| ImportError::Read { file: file.to_owned(), source })?;
    if bytes.len() as u64 > LIMIT_BYTES {
        return Err(ImportError::TooLarge { file: file.to_owned() });
    }
    let text = utf8(file, &bytes)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(match format.unwrap_or_else(|| detect(text)) {
        Format::Csv => csv_file::read(file, text, options)?,
        Format::KwokJson => kwok_file::read(file, text, options)?,
        Format::AdvisorJson => advisor_file::read(file, text, options)?,
        Format::Millpond => Imported { catalog: text::parse(file, text)?, warnings: Vec::new() },
    })
}

fn detect(text: &str) -> Format {
    match text.trim_start() {
        text if advisor_file::is_one(text) => Format::AdvisorJson,
        text if text.starts_with(['[', '{']) => Format::KwokJson,
        text if text.starts_with("millpond-catalog") => Format::Millpond,
        _ => Format::Csv,
    }
}

fn utf8<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, FileError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
        FileLine { file, line }.at((before.len() - start) as u64 + 1, "", "not UTF-8 text")
    })
}
