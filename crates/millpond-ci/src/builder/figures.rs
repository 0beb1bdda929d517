//! What the builder has measured, as Prometheus metrics under the names that Software Factory's statsd exporter gives to
//! Nodepool's.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use parking_lot::Mutex;

/// Since the builder started.
#[derive(Debug, Default)]
pub(super) struct Figures {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last build of each image.
    builds: BTreeMap<String, LastBuild>,
    /// Bytes of the last image by image and format.
    sizes: BTreeMap<(String, String), u64>,
    /// Uploads that succeeded by image and provider: how many, and their seconds together.
    uploads: BTreeMap<(String, String), (u64, f64)>,
    /// Builds that are asked for.
    requests: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct LastBuild {
    code: i32,
    duration_s: f64,
    ended: f64,
}

impl Figures {
    /// A build ended with this exit code; one of a command that left no image is not 0.
    pub(super) fn built(&self, image: &str, code: i32, began: f64, ended: f64) {
        let last = LastBuild { code, duration_s: ended - began, ended };
        self.state.lock().builds.insert(image.to_owned(), last);
    }

    /// An image has so many bytes.
    pub(super) fn sized(&self, image: &str, format: &str, bytes: u64) {
        self.state.lock().sizes.insert((image.to_owned(), format.to_owned()), bytes);
    }

    /// An upload took so many seconds.
    pub(super) fn uploaded(&self, image: &str, provider: &str, seconds: f64) {
        let mut state = self.state.lock();
        let (count, sum) = state.uploads.entry((image.to_owned(), provider.to_owned())).or_default();
        (*count, *sum) = (*count + 1, *sum + seconds);
    }

    /// So many builds are asked for now.
    pub(super) fn requested(&self, builds: usize) {
        self.state.lock().requests = builds;
    }

    /// All of it as text.
    pub(super) fn text(&self) -> String {
        let state = self.state.lock();
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
            let _ = writeln!(out, "# HELP nodepool_{name} {help}.\n# TYPE nodepool_{name} {kind}");
            for (series, value) in samples {
                let _ = writeln!(out, "nodepool_{name}{series} {value}");
            }
        };
        let of_builds = |figure: &dyn Fn(&LastBuild) -> f64| -> Vec<(String, f64)> {
            let builds = state.builds.iter();
            builds.map(|(image, last)| (labels(&[("diskimage", image)]), figure(last))).collect()
        };
        let codes = of_builds(&|last| f64::from(last.code));
        family("dib_image_build_status_rc", "gauge", "Exit code of the last build", codes);
        let durations = of_builds(&|last| last.duration_s * 1000.0);
        family("dib_image_build_status_duration", "gauge", "Milliseconds of the last build", durations);
        let ended = of_builds(&|last| last.ended.floor());
        family("dib_image_build_status_last_build", "gauge", "When the last build ended, in seconds since 1970", ended);
        let sizes = state.sizes.iter();
        let sizes = sizes.map(|((image, ext), bytes)| (labels(&[("diskimage", image), ("ext", ext)]), *bytes as f64));
        family("dib_image_build_size", "gauge", "Bytes of the last image", sizes.collect());
        let uploads = state.uploads.iter().flat_map(|((image, provider), (count, sum))| {
            let labels = labels(&[("image", image), ("provider", provider)]);
            [(format!("_count{labels}"), *count as f64), (format!("_sum{labels}"), *sum)]
        });
        family("image_update", "summary", "Seconds of uploads that succeeded", uploads.collect());
        let requests = vec![(String::new(), state.requests as f64)];
        family("image_build_requests", "gauge", "Builds that are asked for", requests);
        out
    }
}

fn labels(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", labels.join(","))
}
