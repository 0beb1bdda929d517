//! Container images from files, without a registry and without Docker: an OCI layout in a tar archive, as `ctr images
//! import` and `skopeo copy oci-archive:` read it.
//!
//! The same files give the same bytes: entries are sorted, belong to root and have no times.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::real::debian;

/// The user and the group of an image with one program.
const NONROOT: u32 = 65532;
/// Certificates of public authorities, as Debian keeps them and as most programs look for them.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const ACCOUNTS: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"),
    ("/etc/group", "root:x:0:\nnonroot:x:65532:\n"),
    ("/etc/nsswitch.conf", "hosts: files dns\n"),
];

/// The user and group of launchers and builders, as their deployment has them, and its home: the volume of the builder.
const NODEPOOL: u32 = 10001;
const NODEPOOL_HOME: &str = "/var/lib/nodepool";
/// What the builder and the people in its container use of OpenSSH.
const SSH_PROGRAMS: [&str; 3] = ["ssh", "ssh-keygen", "ssh-keyscan"];
/// Other names of the program.
const OTHER_NAMES: [&str; 2] = ["nodepool", "sf-operator"];
/// What people use in a shell to look around.
const SHELL_COMMANDS: [&str; 20] = [
    "cat", "cp", "date", "df", "du", "env", "find", "grep", "head", "hostname", "id", "less", "ls", "mkdir", "ps",
    "rm", "sh", "sleep", "tail", "vi",
];

/// An image.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Its name, with a tag.
    pub name: String,
    /// Other names of the same image.
    pub aliases: Vec<String>,
    /// Path in the image, and the file that becomes it. Executable files stay executable.
    pub files: Vec<(String, PathBuf)>,
    /// Path in the image, and where the link leads.
    pub links: Vec<(String, String)>,
    /// Empty folders.
    pub folders: Vec<String>,
    /// `User` of the configuration; root without.
    pub user: String,
    /// The command.
    pub entrypoint: Vec<String>,
    /// Labels.
    pub labels: Vec<(String, String)>,
}

impl Image {
    /// An image with one program and the libraries that it is linked with, as its entrypoint: no shell, no root.
    ///
    /// With them come the certificates of public authorities where this machine has them, and the names of the two
    /// users that processes have.
    pub fn of_program(name: &str, program: &Path, folder: &Path) -> Result<Self> {
        let file_name = program.file_name().and_then(|name| name.to_str()).context("a program has a name")?;
        let mut files = vec![(format!("/usr/bin/{file_name}"), program.to_owned())];
        files.extend(libraries(program)?.into_iter().map(|path| (path.display().to_string(), path)));
        if Path::new(CERTIFICATES).exists() {
            files.push((CERTIFICATES.to_owned(), CERTIFICATES.into()));
        }
        for (path, text) in ACCOUNTS {
            let file = account_file(folder, path);
            write(&file, text.as_bytes())?;
            files.push((path.to_owned(), file));
        }
        Ok(Self {
            name: name.to_owned(),
            files,
            folders: vec!["/tmp".into()],
            user: format!("{NONROOT}:{NONROOT}"),
            entrypoint: vec![file_name.to_owned()],
            ..Self::default()
        })
    }

    /// The same image with a shell and an SSH client, an account for the user of launchers and builders, and the program
    /// under the names of those that people look for in such a container.
    pub fn of_nodepool(name: &str, program: &Path, folder: &Path) -> Result<Self> {
        let mut image = Self::of_program(name, program, folder)?;
        let program = image.entrypoint.first().context("the image has a program")?.clone();
        for name in SSH_PROGRAMS {
            let path = find(name).with_context(|| format!("find `{name}`\nhint: `apt-get install openssh-client`"))?;
            image.files.extend(libraries(&path)?.into_iter().map(|path| (path.display().to_string(), path)));
            image.files.push((format!("/usr/bin/{name}"), path));
        }
        image.files.push(("/usr/bin/busybox".into(), debian::busybox()?));
        image.links.extend(SHELL_COMMANDS.map(|name| (format!("/usr/bin/{name}"), "busybox".into())));
        image.links.extend(OTHER_NAMES.map(|name| (format!("/usr/bin/{name}"), program.clone())));
        image.links.push(("/bin".into(), "usr/bin".into()));
        image.folders.extend([NODEPOOL_HOME.into(), "/dev".into(), "/proc".into()]);
        for (path, text, line) in [
            (
                ACCOUNTS[0].0,
                ACCOUNTS[0].1,
                format!("nodepool:x:{NODEPOOL}:{NODEPOOL}:nodepool:{NODEPOOL_HOME}:/bin/sh\n"),
            ),
            (ACCOUNTS[1].0, ACCOUNTS[1].1, format!("nodepool:x:{NODEPOOL}:\n")),
        ] {
            write(&account_file(folder, path), format!("{text}{line}").as_bytes())?;
        }
        image.user = format!("{NODEPOOL}:{NODEPOOL}");
        Ok(image)
    }

    /// Writes the layout into a folder that is not there yet, and the folder into an archive.
    pub fn write(&self, folder: &Path, archive: &Path) -> Result<()> {
        self.layout(folder)?;
        tar(folder, archive)
    }

    /// Writes the layout into a folder that is not there yet.
    pub fn layout(&self, folder: &Path) -> Result<()> {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).with_context(|| format!("create `{}`", blobs.display()))?;
        let scratch = tempfile::tempdir_in(folder).context("make a folder for the layer")?;
        let (tree, layer) = (scratch.path().join("tree"), scratch.path().join("layer.tar"));
        self.unpack(&tree)?;
        tar(&tree, &layer)?;
        let layer = blob(&blobs, &fs::read(&layer).context("read the layer")?)?;
        drop(scratch);
        let config =
            blob(&blobs, &serde_json::to_vec(&self.config(&layer.digest)).context("write the configuration")?)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
        });
        let manifest = blob(&blobs, &serde_json::to_vec(&manifest).context("write the manifest")?)?;
        let named = |name: &String| {
            let mut one = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
            one["annotations"] = json!({
                // The first is containerd's own, which reads it as the whole name; the second is that of the layout.
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name.rsplit(':').next().unwrap_or(name),
            });
            one
        };
        let manifests: Vec<Value> = std::iter::once(&self.name).chain(&self.aliases).map(named).collect();
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests,
        });
        write(&folder.join("index.json"), &serde_json::to_vec(&index).context("write the index")?)?;
        write(&folder.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)
    }

    fn config(&self, layer: &str) -> Value {
        let labels: serde_json::Map<String, Value> =
            self.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }, "os": "linux",
            "config": {
                "User": self.user, "Entrypoint": self.entrypoint, "Labels": labels,
                "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        })
    }

    /// The files as they are in the image, below a folder.
    pub fn unpack(&self, tree: &Path) -> Result<()> {
        let place = |path: &str| -> Result<PathBuf> {
            let path = tree.join(path.trim_start_matches('/'));
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).with_context(|| format!("create `{}`", parent.display()))?;
            }
            Ok(path)
        };
        for (path, file) in &self.files {
            let place = place(path)?;
            fs::copy(file, &place).with_context(|| format!("copy `{}`", file.display()))?;
            let is_program = file.metadata().is_ok_and(|file| file.permissions().mode() & 0o100 != 0);
            let mode = if is_program { 0o755 } else { 0o644 };
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).context("set the mode of a file")?;
        }
        for (path, target) in &self.links {
            symlink(target, place(path)?).with_context(|| format!("link `{path}`"))?;
        }
        for path in &self.folders {
            let folder = place(path)?;
            fs::create_dir_all(&folder).with_context(|| format!("create `{path}`"))?;
            // Any user may write into the one for temporary files.
            let mode = if path.trim_matches('/') == "tmp" { 0o1777 } else { 0o755 };
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).context("set the mode of a folder")?;
        }
        Ok(())
    }
}

/// Where the text of an account's file is before it is in the image.
fn account_file(folder: &Path, path: &str) -> PathBuf {
    folder.join(path.replace('/', "-"))
}

/// A program of this machine.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The libraries of a program, with the loader that its header names; empty for a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("run `ldd`")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if printed.contains("statically linked") || printed.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        bail!("`ldd {}` failed: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    read_libraries(&printed)
}

/// Lines like `libc.so.6 => /lib/libc.so.6 (0x…)` and `/lib64/ld.so (0x…)`. The kernel's own library has no path.
fn read_libraries(printed: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in printed.lines() {
        let target = line.split_once("=>").map_or(line, |(_, target)| target).trim();
        if target.starts_with("not found") {
            bail!("a library is missing here: {}", line.trim());
        }
        if let Some(path) = target.split(" (").next().filter(|path| path.starts_with('/')) {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// A file that is named by its hash.
struct Blob {
    digest: String,
    size: usize,
}

impl Blob {
    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.size})
    }
}

fn blob(blobs: &Path, contents: &[u8]) -> Result<Blob> {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in digest(&SHA256, contents).as_ref() {
        write!(name, "{byte:02x}").context("write a hash")?;
    }
    write(&blobs.join(&name), contents)?;
    Ok(Blob { digest: name, size: contents.len() })
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    fs::write(path, contents).with_context(|| format!("write `{}`", path.display()))
}

fn tar(folder: &Path, archive: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command
        .args(["--create", "--format=ustar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"])
        .arg("--directory")
        .arg(folder)
        .arg("--file")
        .arg(archive);
    // Entry by entry, so that the archive has no entry for the folder itself.
    let mut entries: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("list `{}`", folder.display()))?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<std::io::Result<_>>()
        .context("list a folder")?;
    entries.sort();
    let output = command.args(entries).output().context("run `tar`; is GNU tar installed?")?;
    if !output.status.success() {
        bail!("`tar` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_with_their_loader_and_a_missing_one_is_named() {
        let printed = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n";
        assert_eq!(read_libraries(printed).unwrap(), [PathBuf::from("/lib/libc.so.6"), "/lib64/ld.so".into()]);
        let missing = read_libraries("\tlibx.so => not found\n").unwrap_err().to_string();
        assert_eq!(missing, "a library is missing here: libx.so => not found");
    }

    fn image(folder: &Path) -> Image {
        let program = folder.join("program");
        fs::write(&program, "#!/bin/true\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        Image {
            name: "localhost/program:1".into(),
            files: vec![("/usr/bin/program".into(), program)],
            links: vec![("/bin".into(), "usr/bin".into())],
            folders: vec!["/tmp".into()],
            user: "65532:65532".into(),
            entrypoint: vec!["program".into()],
            ..Image::default()
        }
    }

    #[test]
    fn a_layout_names_its_blobs_by_their_hashes_and_has_no_times() {
        let scratch = tempfile::tempdir().unwrap();
        let image = image(scratch.path());
        image.write(&scratch.path().join("a"), &scratch.path().join("a.tar")).unwrap();
        image.write(&scratch.path().join("b"), &scratch.path().join("b.tar")).unwrap();
        let (first, second) = (fs::read(scratch.path().join("a.tar")), fs::read(scratch.path().join("b.tar")));
        assert_eq!(first.unwrap(), second.unwrap(), "the same files give the same image");

        let read = |path: &str| -> Value {
            serde_json::from_slice(&fs::read(scratch.path().join("a").join(path)).unwrap()).unwrap()
        };
        let by_digest = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().unwrap().replace(':', "/");
            let contents = fs::read(scratch.path().join("a/blobs").join(&name)).unwrap();
            assert_eq!(descriptor["size"], contents.len());
            contents
        };
        let index = read("index.json");
        let manifest: Value = serde_json::from_slice(&by_digest(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&by_digest(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = String::from_utf8_lossy(&by_digest(&manifest["layers"][0])).into_owned();
        assert!(layer.contains("usr/bin/program") && layer.contains("ustar"), "{layer}");
    }
}
