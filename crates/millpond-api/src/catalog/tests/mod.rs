//! The catalogue from outside: facts, files, overlays, queries.

mod facts;
mod files;
mod overlays;
mod queries;

use super::import::{self, Format, Imported, Options};

fn read(file: &str, text: &str) -> Result<Imported, String> {
    read_as(file, text, None, &Options { name: "own".into(), ..Options::default() })
}

fn read_as(file: &str, text: &str, format: Option<Format>, options: &Options) -> Result<Imported, String> {
    import::read(file, text.as_bytes(), format, options).map_err(|error| error.to_string())
}
