//! `millpond install crds`: the definitions of all kinds, to be looked at and applied.

use std::io::Write;

use clap::{Args, ValueEnum};
use millpond_api::{crd, spelling};
use serde_json::Value;

use super::Output;
use crate::failure::{Code, Failure};

/// Arguments of `millpond install crds`.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Only these, by name; all without it
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Those of another project as well, for a cluster that does not have them
    #[arg(long, value_name = "WHOSE")]
    with: Vec<Others>,
    /// How to print them
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Others {
    /// Cluster API's kinds and those of its providers, with open schemas; never beside Cluster API itself
    ClusterApi,
}

/// Prints the definitions.
pub(crate) fn run(args: &CrdsArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let mut all = crd::all();
    if args.with.contains(&Others::ClusterApi) {
        all.extend(crd::cluster_api());
    }
    let definitions = choose(all, &args.names)?;
    super::print_objects(&definitions, args.output, out)
}

fn choose(all: Vec<Value>, names: &[String]) -> Result<Vec<Value>, Failure> {
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        all.iter().find(|one| crd::name(one) == name).cloned().ok_or_else(|| Failure {
            message: format!("there is no definition `{name}`"),
            code: Some(Code::NotFound),
            hint: Some(spelling::nearest(name, all.iter().map(crd::name)).map_or_else(
                || format!("there are: {}", all.iter().map(crd::name).collect::<Vec<_>>().join(", ")),
                |nearest| format!("is `{nearest}` meant?"),
            )),
        })
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(names: &[&str], output: Output) -> anyhow::Result<String> {
        printed_with(names, &[], output)
    }

    fn printed_with(names: &[&str], with: &[Others], output: Output) -> anyhow::Result<String> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let mut out = Vec::new();
        run(&CrdsArgs { names, with: with.to_vec(), output }, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn other_peoples_kinds_are_printed_when_asked_for() {
        let name = "machinedeployments.cluster.x-k8s.io";
        assert!(!printed(&[], Output::Yaml).unwrap().contains(name));
        assert!(printed(&[name], Output::Yaml).is_err());
        let yaml = printed_with(&[name], &[Others::ClusterApi], Output::Yaml).unwrap();
        assert!(yaml.contains("name: machinedeployments.cluster.x-k8s.io\n"), "{yaml}");
    }

    #[test]
    fn all_are_printed_in_both_forms() {
        let yaml = printed(&[], Output::Yaml).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let json: Value = serde_json::from_str(&printed(&[], Output::Json).unwrap()).unwrap();
        assert_eq!(json["items"], json!(documents));
        assert_eq!((&json["kind"], documents.len()), (&json!("List"), crd::all().len()));
    }

    #[test]
    fn some_are_printed_by_name() {
        let yaml = printed(&["nodepools.karpenter.sh"], Output::Yaml).unwrap();
        assert!(yaml.contains("name: nodepools.karpenter.sh\n") && !yaml.contains("nodeclaims"), "{yaml}");
        let failure = printed(&["nodepool.karpenter.sh"], Output::Yaml).unwrap_err().downcast::<Failure>().unwrap();
        assert_eq!(failure.message, "there is no definition `nodepool.karpenter.sh`");
        assert_eq!(failure.hint.as_deref(), Some("is `nodepools.karpenter.sh` meant?"));
    }
}
