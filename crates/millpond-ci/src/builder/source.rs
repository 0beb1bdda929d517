//! The configuration of a running builder: read again when its files or the credentials of clouds change, kept as it was
//! while they are wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::cloud::{Clouds, ImageCloud};
use super::command::Folders;
use super::decide::Images;
use super::logs::{DEFAULT_DIR, DEFAULT_RETENTION, Logs};
use crate::config::{self, Config, File, Provider};

/// The files of a configuration.
pub struct Source {
    main: PathBuf,
    secure: Option<PathBuf>,
    package: PathBuf,
    clouds: Arc<dyn Clouds>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<Option<SystemTime>>,
    loaded: Option<Arc<Loaded>>,
}

/// A configuration as the builder uses it.
pub struct Loaded {
    /// Images and providers.
    pub images: Images,
    /// The configuration.
    pub config: Config,
    /// Folders that commands depend on.
    pub folders: Folders,
    /// Build logs.
    pub logs: Logs,
    /// Clouds by provider.
    pub clouds: BTreeMap<String, Arc<dyn ImageCloud>>,
}

/// Why a configuration cannot be used: everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SourceError(pub Vec<String>);

impl Loaded {
    /// A provider of the configuration.
    pub fn provider(&self, name: &str) -> Option<&Provider> {
        self.config.providers.iter().find(|provider| provider.name == name)
    }
}

impl Source {
    /// Reads the files for the first time. `package` is the value of `%p` in commands.
    pub fn open(
        main: &Path,
        secure: Option<&Path>,
        package: &Path,
        clouds: Arc<dyn Clouds>,
    ) -> Result<Self, SourceError> {
        let source = Self {
            main: main.to_owned(),
            secure: secure.map(ToOwned::to_owned),
            package: package.to_owned(),
            clouds,
            state: Mutex::default(),
        };
        let seen = source.times();
        let loaded = source.read()?;
        *source.state.lock() = State { seen, loaded: Some(Arc::new(loaded)) };
        Ok(source)
    }

    /// The configuration of now. Files that changed are read again; if they are wrong, the one before stays.
    pub fn current(&self) -> Arc<Loaded> {
        let mut state = self.state.lock();
        let seen = self.times();
        let before = state.loaded.clone().expect("`open` has read it");
        if seen == state.seen {
            return before;
        }
        state.seen = seen;
        match self.read() {
            Ok(loaded) if loaded.folders.images != before.folders.images => {
                let (old, new) = (before.folders.images.display(), loaded.folders.images.display());
                tracing::error!(%old, %new, "images-dir has changed: start the builder again to use it");
                before
            }
            Ok(loaded) => {
                tracing::info!(file = %self.main.display(), "configuration read again");
                state.loaded.insert(Arc::new(loaded)).clone()
            }
            Err(error) => {
                for problem in &error.0 {
                    tracing::error!("{problem}; the configuration before it stays in use");
                }
                before
            }
        }
    }

    fn times(&self) -> Vec<Option<SystemTime>> {
        let time = |path: &PathBuf| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let credentials = self.clouds.credentials();
        std::iter::once(&self.main).chain(&self.secure).chain(&credentials).map(time).collect()
    }

    fn read(&self) -> Result<Loaded, SourceError> {
        let main = read_file(&self.main)?;
        let secure = self.secure.as_ref().map(read_file).transpose()?;
        let secure = secure.as_ref().map(|(name, text)| File { name, text });
        let env = |name: &str| std::env::var(name).ok();
        let reading = config::read(File { name: &main.0, text: &main.1 }, secure, &env);
        for warning in &reading.warnings {
            tracing::warn!("{warning}");
        }
        let config = reading.valid().map_err(|errors| SourceError(errors.iter().map(ToString::to_string).collect()))?;
        let Some(images_dir) = config.builder.images_dir.clone().filter(|dir| !dir.is_empty()) else {
            return Err(SourceError(vec![format!("{}: `images-dir` is missing", main.0)]));
        };
        let mut clouds = BTreeMap::new();
        let images = Images::of(&config, &|provider| match self.clouds.format(provider) {
            Ok(format) => Some(format),
            Err(error) => {
                tracing::error!(provider = provider.name, "the provider takes no images: {error}");
                None
            }
        });
        for provider in
            config.providers.iter().filter(|provider| images.providers.iter().any(|takes| takes.name == provider.name))
        {
            match self.clouds.open(provider, Path::new(&images_dir)) {
                Ok(cloud) => drop(clouds.insert(provider.name.clone(), cloud)),
                Err(error) => tracing::error!(provider = provider.name, "the provider takes no images: {error}"),
            }
        }
        for warning in images.warnings() {
            tracing::warn!("{warning}");
        }
        let folders = Folders {
            images: PathBuf::from(images_dir),
            elements: config.builder.elements_dir.clone(),
            package: self.package.clone(),
        };
        let logs = Logs {
            dir: config.builder.build_log_dir.clone().unwrap_or_else(|| DEFAULT_DIR.to_owned()).into(),
            retention: config.builder.build_log_retention.unwrap_or(DEFAULT_RETENTION),
        };
        Ok(Loaded { images, config, folders, logs, clouds })
    }
}

fn read_file(path: &PathBuf) -> Result<(String, String), SourceError> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(SourceError(vec![format!("read `{name}`: {error}")])),
    }
}
