//! `millpond ci`: CI nodes with Nodepool's configuration and its command line. The formats are in `millpond_ci`; here
//! they get arguments and exit codes.

mod builder;
mod builder_key;
mod builder_keys;
mod changes;
mod config_validate;
pub(crate) mod launcher;
mod lists;
pub(crate) mod names;
mod namespace;
pub(crate) mod request;
mod source;
pub(crate) mod web;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use millpond_ci::config::{self, Config, File, Reading};

use crate::failure::{Code, Failure};

/// Where nodepool.yaml is unless the arguments say otherwise.
const DEFAULT_CONFIG: &str = "/etc/nodepool/nodepool.yaml";

/// Arguments of every verb.
#[derive(Debug, Args)]
pub(crate) struct CiArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,

    #[command(subcommand)]
    command: CiCommand,
}

/// Files, the cluster, and how it is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// nodepool.yaml
    #[arg(short, long = "config", value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// A file with secrets, which overrides the connection to ZooKeeper and variables of disk images
    #[arg(short, long = "secure", value_name = "FILE", global = true)]
    secure: Option<PathBuf>,

    /// How it is printed
    #[arg(short, long, value_enum, default_value = "table", global = true)]
    output: Output,

    /// Namespace of requests and of the Secret with providers' credentials
    #[arg(short, long, value_name = "NAMESPACE", global = true)]
    namespace: Option<String>,

    /// The kubeconfig of the cluster with requests and nodes, where they are not in ZooKeeper
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Output {
    /// A table for people
    #[default]
    #[value(alias = "text")]
    Table,
    /// A list of objects
    Json,
    /// The same as YAML
    Yaml,
    /// Names alone
    Name,
}

#[derive(Debug, Subcommand)]
enum CiCommand {
    #[command(flatten)]
    Verb(Verb),
    /// Provide CI nodes for requests in ZooKeeper, in the foreground
    #[command(after_help = "Examples:
  millpond ci launcher -c nodepool.yaml
  millpond ci launcher -c nodepool.yaml -s secure.conf")]
    Launcher(launcher::LauncherArgs),
    /// Ask for CI nodes by label, see requests, and give nodes back
    #[command(
        subcommand,
        after_help = "Examples:
  millpond ci request create --label fedora --count 2 --wait
  millpond ci request list
  millpond ci request delete build-7"
    )]
    Request(request::RequestCommand),
    /// Set up what providers need
    #[command(
        subcommand,
        after_help = "Examples:
  millpond ci create openshiftpods-namespace --nodepool-namespace ci-pods"
    )]
    Create(namespace::CreateCommand),
    /// Print what other machines need to know
    #[command(
        subcommand,
        after_help = "Examples:
  millpond ci get builder-ssh-key"
    )]
    Get(builder_key::GetCommand),
    /// Build disk images and upload them, until Ctrl-C
    ///
    /// Records are in ZooKeeper if the configuration names servers, otherwise they are objects of the cluster:
    /// DiskImage, ImageBuild and ImageUpload. Several builders share the work, Nodepool's own ones too.
    #[command(after_help = "Examples:
  millpond ci -c nodepool.yaml builder
  millpond ci builder -c nodepool.yaml -s secure.conf --build-workers 2")]
    Builder(builder::BuilderArgs),
    /// Print the public SSH key of the image builder; the key pair is made if there is none
    #[command(after_help = "Examples:
  millpond ci builder-ssh-key
  millpond ci builder-ssh-key --ssh-dir /var/lib/nodepool/ssh")]
    BuilderSshKey(builder_keys::KeyArgs),
    /// Show the SSH host keys of an image-builder, and accept them
    #[command(after_help = "Examples:
  millpond ci builder-accept-host-key image-builder.example.com
  millpond ci builder-accept-host-key 192.0.2.7:2222 --yes
  millpond ci builder-accept-host-key image-builder.example.com --replace")]
    BuilderAcceptHostKey(builder_keys::AcceptArgs),
}

/// The verbs of the original command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List nodes
    #[command(after_help = "Examples:
  millpond ci list
  millpond ci list --detail
  millpond ci -c nodepool.yaml list -o json")]
    List {
        /// All columns
        #[arg(long)]
        detail: bool,
    },
    /// List node requests
    #[command(after_help = "Examples:
  millpond ci request-list")]
    RequestList,
    /// List images of providers
    #[command(after_help = "Examples:
  millpond ci image-list")]
    ImageList,
    /// List images that were built
    #[command(after_help = "Examples:
  millpond ci dib-image-list")]
    DibImageList,
    /// List images with pauses and builds that were asked for
    #[command(after_help = "Examples:
  millpond ci image-status")]
    ImageStatus,
    /// Ask for a build of an image
    #[command(after_help = "Examples:
  millpond ci image-build fedora")]
    ImageBuild {
        /// The image
        image: String,
    },
    /// Pause builds of an image
    #[command(after_help = "Examples:
  millpond ci image-pause fedora")]
    ImagePause {
        /// The image
        image: String,
    },
    /// Let builds of an image go on
    #[command(after_help = "Examples:
  millpond ci image-unpause fedora")]
    ImageUnpause {
        /// The image
        image: String,
    },
    /// Delete an image of a provider
    #[command(after_help = "Examples:
  millpond ci image-delete --provider cloud --image fedora --build-id 4f2a --upload-id 0000000001")]
    ImageDelete {
        /// The provider
        #[arg(long)]
        provider: String,
        /// The image
        #[arg(long)]
        image: String,
        /// The upload, as `image-list` shows it
        #[arg(long)]
        upload_id: String,
        /// The build, as `image-list` shows it
        #[arg(long)]
        build_id: String,
    },
    /// Delete an image that was built, with all of its uploads
    #[command(after_help = "Examples:
  millpond ci dib-image-delete fedora-4f2a")]
    DibImageDelete {
        /// The build, as `dib-image-list` shows it
        id: String,
    },
    /// List images of a provider that no build has made
    #[command(after_help = "Examples:
  millpond ci alien-image-list cloud")]
    AlienImageList {
        /// The provider; all without it
        provider: Option<String>,
    },
    /// Delete a node
    #[command(after_help = "Examples:
  millpond ci delete 0000000007
  millpond ci delete 0000000007 --now")]
    Delete {
        /// The node
        id: String,
        /// Wait until it is gone
        #[arg(long)]
        now: bool,
    },
    /// Keep a node for a person
    #[command(after_help = "Examples:
  millpond ci hold 0000000007")]
    Hold {
        /// The node
        id: String,
    },
    /// Show what is recorded of a provider
    #[command(after_help = "Examples:
  millpond ci info cloud")]
    Info {
        /// The provider
        provider: String,
    },
    /// Remove what is recorded of a provider; what runs there stays
    #[command(after_help = "Examples:
  millpond ci erase cloud --force")]
    Erase {
        /// The provider
        provider: String,
        /// Do not ask
        #[arg(long, visible_alias = "yes")]
        force: bool,
    },
    /// Write records of images to a file
    #[command(after_help = "Examples:
  millpond ci export-image-data images.json")]
    ExportImageData {
        /// The file
        path: PathBuf,
    },
    /// Read records of images from a file
    #[command(after_help = "Examples:
  millpond ci import-image-data images.json")]
    ImportImageData {
        /// The file
        path: PathBuf,
    },
    /// Check a configuration: exit code 0 if it is right, 1 if not
    ///
    /// Every mistake is printed to stderr with its line and column.
    #[command(after_help = "Examples:
  millpond ci -c nodepool.yaml config-validate
  millpond ci -c nodepool.yaml -s secure.conf config-validate")]
    ConfigValidate,
}

/// Runs the command: data to `out`, messages to `messages`.
pub(crate) fn run(args: &CiArgs, out: &mut impl Write, messages: &mut impl Write) -> anyhow::Result<ExitCode> {
    match &args.command {
        CiCommand::Verb(verb) => run_verb(&args.common, verb, out, messages),
        CiCommand::Launcher(arguments) => launcher::run(&args.common, arguments),
        CiCommand::Request(command) => request::run(&args.common, command, out, messages),
        CiCommand::Create(command) => namespace::run(&args.common, command, out, messages),
        CiCommand::Get(command) => builder_key::run(&args.common, command, out, messages),
        CiCommand::Builder(command) => builder::run(&args.common, command),
        CiCommand::BuilderSshKey(key) => builder_keys::run_key(&args.common, key, out, messages),
        CiCommand::BuilderAcceptHostKey(accept) => builder_keys::run_accept(&args.common, accept, out, messages),
    }
}

/// Runs a verb of the original.
pub(crate) fn run_verb(
    args: &CommonArgs,
    verb: &Verb,
    out: &mut impl Write,
    messages: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    if let Verb::ConfigValidate = verb {
        return config_validate::run(args, messages);
    }
    let store = source::open(args, messages)?;
    store.block_on(async {
        let done = match lists::of(verb) {
            Some(list) => lists::run(args, &store, list, out, messages).await,
            None => changes::run(args, &store, verb, out, messages).await,
        };
        store.source.close().await;
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

impl CommonArgs {
    /// Reads the configuration files, which must be there.
    fn read(&self) -> anyhow::Result<Reading> {
        let (main, main_name) = read_file(self.config.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG)))?;
        let secure = self.secure.as_deref().map(read_file).transpose()?;
        let secure = secure.as_ref().map(|(text, name)| File { name, text });
        Ok(config::read(File { name: &main_name, text: &main }, secure, &|name| std::env::var(name).ok()))
    }

    /// The configuration; `None` if no file was named and none exists at the default path. Invalid parts are reported
    /// and left out.
    fn configuration(&self, messages: &mut impl Write) -> anyhow::Result<Option<Config>> {
        if self.config.is_none() && !Path::new(DEFAULT_CONFIG).exists() {
            return Ok(None);
        }
        let reading = self.read()?;
        for error in &reading.errors {
            writeln!(messages, "warning: {error}")?;
        }
        let unreadable = || Failure {
            message: "the configuration cannot be read".to_owned(),
            code: None,
            hint: Some("`config-validate` says more".to_owned()),
        };
        Ok(Some(reading.config.ok_or_else(unreadable)?))
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }
}

fn read_file(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((text, name)),
        Err(error) => {
            let hint =
                (error.kind() == std::io::ErrorKind::NotFound).then(|| "`-c FILE` names the configuration".to_owned());
            // As in the original, every error of the configuration is exit code 1.
            let code = Code::of_io(&error).filter(|code| *code == Code::NotAllowed);
            let message = format!("cannot read `{name}`");
            Err(anyhow::Error::new(error).context(Failure { message, code, hint }))
        }
    }
}
