//! Calling Go.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

use super::Part;
use super::part::data_name;

/// What a person does about a missing Go.
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

/// Builds into a folder beside the final one, then renames: whatever is in the
/// cache is whole.
pub(super) fn build(part: &Part, folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the cache has no folder")?;
    let draft = tempfile::Builder::new().prefix(".draft-").tempdir_in(parent).context("make a folder to build in")?;
    let mut command = go(part);
    command.args(part.verb()).args(part.flags()?).arg("-o").arg(draft.path().join(part.name)).arg(part.package);
    run(&mut command)?;
    copy_data(part, draft.path())?;
    let draft = draft.keep();
    std::fs::rename(&draft, folder).with_context(|| format!("move the build to `{}`", folder.display()))
}

/// With the flags of the build, so that Go finds all that was compiled for it.
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
    let output = run(go(part).args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", part.data_module]))?;
    let module = String::from_utf8(output.stdout).context("read the module's folder")?;
    for file in part.data_files {
        let (from, to) = (Path::new(module.trim()).join(file), draft.join(data_name(file)));
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("create `{}`", folder.display()))?;
        }
        // Not `fs::copy`: files of the module cache are read-only, and stay so.
        let contents = std::fs::read(&from).with_context(|| format!("read `{}`", from.display()))?;
        std::fs::write(&to, contents).with_context(|| format!("write `{}`", to.display()))?;
    }
    Ok(())
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
