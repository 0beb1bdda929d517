//! Logs of builds: `IMAGE-BUILD.log` in the log directory, the newest ones of each image kept.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where logs are if the configuration does not say.
pub const DEFAULT_DIR: &str = "/var/log/nodepool/builds";
/// How many logs of an image are kept if the configuration does not say.
pub const DEFAULT_RETENTION: i64 = 7;

/// The log directory and its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    /// The directory.
    pub dir: PathBuf,
    /// How many logs of an image are kept; negative keeps all.
    pub retention: i64,
}

/// A log, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

impl Logs {
    /// The name of a build's log.
    pub fn name(image: &str, build: &str) -> String {
        format!("{image}-{build}.log")
    }

    /// The path of a build's log.
    pub fn path(&self, image: &str, build: &str) -> PathBuf {
        self.dir.join(Self::name(image, build))
    }

    /// Makes the directory, and room for one more log of an image.
    pub fn prune(&self, image: &str) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let Ok(keep) = usize::try_from(self.retention) else { return Ok(()) };
        let mut logs: Vec<LogFile> = self.list()?.into_iter().filter(|log| is_log_of(&log.name, image)).collect();
        logs.sort_by_key(|log| log.modified);
        let surplus = logs.len().saturating_sub(keep.max(1));
        for log in &logs[..surplus] {
            match fs::remove_file(self.dir.join(&log.name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => tracing::info!(log = log.name, "deleted an old build log"),
            }
        }
        Ok(())
    }

    /// All logs, by name.
    pub fn list(&self) -> io::Result<Vec<LogFile>> {
        let mut logs = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
            if metadata.is_file() && is_log(&name) {
                logs.push(LogFile { name, size: metadata.len(), modified: metadata.modified()? });
            }
        }
        logs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(logs)
    }

    /// Opens a log by the name that a client asks for. Names that are no log's are not found.
    pub fn open(&self, name: &str) -> io::Result<fs::File> {
        if !is_log(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let path = self.dir.join(name);
        // A link could lead anywhere.
        if !fs::symlink_metadata(&path)?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        fs::File::open(path)
    }
}

fn is_log(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "log")
        && !name.starts_with('.')
        && !name.contains(['/', '\\', '\0'])
}

/// Whether a log is of this image, and not of one whose name has the same beginning.
fn is_log_of(name: &str, image: &str) -> bool {
    let build = name.strip_prefix(image).and_then(|rest| rest.strip_prefix('-'));
    build.and_then(|rest| rest.strip_suffix(".log")).is_some_and(|build| !build.contains('-'))
}

/// The last `bytes` bytes of a log, without a partial first line.
pub fn tail(path: &Path, bytes: u64) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if length <= bytes {
        return Ok(text);
    }
    Ok(text.split_once('\n').map_or(text.clone(), |(_, whole_lines)| whole_lines.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_logs_of_one_image_go() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs { dir: folder.path().join("logs"), retention: 2 };
        logs.prune("a").unwrap();
        for (index, name) in ["a-1.log", "a-2.log", "a-3.log", "a-b-1.log", "a-4.txt"].iter().enumerate() {
            let file = fs::File::create(logs.dir.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(index as u64)).unwrap();
        }
        logs.prune("a").unwrap();
        let names: Vec<String> = logs.list().unwrap().into_iter().map(|log| log.name).collect();
        assert_eq!(names, ["a-2.log", "a-3.log", "a-b-1.log"]);
        Logs { retention: -1, ..logs.clone() }.prune("a").unwrap();
        assert_eq!(logs.list().unwrap().len(), 3);
        assert!(logs.open("a-2.log").is_ok());
        for name in ["../x.log", "a-4.txt", "none.log", ".log", "/etc/passwd"] {
            assert_eq!(logs.open(name).unwrap_err().kind(), io::ErrorKind::NotFound, "{name}");
        }
    }

    #[test]
    fn tails_have_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "first\nsecond\nthird\n").unwrap();
        assert_eq!(tail(&path, 100).unwrap(), "first\nsecond\nthird\n");
        assert_eq!(tail(&path, 10).unwrap(), "third\n");
    }
}
