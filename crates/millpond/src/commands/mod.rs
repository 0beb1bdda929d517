//! One module per command.

use std::io::Write;

pub(crate) mod bench;
pub(crate) mod catalog;
pub(crate) mod completion;
pub(crate) mod explain;
pub(crate) mod plan;
pub(crate) mod reference;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod up;
pub(crate) mod version;

/// Writes what was asked for. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(out: &mut impl Write, text: &str) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to stdout"))
        }
        _ => Ok(()),
    }
}
