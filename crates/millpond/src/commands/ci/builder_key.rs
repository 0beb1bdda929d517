//! `millpond ci get builder-ssh-key`: the public key by which the image builder logs in to other machines.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{CommonArgs, source};
use crate::commands::{cluster, print};
use crate::failure::Failure;

/// The Secret with the key pair, and its key with the public half.
const SECRET: &str = "nodepool-builder-ssh-key";
const PUBLIC: &str = "pub";

#[derive(Debug, Subcommand)]
pub(crate) enum GetCommand {
    /// Print the public SSH key of the image builder
    #[command(after_help = "Examples:
  millpond ci get builder-ssh-key
  millpond ci get builder-ssh-key --pubkey builder.pub")]
    BuilderSshKey {
        /// Write it to this file instead
        #[arg(long, value_name = "FILE")]
        pubkey: Option<PathBuf>,
    },
}

pub(super) fn run(
    args: &CommonArgs,
    command: &GetCommand,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let GetCommand::BuilderSshKey { pubkey } = command;
    let namespace = args.namespace();
    let key = source::runtime()?.block_on(async {
        let client = cluster::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
        let secret = Api::<Secret>::namespaced(client, namespace).get_opt(SECRET).await;
        anyhow::Ok(secret.with_context(|| format!("cannot read the Secret `{namespace}/{SECRET}`"))?)
    })?;
    let key = key.and_then(|secret| secret.data?.remove(PUBLIC)).ok_or_else(|| Failure {
        message: format!("Secret {SECRET} not found in namespace {namespace}"),
        // As the original.
        code: None,
        hint: Some("`-n NAMESPACE` names the namespace of the builder, which makes the key".to_owned()),
    })?;
    let text = String::from_utf8_lossy(&key.0);
    match pubkey {
        None => print(out, &format!("{}\n", text.trim_end()))?,
        Some(path) => {
            millpond_apiserver::pki::write_secret(path, &text)
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            writeln!(messages, "File {} saved", path.display())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
