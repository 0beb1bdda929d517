//! `millpond install ci`: launcher and builder of CI nodes in a cluster, under the names of Software Factory.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use millpond_api::ci::NodepoolSpec;
use millpond_ci::deployment::{Deployment, configuration, manifests};
use serde_json::{Value, json};

use super::Output;

/// Arguments of `millpond install ci`.
#[derive(Debug, Args)]
pub(crate) struct CiArgs {
    /// Namespace of everything
    #[arg(short, long, value_name = "NAMESPACE", default_value = "sf")]
    namespace: String,
    /// Image that has `millpond` on its PATH, a shell and an SSH client
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Domain of the deployment: the API is at https://FQDN/nodepool/api/
    #[arg(long, value_name = "FQDN")]
    fqdn: Option<String>,
    /// Launchers; all of them work
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10))]
    replicas: u32,
    /// Leave the image builder out
    #[arg(long)]
    without_builder: bool,
    /// Address of a ZooKeeper server for TLS clients (repeatable)
    #[arg(long = "zookeeper", value_name = "HOST[:PORT]", default_value = "zookeeper:2281")]
    zookeeper: Vec<String>,
    /// How to print it
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: Output,
}

/// Prints the manifests.
pub(super) fn run(args: &CiArgs, out: &mut impl Write) -> anyhow::Result<()> {
    super::print_objects(&objects(args), args.output, out)
}

fn objects(args: &CiArgs) -> Vec<Value> {
    let deployment = Deployment {
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        fqdn: args.fqdn.clone(),
        replicas: args.replicas,
        nodepool: NodepoolSpec::default(),
        extra_labels: BTreeMap::new(),
        builder: !args.without_builder,
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": args.namespace}});
    let mut objects = vec![namespace, configuration(&args.namespace, &servers(args))];
    objects.extend(manifests(&deployment));
    objects
}

/// Servers as they are named in arguments; one without a port has the usual one.
fn servers(args: &CiArgs) -> Vec<(String, u16)> {
    let split = |server: &String| {
        let named = server.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        named.unwrap_or_else(|| (server.clone(), 2281))
    };
    args.zookeeper.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use millpond_ci::config::{self, File};

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: CiArgs,
    }

    fn made(line: &str) -> Vec<Value> {
        let words = format!("ci --image=millpond:1 {line}");
        objects(&Cli::parse_from(words.split_whitespace()).args)
    }

    #[test]
    fn the_configuration_is_one_and_listens_with_tls() {
        let objects = made("--zookeeper zk-0.zk:2281 --zookeeper zk-1.zk");
        let text = objects[1]["data"]["nodepool.yaml"].as_str().unwrap();
        let config = config::read(File { name: "nodepool.yaml", text }, None, &|_| None).valid().unwrap();
        assert_eq!(config.webapp.listen_address.as_deref(), Some("0.0.0.0"));
        let servers: Vec<(&str, u16)> =
            config.zookeeper.servers.iter().map(|server| (server.host.as_str(), server.port)).collect();
        assert_eq!(servers, [("zk-0.zk", 2281), ("zk-1.zk", 2281)]);
    }

    #[test]
    fn the_builder_may_be_left_out() {
        let kinds = |line: &str| -> Vec<String> {
            made(line).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
        };
        assert!(kinds("").contains(&"StatefulSet".to_owned()));
        assert!(!kinds("--without-builder").contains(&"StatefulSet".to_owned()));
        assert!(kinds("--fqdn sf.example.com").contains(&"Ingress".to_owned()));
    }
}
