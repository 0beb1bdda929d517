//! `millpond host label`.

use std::io::Write;

use clap::Args;
use millpond_api::byoh::names;
use serde_json::{Map, Value, json};

use super::session::{PlaceArgs, Session, find};
use crate::commands::print;
use crate::failure::{Code, Failure};

/// Arguments of `millpond host label`.
#[derive(Debug, Args)]
pub(crate) struct LabelArgs {
    /// Name of the host
    #[arg(value_name = "NAME")]
    name: String,
    /// `key=value` sets a label, `key-` removes it
    #[arg(value_name = "LABEL", required = true, value_parser = change)]
    changes: Vec<(String, Option<String>)>,
    /// Change existing labels that have another value
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Labels that controllers keep.
const DERIVED: &[&str] = &[
    names::HOST,
    names::CAPACITY_CPU,
    names::CAPACITY_MEMORY,
    names::CAPACITY_GPU,
    names::CLUSTER_NAME,
    names::BYO_MACHINE,
];

fn change(text: &str) -> Result<(String, Option<String>), String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => match text.strip_suffix('-') {
            Some(key) => (key, None),
            None => return Err(format!("`{text}` is neither `key=value` nor `key-`")),
        },
    };
    if !millpond_api::labels::is_key(key) {
        return Err(format!("`{key}` is no key of a label"));
    }
    if value.is_some_and(|value| !millpond_api::labels::is_value(value)) {
        return Err(format!("`{}` is no value of a label", value.unwrap_or_default()));
    }
    if DERIVED.contains(&key) {
        return Err(format!("`{key}` follows from the host, and the controllers keep it"));
    }
    Ok((key.to_owned(), value.map(str::to_owned)))
}

/// Runs the command.
pub(super) fn run(args: &LabelArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let session = Session::open(&args.place)?;
    let world = session.world(Some(&args.place.namespace))?;
    let host = find(&world, &args.place.namespace, &args.name)?;
    let mut labels = Map::new();
    for (key, value) in &args.changes {
        let present = host.label(key);
        if let (Some(present), Some(value)) = (present, value)
            && present != value
            && !args.overwrite
        {
            let message = format!("host `{}` has label {key}={present}", args.name);
            let hint = Some("`--overwrite` changes it".to_owned());
            return Err(Failure { message, code: Some(Code::Conflict), hint }.into());
        }
        if present != value.as_deref() {
            labels.insert(key.clone(), value.as_ref().map_or(Value::Null, |value| json!(value)));
        }
    }
    if labels.is_empty() {
        return print(out, &format!("byohost/{} not labeled\n", args.name));
    }
    session.patch(host, &json!({"metadata": {"labels": labels}}))?;
    print(out, &format!("byohost/{} labeled\n", args.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_as_kubectl_takes_them() {
        assert_eq!(change("purpose=gpu"), Ok(("purpose".to_owned(), Some("gpu".to_owned()))));
        assert_eq!(change("rack-"), Ok(("rack".to_owned(), None)));
        for wrong in ["purpose", "=x", "a=b c", "cluster.x-k8s.io/cluster-name=c"] {
            assert!(change(wrong).is_err(), "{wrong}");
        }
    }
}
