//! The table of built-in types, from the facts of the Kubernetes API.
//!
//! Three sources, none of which tells the whole: the OpenAPI v3 documents know types, lists and merge keys
//! ([`openapi`]); `generated.proto` knows how values are written in protobuf ([`proto`]); the Go structs know
//! which fields are pointers, which are left out when empty, and under which JSON name a field number stands
//! ([`golang`]). Where two of them tell the same fact they are compared. The form of the table is described
//! in [`table`], its reader is `millpond_apiserver::schema::builtin`.

mod golang;
mod openapi;
mod proto;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::GeneratedFile;

/// Where the table lies in the tree.
const TABLE: &str = "crates/millpond-apiserver/src/schema/builtin.txt";

/// The Go module that pins the version of Kubernetes.
const PINS: &str = "tests/realcluster/kubernetes";

/// Modules that are read.
const MODULES: &[&str] = &[
    "k8s.io/kubernetes",
    "k8s.io/api",
    "k8s.io/apimachinery",
    "k8s.io/apiextensions-apiserver",
    "k8s.io/kube-aggregator",
];

/// OpenAPI documents whose types are served, by the name of their file.
const DOCUMENTS: &[&str] = &[
    "api__v1",
    "apis__admissionregistration.k8s.io__v1",
    "apis__apiextensions.k8s.io__v1",
    "apis__apiregistration.k8s.io__v1",
    "apis__apps__v1",
    "apis__authentication.k8s.io__v1",
    "apis__authorization.k8s.io__v1",
    "apis__autoscaling__v1",
    "apis__autoscaling__v2",
    "apis__batch__v1",
    "apis__certificates.k8s.io__v1",
    "apis__coordination.k8s.io__v1",
    "apis__discovery.k8s.io__v1",
    "apis__events.k8s.io__v1",
    "apis__flowcontrol.apiserver.k8s.io__v1",
    "apis__networking.k8s.io__v1",
    "apis__node.k8s.io__v1",
    "apis__policy__v1",
    "apis__rbac.authorization.k8s.io__v1",
    "apis__resource.k8s.io__v1",
    "apis__scheduling.k8s.io__v1",
    "apis__storage.k8s.io__v1",
];

/// Makes the table; nothing where Go is not installed, since then there is nothing to compare with.
pub(super) fn generate(root: &Path) -> Result<Vec<GeneratedFile>> {
    let Some(modules) = Modules::locate(&root.join(PINS))? else {
        eprintln!("note: the table of built-in types is left alone, since Go is not installed");
        return Ok(Vec::new());
    };
    let documents = modules.dir("k8s.io/kubernetes")?.join("api/openapi-spec/v3");
    let mut schemas = openapi::Schemas::new();
    for document in DOCUMENTS {
        openapi::read(&documents.join(format!("{document}_openapi.json")), &mut schemas)?;
    }
    let mut packages = Packages { modules, read: BTreeMap::new() };
    let mut types = Vec::new();
    for (name, (schema, kinds)) in &schemas {
        types.push(table::describe(name, schema, kinds, &mut packages).with_context(|| format!("type `{name}`"))?);
    }
    let version = packages.modules.version("k8s.io/kubernetes")?;
    Ok(vec![GeneratedFile { path: PathBuf::from(TABLE), contents: table::render(&version, types).into_bytes() }])
}

/// Go modules on this machine, by name: folder and version.
struct Modules(BTreeMap<String, (PathBuf, String)>);

impl Modules {
    /// Asks Go for the modules, which brings those that are missing. `None` where there is no Go.
    fn locate(pins: &Path) -> Result<Option<Self>> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Download {
            path: String,
            version: String,
            #[serde(default)]
            error: String,
            #[serde(default)]
            dir: PathBuf,
        }

        let output =
            match Command::new("go").args(["mod", "download", "-json"]).args(MODULES).current_dir(pins).output() {
                Ok(output) => output,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error).context("run `go mod download`"),
            };
        let mut modules = BTreeMap::new();
        for download in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Download>() {
            let download = download.context("read the answer of `go mod download`")?;
            if !download.error.is_empty() {
                bail!("`go mod download {}`: {}", download.path, download.error);
            }
            modules.insert(download.path, (download.dir, download.version));
        }
        if !output.status.success() {
            bail!("`go mod download` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Some(Self(modules)))
    }

    fn dir(&self, module: &str) -> Result<&Path> {
        self.0.get(module).map(|(dir, _)| dir.as_path()).with_context(|| format!("no Go module `{module}`"))
    }

    fn version(&self, module: &str) -> Result<String> {
        self.0.get(module).map(|(_, version)| version.clone()).with_context(|| format!("no Go module `{module}`"))
    }
}

/// One Go package of API types.
struct Package {
    structs: BTreeMap<String, Vec<golang::Field>>,
    messages: BTreeMap<String, proto::Message>,
}

/// Packages, read when first asked for.
struct Packages {
    modules: Modules,
    read: BTreeMap<String, Package>,
}

impl Packages {
    /// The package that OpenAPI calls `io.k8s.api.core.v1`.
    fn get(&mut self, name: &str) -> Result<&Package> {
        if !self.read.contains_key(name) {
            let path = name.strip_prefix("io.k8s.").context("a package outside `io.k8s`")?;
            let (module, rest) = path.split_once('.').context("a package without a folder")?;
            let dir = self.modules.dir(&format!("k8s.io/{module}"))?.join(rest.replace('.', "/"));
            let proto = dir.join("generated.proto");
            let text = std::fs::read_to_string(&proto).with_context(|| format!("read `{}`", proto.display()))?;
            let package = Package { structs: golang::read(&dir)?, messages: proto::parse(&text)? };
            self.read.insert(name.to_owned(), package);
        }
        Ok(&self.read[name])
    }
}
