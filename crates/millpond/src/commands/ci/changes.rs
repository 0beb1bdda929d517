//! The verbs that change something. What cannot be found is said and is no failure, as with the original.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use millpond_ci::model::NodeState;
use millpond_ci::records::Change;
use serde_json::{Map, Value};

use super::source::Store;
use super::{CommonArgs, Verb, lists};
use crate::commands::print;
use crate::failure::{Code, Failure};

/// How long `delete --now` waits.
const GONE_WITHIN: Duration = Duration::from_mins(10);
/// How often `delete --now` looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) async fn run(
    args: &CommonArgs,
    store: &Store,
    verb: &Verb,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    let source = &store.source;
    match verb {
        Verb::Delete { id, now } => {
            if set_state(store, id, NodeState::Deleting, out).await? {
                if *now {
                    until_gone(store, id).await?;
                }
                lists::one_node(args, store, id, out).await?;
            }
            Ok(())
        }
        Verb::Hold { id } => {
            if set_state(store, id, NodeState::Hold, out).await? {
                lists::one_node(args, store, id, out).await?;
            }
            Ok(())
        }
        Verb::ImageBuild { image } => {
            check_buildable(store, image)?;
            Ok(source.request_build(image).await?)
        }
        Verb::ImagePause { image } => Ok(source.set_paused(image, true).await?),
        Verb::ImageUnpause { image } => Ok(source.set_paused(image, false).await?),
        Verb::DibImageDelete { id } => {
            let (image, build) = id.rsplit_once('-').ok_or_else(|| Failure {
                message: format!("`{id}` is not the id of a build"),
                code: Some(Code::Usage),
                hint: Some("`dib-image-list` shows ids: IMAGE-BUILD".to_owned()),
            })?;
            let done = source.delete_build(image, build).await?;
            tell(done, &format!("Build {id} not found"), out)
        }
        Verb::ImageDelete { provider, image, upload_id, build_id } => {
            let done = source.delete_upload(image, build_id, provider, upload_id).await?;
            tell(done, "Image upload not found", out)
        }
        Verb::Erase { provider, force } => erase(store, provider, *force, out, messages).await,
        Verb::ExportImageData { path } => export(store, path).await,
        Verb::ImportImageData { path } => import(store, path).await,
        _ => Ok(()),
    }
}

/// Whether the node was found.
async fn set_state(store: &Store, id: &str, state: NodeState, out: &mut impl Write) -> anyhow::Result<bool> {
    match store.source.set_node_state(id, state).await? {
        Change::Done => Ok(true),
        Change::NotFound => {
            print(out, &format!("Node id {id} not found\n"))?;
            Ok(false)
        }
        Change::Refused(why) => Err(Failure { message: why, code: Some(Code::Conflict), hint: None }.into()),
    }
}

fn tell(done: Change, not_found: &str, out: &mut impl Write) -> anyhow::Result<()> {
    match done {
        Change::Done => Ok(()),
        Change::NotFound => print(out, &format!("{not_found}\n")),
        Change::Refused(why) => print(out, &format!("{why}\n")),
    }
}

async fn until_gone(store: &Store, id: &str) -> anyhow::Result<()> {
    let gone = async {
        while store.source.nodes().await?.iter().any(|node| node.id == id) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    match tokio::time::timeout(GONE_WITHIN, gone).await {
        Ok(gone) => gone,
        Err(_) => Err(Failure {
            message: format!("node {id} is not gone after {} s", GONE_WITHIN.as_secs()),
            code: Some(Code::Timeout),
            hint: Some("a launcher with its provider deletes it; see `millpond ci list`".to_owned()),
        }
        .into()),
    }
}

fn check_buildable(store: &Store, image: &str) -> anyhow::Result<()> {
    let known = store.config.as_ref().and_then(|config| config.diskimages.get(image));
    let failure = match known {
        None => format!("Trying to build a non disk-image-builder image: {image}"),
        Some(known) if known.pause => format!("Skipping build request for image {image}; paused"),
        Some(_) => return Ok(()),
    };
    Err(Failure { message: failure, code: None, hint: None }.into())
}

async fn erase(
    store: &Store,
    provider: &str,
    force: bool,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<()> {
    if !force {
        print(out, "\nWARNING! This action is not reversible!\n")?;
        write!(messages, "Erase ZooKeeper data for provider {provider}? [N/y] ")?;
        messages.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("read the answer")?;
        if answer.trim().to_lowercase() != "y" {
            return print(out, "Aborting. No data erased.\n");
        }
    }
    print(out, &format!("Erasing build data for {provider}...\n"))?;
    store.source.erase_builds(provider).await?;
    print(out, &format!("Erasing node data for {provider}...\n"))?;
    Ok(store.source.erase_nodes(provider).await?)
}

async fn export(store: &Store, path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let data = store.source.export_images().await?;
    let text = serde_json::to_string(&data).context("write JSON")?;
    let opened = std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path);
    let mut file = opened.with_context(|| format!("cannot write `{}`", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write `{}`", path.display()))
}

async fn import(store: &Store, path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let data: Map<String, Value> =
        serde_json::from_str(&text).with_context(|| format!("`{}` is no export of image data", path.display()))?;
    Ok(store.source.import_images(data).await?)
}
