//! The verbs that list.

use std::io::Write;

use anyhow::Context as _;
use millpond_ci::builder::cloud::ProviderClouds;
use millpond_ci::records::{info, list_aliens, list_builds, list_nodes, list_requests, list_status, list_uploads};
use millpond_ci::view::{Listing, NODE_FIELDS};
use serde_json::json;

use super::source::Store;
use super::{CommonArgs, Output, Verb};
use crate::commands::{as_json, as_yaml, print};
use crate::failure::Failure;

/// A list of the original.
#[derive(Debug, Clone, Copy)]
pub(super) enum List<'v> {
    Nodes { detail: bool },
    Requests,
    Uploads,
    Builds,
    Status,
    Aliens(Option<&'v str>),
    Info(&'v str),
}

/// The list of a command; `None` for a command that changes something.
pub(super) fn of(verb: &Verb) -> Option<List<'_>> {
    Some(match verb {
        Verb::List { detail } => List::Nodes { detail: *detail },
        Verb::RequestList => List::Requests,
        Verb::ImageList => List::Uploads,
        Verb::DibImageList => List::Builds,
        Verb::ImageStatus => List::Status,
        Verb::AlienImageList { provider } => List::Aliens(provider.as_deref()),
        Verb::Info { provider } => List::Info(provider),
        _ => return None,
    })
}

pub(super) async fn run(
    args: &CommonArgs,
    store: &Store,
    list: List<'_>,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    let source = &*store.source;
    let (listing, fields) = match list {
        List::Nodes { detail } => (list_nodes(source, None, now()).await?, Some(NODE_FIELDS).filter(|_| !detail)),
        List::Requests => (list_requests(source).await?, None),
        List::Uploads => (list_uploads(source).await?, None),
        List::Builds => (list_builds(source).await?, None),
        List::Status => (list_status(source).await?, None),
        List::Aliens(provider) => (aliens(store, provider, messages).await?, None),
        List::Info(provider) => return show_info(args, store, provider, out).await,
    };
    print_listing(args, &listing, fields, out)
}

/// One node, as `delete` and `hold` show it.
pub(super) async fn one_node(args: &CommonArgs, store: &Store, id: &str, out: &mut impl Write) -> anyhow::Result<()> {
    print_listing(args, &list_nodes(&*store.source, Some(id), now()).await?, Some(NODE_FIELDS), out)
}

fn print_listing(
    args: &CommonArgs,
    listing: &Listing,
    fields: Option<&[&str]>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let text = match args.output {
        Output::Table => listing.table(fields, now()) + "\n",
        Output::Json => as_json(listing)?,
        Output::Yaml => as_yaml(listing)?,
        Output::Name => {
            let rows = serde_json::to_value(listing).context("write names")?;
            let name =
                |row: &serde_json::Value| row["id"].as_str().or(row["image"].as_str()).map(|it| format!("{it}\n"));
            rows.as_array().into_iter().flatten().filter_map(name).collect()
        }
    };
    print(out, &text)
}

/// Images of clouds that carry the mark of a build and belong to none.
async fn aliens(store: &Store, provider: Option<&str>, messages: &mut impl Write) -> anyhow::Result<Listing> {
    let config = store.config.as_ref().ok_or_else(|| Failure {
        message: "no configuration names providers".to_owned(),
        code: None,
        hint: Some("`-c FILE` names the configuration".to_owned()),
    })?;
    if let Some(name) = provider.filter(|name| config.providers.iter().all(|known| known.name != **name)) {
        writeln!(messages, "warning: the configuration has no provider `{name}`")?;
    }
    let (listing, problems) = list_aliens(&*store.source, config, &ProviderClouds::new(), provider).await?;
    for problem in problems {
        writeln!(messages, "warning: {problem}")?;
    }
    Ok(listing)
}

async fn show_info(args: &CommonArgs, store: &Store, provider: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let (images, nodes) = info(&*store.source, provider).await?;
    let both = json!({"images": images, "nodes": nodes});
    let text = match args.output {
        Output::Json => as_json(&both)?,
        Output::Yaml => as_yaml(&both)?,
        Output::Table | Output::Name => format!(
            "ZooKeeper data for provider {provider}\n\nImage data:\n{}\n\nNodes:\n{}\n",
            images.table(None, now()),
            nodes.table(None, now())
        ),
    };
    print(out, &text)
}

/// Seconds since 1970.
fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}
