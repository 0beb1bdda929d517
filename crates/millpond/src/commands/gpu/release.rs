//! `millpond gpu release`.

use std::io::Write;

use anyhow::Context as _;
use clap::Args;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use millpond_gpu::kinds::GPUInfo;
use serde_json::json;

use super::ClusterArgs;
use super::read::runtime;
use crate::commands::print;
use crate::failure::{Code, Failure};

/// The label of GPUInfos that `millpond gpu place` makes.
pub(super) const PLACED: &str = "millpond.dev/placed";

/// Arguments of `gpu release`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Name of the reservation: that of its GPUInfo
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the reservation
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A GPUInfo that `place` made is deleted; any other one loses its reservation and stays.
pub(super) fn run(args: &ReleaseArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let name = &args.name;
    runtime()?.block_on(async {
        let client = args.cluster.connect().await?;
        let api = Api::<GPUInfo>::namespaced(client, &args.namespace);
        let found = api.get_opt(name).await.with_context(|| format!("cannot read the GPUInfo `{name}`"))?;
        let Some(info) = found.filter(|info| info.spec.reserve.is_some()) else {
            let message = format!("there is no reservation `{name}` in namespace `{}`", args.namespace);
            let hint = Some("`kubectl get gpuinfo -A` lists all, `-n` names another namespace".to_owned());
            return Err(Failure { message, code: Some(Code::NotFound), hint }.into());
        };
        if info.labels().contains_key(PLACED) {
            api.delete(name, &DeleteParams::default()).await.map(drop)
        } else {
            let patch = Patch::Merge(json!({"spec": {"reserve": null}}));
            api.patch(name, &PatchParams::default(), &patch).await.map(drop)
        }
        .with_context(|| format!("cannot release `{name}`"))
    })?;
    print(out, &format!("reservation/{name} released\n"))
}
