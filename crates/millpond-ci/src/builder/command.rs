//! The contract with commands that build images: what they are called with. The same for disk-image-create,
//! dib-ansible and any other executable, as Nodepool calls them. Pure.

use std::path::{Path, PathBuf};

use super::decide::Image;
use crate::config::words;

/// Options for qemu-img that every qcow2 image gets.
const QEMU_IMG_OPTIONS: [&str; 2] = ["--qemu-img-options", "compat=0.10"];

/// A command that builds an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildCommand {
    /// The command and its arguments.
    pub argv: Vec<String>,
    /// Variables that are set beside those of this process.
    pub env: Vec<(String, String)>,
}

/// Folders that a command depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folders {
    /// Where images are put.
    pub images: PathBuf,
    /// Elements of disk images.
    pub elements: Option<String>,
    /// The value of `%p` in a command.
    pub package: PathBuf,
}

/// The path of a build's files without their ends.
pub fn output(images: &Path, image: &str, build: &str) -> PathBuf {
    images.join(format!("{image}-{build}"))
}

/// The command for a build.
pub fn command(image: &Image, build: &str, folders: &Folders) -> Result<BuildCommand, &'static str> {
    let settings = &image.settings;
    let output = output(&folders.images, &settings.name, build).display().to_string();
    let formats: Vec<&str> = image.formats.iter().map(String::as_str).collect();
    let formats = formats.join(",");
    let dib_cmd = settings.dib_cmd.replace("%p", &folders.package.display().to_string());
    let mut argv = words::split(&dib_cmd)?;
    if argv.is_empty() {
        return Err("names no command");
    }
    let options = ["-x", "-t", &formats, "--checksum", "--no-tmpfs"];
    argv.extend(options.map(ToOwned::to_owned));
    if formats.contains("qcow2") {
        argv.extend(QEMU_IMG_OPTIONS.map(ToOwned::to_owned));
    }
    // The original puts the path and the elements into the text that it splits.
    argv.extend(["-o".to_owned(), output.clone()]);
    argv.extend(words::split(&settings.elements.join(" "))?);
    let mut env = vec![
        ("DIB_RELEASE".to_owned(), settings.release.clone()),
        ("DIB_IMAGE_NAME".to_owned(), settings.name.clone()),
        ("DIB_IMAGE_FILENAME".to_owned(), output),
    ];
    if let Some(elements) = folders.elements.as_ref().filter(|path| !path.is_empty()) {
        env.push(("ELEMENTS_PATH".to_owned(), elements.clone()));
    }
    env.extend(settings.env_vars.iter().map(|(name, value)| (name.clone(), value.clone())));
    Ok(BuildCommand { argv, env })
}
