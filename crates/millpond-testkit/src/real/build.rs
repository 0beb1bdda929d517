//! Calling Go.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use super::Part;
use super::part::{Addition, data_name};

/// The hint when Go is missing.
const GO_HINT: &str = "hint: install Go 1.26 or newer (https://go.dev/dl) and put `go` on the PATH, \
     or leave the real cluster out with `cargo xtask test --without-real-cluster`";

/// Fails with the fix if there is no Go.
pub(super) fn ensure_go() -> Result<()> {
    match Command::new("go").arg("version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => bail!("`go version` failed: {}\n{GO_HINT}", text(&output)),
        Err(error) => bail!("`go` cannot be run: {error}; the real parts of Kubernetes are built with it\n{GO_HINT}"),
    }
}

/// Builds into a folder beside the final one and renames it, so that the cache has only complete parts.
pub(super) fn build(part: &Part, folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the cache has no folder")?;
    let draft = tempfile::Builder::new().prefix(".draft-").tempdir_in(parent).context("make a folder to build in")?;
    let changed = match &part.addition {
        Some(addition) => {
            let folder = tempfile::Builder::new().prefix(".source-").tempdir_in(parent).context("make a folder")?;
            add_line(part, addition, folder.path())?;
            Some(folder)
        }
        None => None,
    };
    let mut command = go(part);
    if let Some(folder) = &changed {
        command.current_dir(folder.path().join(PINS));
    }
    command.args(part.verb()).args(part.flags()?).arg("-o").arg(draft.path().join(part.name)).arg(part.package);
    run(&mut command)?;
    copy_data(part, draft.path())?;
    let draft = draft.keep();
    std::fs::rename(&draft, folder).with_context(|| format!("move the build to `{}`", folder.display()))
}

/// The folders of a build from changed sources: a copy of the pins, and of the module that is changed.
const PINS: &str = "pins";
const CHANGED: &str = "changed";

/// Copies a module beside our pins, adds the line, and points the pins to the copy.
fn add_line(part: &Part, addition: &Addition, folder: &Path) -> Result<()> {
    let (pins, changed) = (folder.join(PINS), folder.join(CHANGED));
    copy_tree(&module_folder(part, addition.module)?, &changed)?;
    let file = changed.join(addition.file);
    let text = std::fs::read_to_string(&file).with_context(|| format!("read `{}`", file.display()))?;
    if text.matches(addition.before).count() != 1 {
        bail!("`{}` does not have the line `{}` once", addition.file, addition.before);
    }
    let text = text.replace(addition.before, &format!("{}\n{}", addition.line, addition.before));
    std::fs::write(&file, text).with_context(|| format!("write `{}`", file.display()))?;
    copy_tree(&part.module_folder(), &pins)?;
    let pin = pins.join("go.mod");
    let mut text = std::fs::read_to_string(&pin).with_context(|| format!("read `{}`", pin.display()))?;
    text.push_str(&format!("\nreplace {} => ../{CHANGED}\n", addition.module));
    std::fs::write(&pin, text).with_context(|| format!("write `{}`", pin.display()))
}

/// Files of the module cache are read-only; their copies are not.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("create `{}`", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("list `{}`", from.display()))? {
        let entry = entry.with_context(|| format!("list `{}`", from.display()))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            let contents = std::fs::read(&source).with_context(|| format!("read `{}`", source.display()))?;
            std::fs::write(&target, contents).with_context(|| format!("write `{}`", target.display()))?;
        }
    }
    Ok(())
}

/// With the flags of the build, so that Go finds its compiled packages.
pub(super) fn check(part: &Part) -> Result<()> {
    for verb in ["vet", "test"] {
        run(go(part).arg(verb).args(["-trimpath", "-mod=readonly", "./..."]))?;
    }
    Ok(())
}

fn copy_data(part: &Part, draft: &Path) -> Result<()> {
    if part.data_files.is_empty() {
        return Ok(());
    }
    let module = module_folder(part, part.data_module)?;
    for file in part.data_files {
        let (from, to) = (module.join(file), draft.join(data_name(file)));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("create `{}`", folder.display()))?;
        }
        // Not `fs::copy`, which would keep the read-only mode of the module cache.
        let contents = std::fs::read(&from).with_context(|| format!("read `{}`", from.display()))?;
        std::fs::write(&to, contents).with_context(|| format!("write `{}`", to.display()))?;
    }
    Ok(())
}

/// Where Go keeps a module that the part's pins name. Asked for by name, so that it is downloaded if need be.
fn module_folder(part: &Part, module: &str) -> Result<PathBuf> {
    let output = run(go(part).args(["mod", "download", "-json", module]))?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).context("read what `go mod download` says")?;
    let folder = told["Dir"].as_str().with_context(|| format!("`go mod download` does not say where {module} is"))?;
    Ok(PathBuf::from(folder))
}

fn go(part: &Part) -> Command {
    let mut command = Command::new("go");
    command.current_dir(part.module_folder()).env("CGO_ENABLED", "0").env("GOWORK", "off");
    command
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().context("run `go`")?;
    if !output.status.success() {
        // Tests complain on stdout.
        let told = String::from_utf8_lossy(&output.stdout);
        bail!("`{command:?}` failed ({}):\n{told}{}", output.status, text(&output));
    }
    Ok(output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
