//! `cargo xtask tidy`: the habits of the tree, as checks.
//!
//! A check looks at the tree and returns what is wrong, each with the file and
//! what to do about it; it never changes anything.

mod arrows;
mod claim_writes;
mod ignored;
mod modules;
mod pages;
mod reasons;
mod text;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cargo::{self, Metadata};
use crate::tree;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: PathBuf,
    /// 0 for the file as a whole.
    line: usize,
    what: String,
}

impl Finding {
    fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::line(path, 0, what)
    }

    fn line(path: impl Into<PathBuf>, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.what),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.what),
        }
    }
}

/// A text file of the tree.
struct SourceFile {
    /// Relative to the root.
    path: PathBuf,
    text: String,
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }
}

/// What the checks look at.
struct Tree {
    root: PathBuf,
    files: Vec<SourceFile>,
    metadata: Metadata,
}

impl Tree {
    fn read(root: PathBuf) -> Result<Self> {
        let mut files = Vec::new();
        for path in tree::files(&root)? {
            let bytes = std::fs::read(root.join(&path)).with_context(|| format!("read `{}`", path.display()))?;
            // Pictures are read as empty: pages may link to them.
            let text = String::from_utf8(bytes).unwrap_or_default();
            files.push(SourceFile { path, text });
        }
        Ok(Self { root, files, metadata: cargo::metadata()? })
    }

    fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.is_rust())
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_path_buf()
    }
}

/// Runs every check.
pub(crate) fn run() -> Result<()> {
    let tree = Tree::read(tree::root())?;
    let mut findings = Vec::new();
    findings.extend(arrows::check(&tree));
    findings.extend(claim_writes::check(&tree));
    findings.extend(ignored::check(&tree));
    findings.extend(modules::check(&tree));
    findings.extend(pages::check(&tree));
    findings.extend(reasons::check(&tree));
    findings.extend(text::check(&tree));
    findings.extend(words::check(&tree));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("the tree is not tidy: {} finding(s)", findings.len());
    }
    println!("the tree is tidy: {} files, {} crates", tree.files.len(), tree.metadata.packages.len());
    Ok(())
}
