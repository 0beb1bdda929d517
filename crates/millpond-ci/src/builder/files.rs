//! The images directory: files of builds, their checksums, the builder's id. File names are `IMAGE-BUILD.FORMAT`, with
//! `.md5` and `.sha256` beside them and a folder `IMAGE-BUILD.d`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use uuid::Uuid;

use super::command::output;

/// The file with the builder's id.
pub const ID_FILE: &str = "builder_id.txt";
/// Bytes that are read at a time for a checksum.
const CHUNK: usize = 1 << 20;

/// Errors with files of the builder.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The file system refuses.
    #[error("{verb} `{path}`")]
    Io {
        /// The operation.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Another builder has the same images directory.
    #[error("another builder runs with `{0}`")]
    InUse(PathBuf),
    /// The command left no image.
    #[error("the command made no file `{0}`")]
    Missing(PathBuf),
    /// The image is empty.
    #[error("the command left `{0}` empty")]
    Empty(PathBuf),
    /// The image is a link or a device.
    #[error("`{0}` is not a regular file in the images directory")]
    NotRegular(PathBuf),
    /// The file does not match its checksum.
    #[error("`{path}` does not match its checksum: {actual} instead of {expected}")]
    Checksum {
        /// The file.
        path: PathBuf,
        /// The sum in the checksum file.
        expected: String,
        /// The sum of the file.
        actual: String,
    },
}

fn io_error(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FilesError {
    let path = path.to_owned();
    move |source| FilesError::Io { verb, path, source }
}

/// The identity of a builder, kept as long as its images directory. One process at a time has it.
#[derive(Debug)]
pub struct Identity {
    /// The id.
    pub id: String,
    /// Locked until the process ends.
    _file: File,
}

impl Identity {
    /// Reads the id, or makes one.
    pub fn open(images: &Path) -> Result<Self, FilesError> {
        fs::create_dir_all(images).map_err(io_error("create", images))?;
        let path = images.join(ID_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io_error("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(FilesError::InUse(images.to_owned())),
            Err(fs::TryLockError::Error(source)) => return Err(FilesError::Io { verb: "lock", path, source }),
        }
        let mut id = String::new();
        file.read_to_string(&mut id).map_err(io_error("read", &path))?;
        if id.trim().is_empty() {
            id = Uuid::new_v4().to_string();
            file.write_all(id.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error("write", &path))?;
        }
        Ok(Self { id: id.trim().to_owned(), _file: file })
    }
}

/// A build with files on this disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalBuild {
    /// The image.
    pub image: String,
    /// The build.
    pub build: String,
}

/// Builds with files in the images directory, with the names of those files.
pub fn local_builds(images: &Path) -> Result<BTreeMap<LocalBuild, BTreeSet<String>>, FilesError> {
    let mut builds: BTreeMap<LocalBuild, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(images).map_err(io_error("list", images))? {
        let name = entry.map_err(io_error("list", images))?.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(build) = build_of(name) {
            builds.entry(build).or_default().insert(name.to_owned());
        }
    }
    Ok(builds)
}

/// The build that a file belongs to: `IMAGE-BUILD` with an optional end. Builds have 32 hexadecimal digits; those of old
/// versions have ten decimal ones.
fn build_of(name: &str) -> Option<LocalBuild> {
    let is_id = |id: &str| {
        (id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
            || (id.len() == 10 && id.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name.match_indices('-').rev().find_map(|(at, _)| {
        let rest = &name[at + 1..];
        let id = rest.split_once('.').map_or(rest, |(id, _)| id);
        (at > 0 && is_id(id)).then(|| LocalBuild { image: name[..at].to_owned(), build: id.to_owned() })
    })
}

/// The formats of a build that are on this disk.
pub fn local_formats(names: &BTreeSet<String>, build: &LocalBuild) -> BTreeSet<String> {
    let prefix = format!("{}-{}.", build.image, build.build);
    let formats = names.iter().filter_map(|name| name.strip_prefix(&prefix));
    formats.filter(|format| !format.contains('.') && *format != "d").map(ToOwned::to_owned).collect()
}

/// Deletes the files of a build that `doomed` names. Files that are gone already are no error.
pub fn delete(images: &Path, names: &BTreeSet<String>, doomed: &dyn Fn(&str) -> bool) -> Result<usize, FilesError> {
    let mut count = 0;
    for name in names.iter().filter(|name| doomed(name)) {
        let path = images.join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let done = if metadata.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match done {
            Ok(()) => count += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(FilesError::Io { verb: "delete", path, source }),
        }
    }
    Ok(count)
}

/// The file of a build in a format.
pub fn path(images: &Path, image: &str, build: &str, format: &str) -> PathBuf {
    let mut path = output(images, image, build).into_os_string();
    path.push(".");
    path.push(format);
    path.into()
}

/// Checksums of an image, as its files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checksums {
    /// MD5.
    pub md5: Option<String>,
    /// SHA-256.
    pub sha256: Option<String>,
}

/// The checksums in the files beside an image.
pub fn checksums(image: &Path) -> Checksums {
    let read = |end: &str, length: usize| {
        let mut path = image.as_os_str().to_owned();
        path.push(end);
        let text = fs::read_to_string(path).ok()?;
        let text = text.get(..length)?.to_ascii_lowercase();
        text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(text)
    };
    Checksums { md5: read(".md5", 32), sha256: read(".sha256", 64) }
}

/// Checks what a command left for one format: a regular file that is not empty and matches its SHA-256, which is written
/// beside it where the command did not. Blocks while it reads the file.
pub fn verify(image: &Path) -> Result<(), FilesError> {
    let metadata = match fs::symlink_metadata(image) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(FilesError::Missing(image.to_owned())),
        Err(error) => return Err(io_error("look at", image)(error)),
    };
    if !metadata.is_file() {
        return Err(FilesError::NotRegular(image.to_owned()));
    }
    if metadata.len() == 0 {
        return Err(FilesError::Empty(image.to_owned()));
    }
    let actual = sha256(image)?;
    match checksums(image).sha256 {
        Some(expected) if expected == actual => Ok(()),
        Some(expected) => Err(FilesError::Checksum { path: image.to_owned(), expected, actual }),
        None => write_sha256(image, &actual),
    }
}

fn write_sha256(image: &Path, sum: &str) -> Result<(), FilesError> {
    let mut path = image.as_os_str().to_owned();
    path.push(".sha256");
    let path = PathBuf::from(path);
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    fs::write(&path, format!("{sum}  {name}\n")).map_err(io_error("write", &path))
}

/// The SHA-256 of a file. Blocks while it reads.
pub fn sha256(path: &Path) -> Result<String, FilesError> {
    let mut file = File::open(path).map_err(io_error("open", path))?;
    let (mut context, mut chunk) = (Context::new(&SHA256), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk).map_err(io_error("read", path))? {
            0 => return Ok(hex(context.finish().as_ref())),
            count => context.update(&chunk[..count]),
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_builds() {
        let id = "0123456789abcdef0123456789abcdef";
        let cases = [
            (format!("fedora-{id}.qcow2"), Some("fedora")),
            (format!("fedora-{id}.qcow2.md5"), Some("fedora")),
            (format!("fedora-{id}.d"), Some("fedora")),
            (format!("fedora-{id}"), Some("fedora")),
            (format!("centos.8-stream-{id}.raw"), Some("centos.8-stream")),
            ("fedora-0000000001.raw".to_owned(), Some("fedora")),
            ("fedora-abc.raw".to_owned(), None),
            (format!("-{id}.raw"), None),
            (format!("fedora-{}.raw", id.to_uppercase()), None),
            (ID_FILE.to_owned(), None),
        ];
        for (name, image) in cases {
            assert_eq!(build_of(&name).map(|build| build.image).as_deref(), image, "{name}");
        }
    }

    #[test]
    fn images_are_verified() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("x.raw");
        assert!(matches!(verify(&image), Err(FilesError::Missing(_))));
        fs::write(&image, "").unwrap();
        assert!(matches!(verify(&image), Err(FilesError::Empty(_))));
        fs::write(&image, "fake-data\n").unwrap();
        verify(&image).unwrap();
        let sum = "0033e9d444953d11689b5fa6a6dba32bf901582f62b0825bc35f593190b1f7dc";
        assert_eq!(checksums(&image), Checksums { md5: None, sha256: Some(sum.to_owned()) });
        fs::write(&image, "half").unwrap();
        assert!(matches!(verify(&image), Err(FilesError::Checksum { .. })));
        fs::remove_file(&image).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &image).unwrap();
        assert!(matches!(verify(&image), Err(FilesError::NotRegular(_))));
    }

    #[test]
    fn one_process_has_an_identity() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity::open(folder.path()).unwrap();
        assert!(matches!(Identity::open(folder.path()), Err(FilesError::InUse(_))));
        let id = identity.id.clone();
        drop(identity);
        assert_eq!(Identity::open(folder.path()).unwrap().id, id);
        assert_eq!(fs::read_to_string(folder.path().join(ID_FILE)).unwrap(), id);
    }
}
