//! Node pools of a Cluster API cluster: calls `millpond_controllers::capi::pools` and prints the result.

mod change;
#[cfg(test)]
mod tests;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use kube::Client;
use millpond_controllers::capi::client::{self, Connection};
use millpond_controllers::capi::pools::execute::{revision, wait_change};
use millpond_controllers::capi::pools::fetch::{PoolError, fetch};
use millpond_controllers::capi::pools::{Current, RejectedChange, Why, views};

pub(crate) use self::change::{DeleteArgs, ScaleArgs, SetArgs, delete, scale, set};
use super::get::Output;
use crate::commands::cluster::connect;
use crate::commands::input::ObjectArgs;
use crate::commands::list_output::{self, Grid, List as _, ListArgs, not_watched, structured};
use crate::commands::{as_json, as_yaml, print, print_more};
use crate::failure::{Code, Failure};

/// Which cluster is spoken to, and where in it the Cluster API cluster is.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The namespace of the cluster
    #[arg(short, long, value_name = "NAME", default_value = "default")]
    namespace: String,

    /// The kubeconfig of the management cluster
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A connection, and a runtime to speak over it.
struct Session {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
}

impl Session {
    fn open(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
        let connection = runtime.block_on(async {
            let client: Client = connect(kubeconfig, context).await?;
            client::connect(&client).await.context("cannot ask the cluster for its kinds")
        })?;
        let connection = connection.ok_or_else(|| Failure {
            message: "the cluster does not run Cluster API: it knows no MachineDeployments".to_owned(),
            code: Some(Code::NotFound),
            hint: Some("name the management cluster with `--kubeconfig` or `--context`".to_owned()),
        })?;
        Ok(Self { runtime, connection })
    }

    fn of(place: &PlaceArgs) -> anyhow::Result<Self> {
        Self::open(place.kubeconfig.as_deref(), place.context.as_deref())
    }

    fn fetch(&self, namespace: &str, cluster: &str) -> anyhow::Result<Current> {
        self.runtime.block_on(fetch(&self.connection, namespace, cluster)).map_err(failed)
    }
}

/// `pool list CLUSTER`.
pub(super) fn list(cluster: &str, namespace: &str, args: &ListArgs, out: &mut impl Write) -> anyhow::Result<()> {
    if !args.input.objects.is_live() {
        let hint = "leave `-f` out; pools of files are listed without CLUSTER";
        return Err(usage("node pools of a Cluster API cluster are those of a live one", hint).into());
    }
    let wide = args.output == list_output::Output::Wide;
    if args.watch && !wide && args.output != list_output::Output::Table {
        return Err(not_watched("`-w` prints tables", "leave `-o` out, or take `-o wide`"));
    }
    let (kubeconfig, context) = args.input.objects.cluster();
    let session = Session::open(kubeconfig, context)?;
    let mut before: Option<Grid> = None;
    loop {
        let seen = session.runtime.block_on(revision(&session.connection, namespace)).map_err(failed)?;
        let current = session.fetch(namespace, cluster)?;
        let pools = text::Pools { cluster, all: views(&current), now: args.input.objects.now() };
        if wide || args.output == list_output::Output::Table {
            let grid = pools.grid(wide);
            let text = before.as_ref().map_or_else(|| grid.page(), |before| grid.changes(before));
            if !args.watch {
                return print(out, &text);
            }
            if !print_more(out, &text)? {
                return Ok(());
            }
            before = Some(grid);
        } else {
            return print(out, &structured(&pools, args.output)?);
        }
        session.runtime.block_on(wait_change(&session.connection, namespace, &seen));
    }
}

/// `pool get CLUSTER NAME`.
pub(super) fn get(
    cluster: &str,
    name: &str,
    namespace: &str,
    objects: &ObjectArgs,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if !objects.is_live() {
        let hint = "leave `-f` out; a pool of files is shown without CLUSTER";
        return Err(usage("node pools of a Cluster API cluster are those of a live one", hint).into());
    }
    let (kubeconfig, context) = objects.cluster();
    let session = Session::open(kubeconfig, context)?;
    let current = session.fetch(namespace, cluster)?;
    let pool = millpond_controllers::capi::pools::view(&current, name).map_err(|rejection| refused(&[rejection]))?;
    let text = match output {
        Output::Table => text::page(&current, &pool, false),
        Output::Wide => text::page(&current, &pool, true),
        Output::Json => as_json(&pool.value())?,
        Output::Yaml => as_yaml(&pool.value())?,
    };
    print(out, &text)
}

fn usage(message: &str, hint: &str) -> Failure {
    Failure { message: message.to_owned(), code: Some(Code::Usage), hint: Some(hint.to_owned()) }
}

/// The failed operation, with its exit code and a hint.
fn failed(error: PoolError) -> anyhow::Error {
    let (code, hint) = match &error {
        PoolError::Refused(rejections) => return refused(rejections).into(),
        PoolError::NoCluster { hint, .. } => (Some(Code::NotFound), Some(hint.clone())),
        PoolError::Conflict(_) => (Some(Code::Conflict), Some("try again when it is quiet".to_owned())),
        PoolError::Differs(_) => {
            (Some(Code::Conflict), Some("look at it with `--dry-run`, and run the command again".to_owned()))
        }
        PoolError::Timeout(_) => {
            (Some(Code::Timeout), Some("the pool goes on leaving; look with `pool list`".to_owned()))
        }
        PoolError::LeftBehind { .. } => (None, Some("delete them with kubectl".to_owned())),
        PoolError::Api { source: kube::Error::Api(status), .. } => {
            let code = match status.code {
                401 | 403 => Some(Code::NotAllowed),
                404 => Some(Code::NotFound),
                409 => Some(Code::Conflict),
                422 => Some(Code::Usage),
                _ => None,
            };
            (code, None)
        }
        PoolError::Api { .. } => (None, None),
    };
    let message = error.to_string();
    match error {
        PoolError::Api { source, .. } => anyhow::Error::new(source).context(Failure { message, code, hint }),
        _ => Failure { message, code, hint }.into(),
    }
}

/// Refusals, one to a line if there are several.
fn refused(rejections: &[RejectedChange]) -> Failure {
    let code = match rejections.first().map(|rejection| rejection.why) {
        Some(Why::NotFound) => Code::NotFound,
        Some(Why::Limit) => Code::Conflict,
        _ => Code::Usage,
    };
    let message = match rejections {
        // A message about a missing object does not need the name of the argument.
        [one] if one.field == "NAME" => one.problem.clone(),
        [one] => one.to_string(),
        many => {
            let lines: Vec<String> = many.iter().map(|it| format!("\n  {it}")).collect();
            format!("the pool cannot be set so; nothing was written:{}", lines.concat())
        }
    };
    Failure { message, code: Some(code), hint: rejections.iter().find_map(|rejection| rejection.hint.clone()) }
}
