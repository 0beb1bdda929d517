//! Which images to build, upload and delete, and why: pure functions of configuration, records and time.
//!
//! Nothing in this module considers locks: a decision that needs one is checked again once the lock is held.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::store::{BuildRecords, ImageRecords, LockKey, Records, UploadKey};
use crate::config::{Config, DiskImage, Provider, ProviderDetails, ProviderImage};
use crate::model::{BuildState, UploadState};

/// How many ready builds of an image are kept, and how many ready uploads per provider.
const KEPT: usize = 2;
/// How many failures in a row are remembered: more do not make the back-off longer.
pub const LIMIT_FAILURES: usize = 7;
/// The back-off after the first failed build; it doubles with each one that follows.
const BUILD_BACK_OFF_S: f64 = 60.0;
/// The back-off after the first failed upload.
const UPLOAD_BACK_OFF_S: f64 = 30.0;
/// The longest back-off.
const LONGEST_BACK_OFF_S: f64 = 3600.0;

/// Images and providers as the builder sees them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Images {
    /// Images by name.
    pub images: BTreeMap<String, Image>,
    /// Providers that take images, in the order of the file.
    pub providers: Vec<ImageProvider>,
}

/// An image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// Its settings.
    pub settings: DiskImage,
    /// The formats to build: its own and those that its providers take.
    pub formats: BTreeSet<String>,
}

/// A provider that takes images.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageProvider {
    /// Its name.
    pub name: String,
    /// The format that it takes.
    pub format: String,
    /// Its images, by name.
    pub images: BTreeMap<String, ProviderImage>,
}

impl Images {
    /// The images of a configuration. `format` gives what a provider takes; a provider without one is left out.
    pub fn of(config: &Config, format: &dyn Fn(&Provider) -> Option<String>) -> Self {
        let mut images: BTreeMap<String, Image> = config
            .diskimages
            .iter()
            .map(|(name, image)| {
                let formats = image.formats.iter().cloned().collect();
                (name.clone(), Image { settings: image.clone(), formats })
            })
            .collect();
        let mut providers = Vec::new();
        for provider in &config.providers {
            let ProviderDetails::OpenStack(details) = &provider.details else { continue };
            let Some(format) = format(provider) else { continue };
            let mut taken = BTreeMap::new();
            for image in &details.diskimages {
                if let Some(known) = images.get_mut(&image.name) {
                    known.formats.insert(format.clone());
                    taken.insert(image.name.clone(), image.clone());
                }
            }
            providers.push(ImageProvider { name: provider.name.clone(), format, images: taken });
        }
        Self { images, providers }
    }

    /// Probable mistakes: formats that no provider takes, images that are never built.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, image) in &self.images {
            let origin = &image.settings.origin;
            if image.formats.is_empty() {
                warnings.push(format!(
                    "{origin}: diskimage `{name}`: it has no formats and no provider takes it, so it is not built"
                ));
            }
            let takes = |format: &String| {
                self.providers.iter().any(|provider| provider.format == *format && provider.images.contains_key(name))
            };
            let kept = &image.settings.keep_formats;
            for format in image.settings.formats.iter().filter(|format| !takes(format) && !kept.contains(format)) {
                let origin = &image.settings.formats_origin;
                warnings.push(format!(
                    "{origin}: diskimage `{name}`: no provider takes the format `{format}`; it is built and not uploaded"
                ));
            }
        }
        warnings
    }
}

/// Failures in a row, and when the last one was.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Failures {
    /// How many.
    pub count: usize,
    /// When the last one was, in seconds since 1970.
    pub last: f64,
}

impl Failures {
    /// Another failure.
    pub fn add(&mut self, now: f64) {
        self.count += 1;
        self.last = now;
    }

    /// When it may be tried again.
    fn until(self, first_s: f64) -> f64 {
        let doublings = self.count.clamp(1, LIMIT_FAILURES) - 1;
        self.last + (first_s * f64::powi(2.0, doublings as i32)).min(LONGEST_BACK_OFF_S)
    }

    fn worse(self, other: Self) -> Self {
        Self { count: self.count.max(other.count), last: self.last.max(other.last) }
    }
}

/// Why an image is built now.
#[derive(Debug, Clone, PartialEq)]
pub enum BuildReason {
    /// A person asked for it.
    Requested,
    /// There is no ready build.
    NoBuild,
    /// The newest build is older than the image's rebuild-age.
    RebuildAge {
        /// Its age in seconds.
        age_s: u64,
    },
    /// The newest build lacks formats.
    MissingFormats(Vec<String>),
}

/// Why an image is not built now.
#[derive(Debug, Clone, PartialEq)]
pub enum IdleReason {
    /// The configuration pauses it.
    PausedByConfig,
    /// A person paused it.
    Paused,
    /// There is no format to build.
    NoFormats,
    /// The newest build is new enough.
    UpToDate {
        /// When it is built again, in seconds since 1970.
        until: f64,
    },
    /// Builds failed.
    BackOff {
        /// How many in a row.
        failures: usize,
        /// When it is built again, in seconds since 1970.
        until: f64,
    },
}

impl IdleReason {
    /// When the reason ends without an event.
    pub fn until(&self) -> Option<f64> {
        match self {
            Self::UpToDate { until } | Self::BackOff { until, .. } => Some(*until),
            Self::PausedByConfig | Self::Paused | Self::NoFormats => None,
        }
    }

    /// The reason in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::PausedByConfig | Self::Paused => "Paused",
            Self::NoFormats => "NoFormats",
            Self::UpToDate { .. } => "UpToDate",
            Self::BackOff { .. } => "BackOff",
        }
    }
}

impl BuildReason {
    /// The reason in one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Requested => "Requested",
            Self::NoBuild => "NoBuild",
            Self::RebuildAge { .. } => "RebuildAge",
            Self::MissingFormats(_) => "MissingFormats",
        }
    }
}

impl fmt::Display for BuildReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("a build was requested"),
            Self::NoBuild => f.write_str("there is no ready build"),
            Self::RebuildAge { age_s } => write!(f, "the newest build is {age_s} s old"),
            Self::MissingFormats(formats) => write!(f, "the newest build lacks {}", formats.join(", ")),
        }
    }
}

impl fmt::Display for IdleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PausedByConfig => f.write_str("the configuration pauses it"),
            Self::Paused => f.write_str("it is paused"),
            Self::NoFormats => f.write_str("it has no formats and no provider takes it"),
            Self::UpToDate { .. } => f.write_str("the newest build is not older than rebuild-age"),
            Self::BackOff { failures, .. } => write!(f, "{failures} builds in a row failed; it is tried again later"),
        }
    }
}

/// Whether an image is built now. `failures` are those that this builder remembers beside the records.
pub fn build(image: &Image, records: &ImageRecords, failures: Failures, now: f64) -> Result<BuildReason, IdleReason> {
    if image.settings.pause {
        return Err(IdleReason::PausedByConfig);
    }
    if records.paused {
        return Err(IdleReason::Paused);
    }
    if image.formats.is_empty() {
        return Err(IdleReason::NoFormats);
    }
    let newest = records.in_state(BuildState::Ready).first().map(|(_, build)| &build.record);
    let rebuild_age = image.settings.rebuild_age_s as f64;
    let reason = match newest {
        None => Some(BuildReason::NoBuild),
        Some(build) if now.floor() - build.state_time >= rebuild_age => {
            Some(BuildReason::RebuildAge { age_s: (now - build.state_time).max(0.0) as u64 })
        }
        Some(build) => {
            let missing: Vec<String> =
                image.formats.iter().filter(|format| !build.formats.contains(format)).cloned().collect();
            (!missing.is_empty()).then_some(BuildReason::MissingFormats(missing))
        }
    };
    let failures = failed_builds(records).worse(failures);
    let reason = match (records.request, reason) {
        // A build that an operator requested after the last failure does not wait.
        (Some(since), _) if since > failures.last => return Ok(BuildReason::Requested),
        (_, Some(reason)) => reason,
        (Some(_), None) => BuildReason::Requested,
        (None, None) => {
            let until = newest.map_or(now, |build| build.state_time + rebuild_age);
            return Err(IdleReason::UpToDate { until });
        }
    };
    let until = failures.until(BUILD_BACK_OFF_S);
    if failures.count > 0 && until > now {
        return Err(IdleReason::BackOff { failures: failures.count, until });
    }
    Ok(reason)
}

/// Builds that failed since the last one that did not.
fn failed_builds(records: &ImageRecords) -> Failures {
    let last_ready = last_ready(records);
    let failed = records.in_state(BuildState::Failed).into_iter().map(|(_, build)| build.record.state_time);
    let failed: Vec<f64> = failed.filter(|time| *time > last_ready).collect();
    Failures { count: failed.len(), last: failed.first().copied().unwrap_or(f64::MIN) }
}

fn last_ready(records: &ImageRecords) -> f64 {
    records.in_state(BuildState::Ready).first().map_or(f64::MIN, |(_, build)| build.record.state_time)
}

/// An upload to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadTask {
    /// The image.
    pub image: String,
    /// The build.
    pub build: String,
    /// The provider.
    pub provider: String,
    /// The format.
    pub format: String,
}

/// Uploads to make now, and when the next one that backs off is due. `is_local` returns whether this builder has the
/// file of a build in a format.
pub fn uploads(
    images: &Images,
    records: &Records,
    is_local: &dyn Fn(&str, &str, &str) -> bool,
    failures: &dyn Fn(&str, &str) -> Failures,
    now: f64,
) -> (Vec<UploadTask>, Option<f64>) {
    let (mut tasks, mut next): (Vec<UploadTask>, Option<f64>) = (Vec::new(), None);
    for provider in &images.providers {
        for (name, image) in &provider.images {
            let Some(records) = records.get(name).filter(|_| !image.pause) else { continue };
            let ready = records.in_state(BuildState::Ready);
            let Some((build, build_records)) = ready.first() else { continue };
            if !build_records.record.formats.contains(&provider.format)
                || build_records.newest_upload(&provider.name, UploadState::Ready).is_some()
                // Another worker is at it; if it is gone, the clean-up takes its record away.
                || build_records.newest_upload(&provider.name, UploadState::Uploading).is_some()
                || !is_local(name, build, &provider.format)
            {
                continue;
            }
            let failures = failed_uploads(build_records, &provider.name).worse(failures(build, &provider.name));
            let until = failures.until(UPLOAD_BACK_OFF_S);
            if failures.count > 0 && until > now {
                next = Some(next.map_or(until, |next| next.min(until)));
                continue;
            }
            tasks.push(UploadTask {
                image: name.clone(),
                build: (*build).to_owned(),
                provider: provider.name.clone(),
                format: provider.format.clone(),
            });
        }
    }
    (tasks, next)
}

fn failed_uploads(build: &BuildRecords, provider: &str) -> Failures {
    let uploads = build.uploads.get(provider).into_iter().flat_map(BTreeMap::values);
    let failed = uploads.filter(|upload| upload.state == UploadState::Failed).map(|upload| upload.state_time);
    let failed: Vec<f64> = failed.collect();
    Failures { count: failed.len(), last: failed.iter().copied().fold(f64::MIN, f64::max) }
}

/// A record to delete, with the files or the image that it describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cleanup {
    /// Delete an upload in the provider, then its record.
    Upload {
        /// The upload.
        key: UploadKey,
        /// Why.
        reason: CleanupReason,
        /// A lock that the builder that works on it holds; the upload is left alone while it is taken.
        unless_locked: Option<LockKey>,
    },
    /// Mark a build as being deleted, so that builders delete its files.
    MarkBuild {
        /// The image.
        image: String,
        /// The build.
        build: String,
        /// Why.
        reason: CleanupReason,
        /// A lock that the builder that works on it holds.
        unless_locked: Option<LockKey>,
    },
    /// Remove the record of a build without uploads.
    RemoveBuild {
        /// The image.
        image: String,
        /// The build.
        build: String,
    },
}

/// Why a build or an upload is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupReason {
    /// Newer ones are ready.
    Superseded,
    /// The image is no longer in the configuration, or not for this provider.
    NotConfigured,
    /// A person asked for it.
    Requested,
    /// It failed.
    Failed,
    /// Its builder is gone.
    Abandoned,
}

impl fmt::Display for CleanupReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superseded => "newer ones are ready",
            Self::NotConfigured => "it is no longer in the configuration",
            Self::Requested => "it was asked for",
            Self::Failed => "it failed",
            Self::Abandoned => "its builder is gone",
        })
    }
}

/// The deletions that are due.
pub fn cleanup(images: &Images, records: &Records) -> Vec<Cleanup> {
    let mut steps = Vec::new();
    for (name, image) in records {
        let recent = recent_uploads(image);
        let kept: BTreeSet<&str> = match images.images.get(name) {
            Some(_) => image.in_state(BuildState::Ready).into_iter().take(KEPT).map(|(id, _)| id).collect(),
            None => BTreeSet::new(),
        };
        let remembered = remembered_failures(image, images.images.contains_key(name));
        for (id, build) in &image.builds {
            let one = OneBuild { images, image: name, id, build, recent: &recent };
            one.cleanup(kept.contains(id.as_str()), remembered.contains(id.as_str()), &mut steps);
        }
    }
    steps
}

/// Failed builds that the back-off counts.
fn remembered_failures(image: &ImageRecords, is_configured: bool) -> BTreeSet<&str> {
    let last_ready = last_ready(image);
    let failed = image.in_state(BuildState::Failed).into_iter();
    let failed = failed.filter(|(_, build)| is_configured && build.record.state_time > last_ready);
    failed.take(LIMIT_FAILURES).map(|(id, _)| id).collect()
}

/// The newest ready uploads of each provider, as pairs of build and upload.
fn recent_uploads(image: &ImageRecords) -> BTreeSet<(String, String, String)> {
    let mut ready: BTreeMap<&str, Vec<(f64, &str, &str)>> = BTreeMap::new();
    for (build, records) in image.in_state(BuildState::Ready) {
        for (provider, id, upload) in records.all_uploads() {
            if upload.state == UploadState::Ready {
                ready.entry(provider).or_default().push((upload.state_time, build, id));
            }
        }
    }
    let mut recent = BTreeSet::new();
    for (provider, mut uploads) in ready {
        uploads.sort_by(|one, other| other.0.total_cmp(&one.0));
        let newest = uploads.into_iter().take(KEPT);
        recent.extend(newest.map(|(_, build, id)| (provider.to_owned(), build.to_owned(), id.to_owned())));
    }
    recent
}

struct OneBuild<'a> {
    images: &'a Images,
    image: &'a str,
    id: &'a str,
    build: &'a BuildRecords,
    recent: &'a BTreeSet<(String, String, String)>,
}

impl OneBuild<'_> {
    fn cleanup(&self, is_kept: bool, is_remembered: bool, steps: &mut Vec<Cleanup>) {
        let state = self.build.record.state;
        let goes = !is_kept && !is_remembered;
        for provider in &self.images.providers {
            let is_configured = provider.images.contains_key(self.image);
            let uploads = self.build.uploads.get(&provider.name).into_iter().flatten();
            let mut failed: Vec<(f64, &str)> = Vec::new();
            for (id, upload) in uploads {
                let is_recent = self.recent.contains(&(provider.name.clone(), self.id.to_owned(), id.clone()));
                let reason = match upload.state {
                    UploadState::Deleting => Some(CleanupReason::Requested),
                    _ if !is_configured => Some(CleanupReason::NotConfigured),
                    _ if state == BuildState::Deleting && !is_recent => Some(CleanupReason::Superseded),
                    UploadState::Uploading => Some(CleanupReason::Abandoned),
                    UploadState::Failed if is_kept => {
                        failed.push((upload.state_time, id));
                        None
                    }
                    UploadState::Failed => Some(CleanupReason::Failed),
                    UploadState::Ready if goes && !is_recent => Some(CleanupReason::Superseded),
                    UploadState::Ready => None,
                };
                if let Some(reason) = reason {
                    steps.push(self.upload(&provider.name, id, upload.state, reason));
                }
            }
            // Failures that the back-off counts stay until an upload succeeds.
            failed.sort_by(|one, other| other.0.total_cmp(&one.0));
            let succeeded = self.build.newest_upload(&provider.name, UploadState::Ready).is_some();
            let remembered = if succeeded { 0 } else { LIMIT_FAILURES };
            for (_, id) in failed.into_iter().skip(remembered) {
                steps.push(self.upload(&provider.name, id, UploadState::Failed, CleanupReason::Failed));
            }
        }
        if goes {
            self.end(steps);
        }
    }

    fn upload(&self, provider: &str, id: &str, state: UploadState, reason: CleanupReason) -> Cleanup {
        let (image, build, provider) = (self.image.to_owned(), self.id.to_owned(), provider.to_owned());
        let key = UploadKey { image, build, provider, id: id.to_owned() };
        let lock =
            || LockKey::Uploads { image: key.image.clone(), build: key.build.clone(), provider: key.provider.clone() };
        let unless_locked = (state == UploadState::Uploading).then(lock);
        Cleanup::Upload { key, reason, unless_locked }
    }

    /// A build that is not needed any more: its files go as soon as all its uploads do, its record after them.
    fn end(&self, steps: &mut Vec<Cleanup>) {
        let state = self.build.record.state;
        let mut uploads = self.build.all_uploads().peekable();
        let none = uploads.peek().is_none();
        let lock = || LockKey::Image(self.image.to_owned());
        let (image, build) = (self.image.to_owned(), self.id.to_owned());
        if state != BuildState::Deleting && uploads.all(|(_, _, upload)| upload.state == UploadState::Deleting) {
            let is_configured = self.images.images.contains_key(self.image);
            let reason = match state {
                BuildState::Building => CleanupReason::Abandoned,
                BuildState::Failed => CleanupReason::Failed,
                _ if !is_configured => CleanupReason::NotConfigured,
                _ => CleanupReason::Superseded,
            };
            let unless_locked = (state == BuildState::Building).then(lock);
            steps.push(Cleanup::MarkBuild { image, build, reason, unless_locked });
        } else if state == BuildState::Deleting && none {
            steps.push(Cleanup::RemoveBuild { image, build });
        }
    }
}

/// How the files of a build on this builder's disk are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalFiles {
    /// All of them are deleted.
    Delete,
    /// Those in other formats than these are deleted.
    Keep(BTreeSet<String>),
    /// None is deleted.
    Leave,
}

/// How the files of a build are treated. `build` is its record, if there is one.
pub fn local_files(images: &Images, image: &str, build: Option<&BuildRecords>) -> LocalFiles {
    let Some(build) = build else { return LocalFiles::Delete };
    match build.record.state {
        BuildState::Deleting | BuildState::Failed => LocalFiles::Delete,
        BuildState::Building => LocalFiles::Leave,
        BuildState::Ready => {
            let settings = images.images.get(image).map(|image| &image.settings);
            let Some(settings) = settings.filter(|settings| settings.delete_after_upload) else {
                return LocalFiles::Leave;
            };
            let mut kept: BTreeSet<String> = settings.keep_formats.iter().cloned().collect();
            for provider in images.providers.iter().filter(|provider| provider.images.contains_key(image)) {
                if build.newest_upload(&provider.name, UploadState::Ready).is_none() {
                    kept.insert(provider.format.clone());
                }
            }
            LocalFiles::Keep(kept)
        }
    }
}
