//! `cargo xtask generate`: files of the tree that are made from others.
//!
//! A generator is a function from the tree's root to the files that it makes, as values; this module alone writes them,
//! or with `--check` compares them with what is committed. To add one: a module beside this one, and a line in
//! [`GENERATORS`].

mod crds;
mod reference;
mod types;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::tree;

/// Every generator, by the name that `--only` takes.
const GENERATORS: &[(&str, Generator)] =
    &[("types", types::generate), ("crds", crds::generate), ("reference", reference::generate)];

/// Generates files from the tree at the given root. Must not write them itself, and must give the same bytes for the
/// same tree.
type Generator = fn(&Path) -> Result<Vec<GeneratedFile>>;

/// One file that a generator made.
pub(crate) struct GeneratedFile {
    /// Its path, relative to the root of the tree.
    pub(crate) path: PathBuf,
    /// Its contents.
    pub(crate) contents: Vec<u8>,
}

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail if a file differs from what would be written
    #[arg(long)]
    pub(crate) check: bool,
    /// Run only the generator of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Runs the generators, then writes or compares.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = tree::root();
    if let Some(only) = &args.only
        && !GENERATORS.iter().any(|(name, _)| name == only)
    {
        let names: Vec<_> = GENERATORS.iter().map(|(name, _)| *name).collect();
        bail!("no generator is named `{only}`; there are: {}", names.join(", "));
    }
    let mut stale = Vec::new();
    for (name, generator) in GENERATORS {
        if args.only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        for file in generator(&root).with_context(|| format!("generator `{name}`"))? {
            if settle(&root, &file, args.check)? {
                stale.push(file.path);
            }
        }
    }
    report(&stale, args.check)
}

/// Runs all generators, and only compares.
pub(crate) fn check() -> Result<()> {
    run(&Args { check: true, only: None })
}

/// Brings one file up to date, or only compares; returns whether it differed.
fn settle(root: &Path, file: &GeneratedFile, check: bool) -> Result<bool> {
    let path = root.join(&file.path);
    let differs = std::fs::read(&path).map_or(true, |present| present != file.contents);
    if differs && !check {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("create `{}`", parent.display()))?;
        }
        std::fs::write(&path, &file.contents).with_context(|| format!("write `{}`", path.display()))?;
    }
    Ok(differs)
}

fn report(stale: &[PathBuf], check: bool) -> Result<()> {
    if stale.is_empty() {
        println!("generated files are up to date");
        return Ok(());
    }
    for path in stale {
        println!("{} {}", if check { "differs:" } else { "wrote" }, path.display());
    }
    if check {
        bail!("{} generated file(s) are out of date\nhint: run `cargo xtask generate` and commit", stale.len());
    }
    Ok(())
}
