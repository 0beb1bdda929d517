//! `cargo xtask image`: a container image of `millpond` without Docker.
//!
//! The image has the binary, the libraries that it is linked with and the certificates of public authorities: no shell, no
//! package manager, not root. With `--nodepool` it has a shell and an SSH client, for launchers and builders of CI nodes.
//! `Containerfile` makes both where there is Docker or Podman.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use millpond_testkit::Image;

use crate::{cargo, tree};

/// All crates of the workspace have one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Arguments of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the image is called; `localhost/millpond`, or `localhost/millpond-nodepool`, with the version if nothing is said
    #[arg(long, value_name = "NAME:TAG")]
    name: Option<String>,
    /// Where the archive goes; the layout itself goes to a folder beside it
    #[arg(long, value_name = "FILE", default_value = "target/image/millpond.tar")]
    output: PathBuf,
    /// A binary that is there, in place of one that is built for release
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The image of launchers and builders of CI nodes: with a shell and an SSH client, and `nodepool` on the PATH
    #[arg(long)]
    nodepool: bool,
}

/// Builds the binary and writes the image.
pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = cargo::millpond(args.binary.as_deref(), true)?;
    let program = if args.nodepool { "millpond-nodepool" } else { "millpond" };
    let name = args.name.clone().unwrap_or_else(|| format!("localhost/{program}:{VERSION}"));
    let archive = tree::root().join(&args.output);
    let folder = archive.with_extension("layout");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove `{}`", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("create `{}`", folder.display()))?;
    let scratch = folder.with_extension("files");
    std::fs::create_dir_all(&scratch).with_context(|| format!("create `{}`", scratch.display()))?;
    let make = if args.nodepool { Image::of_nodepool } else { Image::of_program };
    let mut image = make(&name, &binary, &scratch)?;
    image.labels = vec![
        ("org.opencontainers.image.title".into(), program.into()),
        ("org.opencontainers.image.version".into(), VERSION.into()),
    ];
    image.write(&folder, &archive)?;
    std::fs::remove_dir_all(&scratch).context("remove the files of the image")?;
    let size = archive.metadata().context("look at the image")?.len();
    println!("{name}: {} ({} MB)", archive.display(), size.div_ceil(1_000_000));
    println!("  ctr --namespace k8s.io images import {}", archive.display());
    println!("  skopeo copy oci:{} docker://REGISTRY/{program}", folder.display());
    let what = if args.nodepool { "ci" } else { "controller" };
    println!("  millpond install {what} --image {name} | kubectl apply -f -");
    Ok(())
}
