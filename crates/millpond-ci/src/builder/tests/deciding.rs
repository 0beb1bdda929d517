//! Decisions on records alone.

use std::collections::BTreeMap;

use super::super::decide::{self, Cleanup, Failures, Images, LocalFiles};
use super::super::store::{BuildRecords, ImageRecords};
use super::*;
use crate::config::{File, read};
use crate::model::{ImageBuild, ImageUpload};

const CONFIG: &str = "
diskimages:
  - {name: base, abstract: true, elements: [fedora], rebuild-age: 3600}
  - {name: test, parent: base, formats: [raw]}
  - {name: odd, formats: [vhd]}
  - {name: none}
  - {name: paused, pause: true, formats: [raw]}
providers:
  - {name: cloud, driver: openstack, cloud: c, diskimages: [{name: test}]}
  - {name: cloud-raw, driver: openstack, cloud: c, diskimages: [{name: test, pause: true}]}
";

fn images() -> Images {
    let config = read(File { name: "nodepool.yaml", text: CONFIG }, None, &|_| None).valid().unwrap();
    Images::of(&config, &|provider| Some(if provider.name.ends_with("raw") { "raw" } else { "qcow2" }.to_owned()))
}

fn built(state: BuildState, time: f64, formats: &[&str]) -> BuildRecords {
    let mut record = ImageBuild::new(state, time);
    record.formats = formats.iter().map(|format| (*format).to_owned()).collect();
    BuildRecords::new(record)
}

fn records<const N: usize>(builds: [(&str, BuildRecords); N]) -> ImageRecords {
    let builds = builds.into_iter().map(|(id, build)| (id.to_owned(), build)).collect();
    ImageRecords { builds, ..ImageRecords::default() }
}

fn with_upload(mut build: BuildRecords, provider: &str, id: &str, state: UploadState, time: f64) -> BuildRecords {
    build.uploads.entry(provider.to_owned()).or_default().insert(id.to_owned(), ImageUpload::new(state, time));
    build
}

fn decide(name: &str, records: &ImageRecords, failures: Failures, now: f64) -> String {
    match decide::build(&images().images[name], records, failures, now) {
        Ok(reason) => format!("build: {reason}"),
        Err(idle) => format!("idle until {:?}: {idle}", idle.until()),
    }
}

#[test]
fn formats_are_those_of_image_and_providers() {
    let images = images();
    let formats: Vec<&str> = images.images["test"].formats.iter().map(String::as_str).collect();
    assert_eq!(formats, ["qcow2", "raw"]);
    insta::assert_snapshot!(images.warnings().join("\n"), @r"
    nodepool.yaml:6:12: diskimage `none`: it has no formats and no provider takes it, so it is not built
    nodepool.yaml:5:26: diskimage `odd`: no provider takes the format `vhd`; it is built and not uploaded
    nodepool.yaml:7:42: diskimage `paused`: no provider takes the format `raw`; it is built and not uploaded
    ");
}

#[test]
fn when_an_image_is_built() {
    let none = Failures::default();
    let fresh = records([("a", built(BuildState::Ready, 1000.0, &["qcow2", "raw"]))]);
    let mut asked = fresh.clone();
    asked.request = Some(1100.0);
    let mut paused = asked.clone();
    paused.paused = true;
    let lacking = records([("a", built(BuildState::Ready, 1000.0, &["qcow2"]))]);
    let failing = records([
        ("a", built(BuildState::Ready, 900.0, &["qcow2"])),
        ("b", built(BuildState::Failed, 1000.0, &[])),
        ("c", built(BuildState::Failed, 1060.0, &[])),
        ("old", built(BuildState::Failed, 800.0, &[])),
    ]);
    let mut asked_before = failing.clone();
    asked_before.request = Some(1050.0);
    let lines = [
        decide("test", &ImageRecords::default(), none, 1000.0),
        decide("test", &fresh, none, 1001.0),
        decide("test", &fresh, none, 4600.0),
        decide("test", &lacking, none, 1001.0),
        decide("test", &asked, none, 1200.0),
        decide("test", &paused, none, 1200.0),
        decide("test", &failing, none, 1070.0),
        decide("test", &failing, none, 1180.0),
        decide("test", &asked_before, none, 1070.0),
        decide("test", &lacking, Failures { count: 20, last: 1000.0 }, 1070.0),
        decide("none", &ImageRecords::default(), none, 0.0),
        decide("paused", &asked, none, 1200.0),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    build: there is no ready build
    idle until Some(4600.0): the newest build is not older than rebuild-age
    build: the newest build is 3600 s old
    build: the newest build lacks raw
    build: a build was requested
    idle until None: it is paused
    idle until Some(1180.0): 2 builds in a row failed; it is tried again later
    build: the newest build lacks raw
    idle until Some(1180.0): 2 builds in a row failed; it is tried again later
    idle until Some(4600.0): 20 builds in a row failed; it is tried again later
    idle until None: it has no formats and no provider takes it
    idle until None: the configuration pauses it
    ");
}

#[test]
fn the_newest_build_is_uploaded() {
    let images = images();
    let both = ["qcow2", "raw"];
    let image = records([
        ("old", built(BuildState::Ready, 1000.0, &both)),
        ("new", with_upload(built(BuildState::Ready, 2000.0, &both), "cloud", "1", UploadState::Failed, 2010.0)),
    ]);
    let records = BTreeMap::from([("test".to_owned(), image)]);
    let none = |_: &str, _: &str| Failures::default();
    let at = |now: f64, local: bool| {
        let (tasks, next) = decide::uploads(&images, &records, &|_, _, _| local, &none, now);
        let tasks: Vec<String> =
            tasks.iter().map(|task| format!("{} {} {}", task.build, task.provider, task.format)).collect();
        (tasks, next)
    };
    assert_eq!(at(2020.0, true), (vec![], Some(2040.0)));
    assert_eq!(at(2040.0, true), (vec!["new cloud qcow2".to_owned()], None));
    assert_eq!(at(2040.0, false), (vec![], None));
}

fn steps(images: &Images, image: ImageRecords) -> Vec<String> {
    let records = BTreeMap::from([("test".to_owned(), image)]);
    let step = |step: &Cleanup| match step {
        Cleanup::Upload { key, reason, unless_locked } => {
            let lock = if unless_locked.is_some() { " unless locked" } else { "" };
            format!("upload {}/{}/{}: {reason}{lock}", key.build, key.provider, key.id)
        }
        Cleanup::MarkBuild { build, reason, unless_locked, .. } => {
            let lock = if unless_locked.is_some() { " unless locked" } else { "" };
            format!("mark {build}: {reason}{lock}")
        }
        Cleanup::RemoveBuild { build, .. } => format!("remove {build}"),
    };
    decide::cleanup(images, &records).iter().map(step).collect()
}

#[test]
fn what_is_deleted() {
    let images = images();
    let ready = |time: f64| built(BuildState::Ready, time, &["qcow2"]);
    let up = |build: BuildRecords, state: UploadState, time: f64| with_upload(build, "cloud", "1", state, time);
    let image = records([
        ("a", up(ready(1.0), UploadState::Ready, 1.0)),
        // The newer builds are not uploaded yet: this one's upload stays, and so does its record.
        ("b", up(ready(2.0), UploadState::Ready, 2.0)),
        ("c", up(ready(3.0), UploadState::Ready, 3.0)),
        ("d", up(ready(4.0), UploadState::Uploading, 4.0)),
        ("e", built(BuildState::Building, 5.0, &[])),
        ("f", built(BuildState::Failed, 6.0, &[])),
        ("g", built(BuildState::Failed, 0.5, &[])),
        ("h", built(BuildState::Deleting, 1.5, &[])),
        ("i", up(built(BuildState::Deleting, 1.6, &[]), UploadState::Deleting, 1.6)),
        ("j", up(ready(0.1), UploadState::Deleting, 0.1)),
    ]);
    insta::assert_snapshot!(steps(&images, image).join("\n"), @r"
    upload a/cloud/1: newer ones are ready
    upload d/cloud/1: its builder is gone unless locked
    mark e: its builder is gone unless locked
    mark g: it failed
    remove h
    upload i/cloud/1: it was asked for
    upload j/cloud/1: it was asked for
    mark j: newer ones are ready
    ");
}

#[test]
fn what_left_the_configuration_is_deleted() {
    let mut images = images();
    let build = with_upload(built(BuildState::Ready, 1.0, &["qcow2"]), "cloud", "1", UploadState::Ready, 1.0);
    images.providers[0].images.clear();
    let image = || records([("a", build.clone())]);
    assert_eq!(steps(&images, image()), ["upload a/cloud/1: it is no longer in the configuration"]);
    images.images.remove("test");
    let bare = records([("a", built(BuildState::Ready, 1.0, &["qcow2"]))]);
    assert_eq!(steps(&images, bare), ["mark a: it is no longer in the configuration"]);
}

#[test]
fn failures_that_count_stay() {
    let images = images();
    let mut build = built(BuildState::Ready, 1.0, &["qcow2"]);
    for id in 1..=9 {
        build = with_upload(build, "cloud", &id.to_string(), UploadState::Failed, f64::from(id));
    }
    let failed = steps(&images, records([("a", build.clone())]));
    assert_eq!(failed, ["upload a/cloud/2: it failed", "upload a/cloud/1: it failed"]);
    let succeeded = with_upload(build, "cloud", "x", UploadState::Ready, 99.0);
    assert_eq!(steps(&images, records([("a", succeeded)])).len(), 9);
}

#[test]
fn files_of_builds() {
    let mut images = images();
    let ready = built(BuildState::Ready, 1.0, &["qcow2", "raw"]);
    let decide = |images: &Images, build: &BuildRecords| decide::local_files(images, "test", Some(build));
    assert_eq!(decide::local_files(&images, "test", None), LocalFiles::Delete);
    assert_eq!(decide(&images, &built(BuildState::Failed, 1.0, &[])), LocalFiles::Delete);
    assert_eq!(decide(&images, &built(BuildState::Building, 1.0, &[])), LocalFiles::Leave);
    assert_eq!(decide(&images, &ready), LocalFiles::Leave);
    images.images.get_mut("test").unwrap().settings.delete_after_upload = true;
    let kept = |formats: &[&str]| LocalFiles::Keep(formats.iter().map(|format| (*format).to_owned()).collect());
    assert_eq!(decide(&images, &ready), kept(&["qcow2", "raw"]));
    let uploaded = with_upload(ready, "cloud", "1", UploadState::Ready, 1.0);
    assert_eq!(decide(&images, &uploaded), kept(&["raw"]));
}
