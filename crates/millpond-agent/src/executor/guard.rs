//! Directories that other programs fill: records their content, and later removes everything else.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Entries of a guarded directory. One with more is not one of kubelet's before kubelet has run.
const LIMIT_ENTRIES: usize = 20_000;

/// The entries below a directory, by paths relative to it, links not followed.
pub(super) fn entries(directory: &Path) -> io::Result<BTreeSet<String>> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![PathBuf::new()]);
    while let Some(relative) = waiting.pop() {
        for entry in fs::read_dir(directory.join(&relative))? {
            let entry = entry?;
            let name = relative.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                waiting.push(name.clone());
            }
            found.insert(name.into_os_string().into_string().map_err(|_| io::Error::other("a name is not UTF-8"))?);
            if found.len() > LIMIT_ENTRIES {
                return Err(io::Error::other(format!("`{}` has too many entries", directory.display())));
            }
        }
    }
    Ok(found)
}

/// Removes what is not to be kept.
pub(super) fn prune(directory: &Path, keep: &BTreeSet<String>) -> io::Result<()> {
    let mut waiting = vec![PathBuf::new()];
    while let Some(relative) = waiting.pop() {
        let entries = match fs::read_dir(directory.join(&relative)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = relative.join(entry.file_name());
            let is_directory = entry.file_type()?.is_dir();
            match name.to_str() {
                Some(known) if keep.contains(known) => {
                    if is_directory {
                        waiting.push(name);
                    }
                }
                _ if is_directory => fs::remove_dir_all(entry.path())?,
                _ => fs::remove_file(entry.path())?,
            }
        }
    }
    Ok(())
}

/// Whether nothing is in the directory that was not in it before.
pub(super) fn is_pruned(directory: &Path, keep: &BTreeSet<String>) -> bool {
    match entries(directory) {
        Ok(found) => found.is_subset(keep),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_and_the_rest_goes() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("kubelet");
        fs::create_dir_all(directory.join("device-plugins")).unwrap();
        fs::write(directory.join("device-plugins/DEPRECATION"), "").unwrap();
        std::os::unix::fs::symlink("/", directory.join("link")).unwrap();
        let before = entries(&directory).unwrap();
        assert_eq!(before.iter().collect::<Vec<_>>(), ["device-plugins", "device-plugins/DEPRECATION", "link"]);
        fs::create_dir_all(directory.join("pods/uid/volumes")).unwrap();
        fs::write(directory.join("device-plugins/kubelet.sock"), "").unwrap();
        std::os::unix::fs::symlink("/etc", directory.join("pods/uid/elsewhere")).unwrap();
        assert!(!is_pruned(&directory, &before));
        prune(&directory, &before).unwrap();
        assert!(is_pruned(&directory, &before));
        assert_eq!(entries(&directory).unwrap(), before);
        assert!(Path::new("/etc").exists(), "links are not followed");
        fs::remove_dir_all(&directory).unwrap();
        prune(&directory, &before).unwrap();
    }
}
