//! Files that commands write: atomically, and with restricted permissions if they may contain secrets.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{Code, Failure};

/// The permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Its owner alone, also if a file of that name was open to others.
    Owner,
    /// As the user's umask says.
    Others,
}

/// Writes a file, in place of one of that name. What is no plain file (`/dev/stdout`, a pipe) is written to.
pub(crate) fn write(path: &Path, text: &str, readers: Readers) -> anyhow::Result<()> {
    let special = fs::metadata(path).is_ok_and(|there| !there.is_file());
    let written = if special { write_to(path, text) } else { replace(path, text, readers) };
    written.map_err(|error| {
        let (code, message) = (Code::of_io(&error), format!("cannot write `{}`", path.display()));
        anyhow::Error::new(error).context(Failure { message, code, hint: None })
    })
}

fn write_to(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

fn replace(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
    // The target of a link is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let beside = beside(&path);
    let mode = if readers == Readers::Owner { 0o600 } else { 0o666 };
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    // Only a process of the same number, long gone, can have left one.
    _ = fs::remove_file(&beside);
    let written = write();
    if written.is_err() {
        _ = fs::remove_file(&beside);
    }
    written
}

/// The name under which a file is written before it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn private_files_are_private_also_where_open_ones_were() {
        let directory = tempfile::tempdir().unwrap();
        let (new, open) = (directory.path().join("new"), directory.path().join("open"));
        fs::write(&open, "open").unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        for path in [&new, &open] {
            write(path, "private", Readers::Owner).unwrap();
            assert_eq!((mode(path), fs::read_to_string(path).unwrap().as_str()), (0o600, "private"));
        }
        assert_eq!(names(directory.path()), ["new", "open"]);
    }

    #[test]
    fn others_read_what_is_not_private() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, plain) = (directory.path().join("ours"), directory.path().join("plain"));
        fs::write(&plain, "").unwrap();
        write(&ours, "text", Readers::Others).unwrap();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (directory.path().join("link"), directory.path().join("file"));
        fs::write(&file, "old").unwrap();
        symlink("file", &link).unwrap();
        write(&link, "new", Readers::Owner).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        write(Path::new("/dev/null"), "text", Readers::Owner).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none/file");
        let problem = write(&path, "text", Readers::Owner).unwrap_err();
        assert!(format!("{problem:#}").starts_with(&format!("cannot write `{}`: ", path.display())), "{problem:#}");
    }
}
