//! From configuration to cloud and back.

use super::super::store::{ImageStore as _, Write};
use super::*;

#[tokio::test]
async fn an_image_is_built_and_uploaded() {
    let fixture = Fixture::new(ONE);
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    let image = fixture.image();
    let (id, build) = image.builds.first_key_value().unwrap();
    let record = &build.record;
    assert_eq!((record.state, record.formats.join(",").as_str()), (BuildState::Ready, "qcow2"));
    assert_eq!((record.builder.as_deref(), record.builder_id.as_deref()), (Some("nb01"), Some(builder.id())));
    assert_eq!((record.username.as_deref(), record.python_path.as_deref()), (Some("zuul"), Some("auto")));
    let (provider, upload_id, upload) = build.all_uploads().next().unwrap();
    assert_eq!((provider, upload_id, upload.state), ("fake-one", "0000000001", UploadState::Ready));
    assert_eq!(upload.external_name.as_deref(), Some("test-1000000"));
    let cloud = fixture.in_cloud("fake-one").await;
    assert_eq!(upload.external_id.as_deref(), Some(cloud[0].id.as_str()));
    let properties: Vec<_> = cloud[0].properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let expected = [
        "az=one",
        "kind=ci",
        &format!("nodepool_build_id={id}"),
        "nodepool_provider_name=fake-one",
        "nodepool_upload_id=0000000001",
    ];
    assert_eq!(properties, expected);
    let out = fixture.images().join(format!("test-{id}"));
    let log = format!(
        "argv: -x -t qcow2 --checksum --no-tmpfs --qemu-img-options compat=0.10 -o {} base vm\nExit code: 0\n",
        out.display()
    );
    assert_eq!(fixture.log(0), log);
    assert_eq!(image.newest_ready_upload("fake-one").map(|(build, ..)| build), Some(id.as_str()));
}

#[tokio::test]
async fn the_environment_is_the_originals() {
    let fixture = Fixture::new(ONE);
    fixture.script(
        "dib",
        &format!(
            "#!/bin/sh\nenv | grep -E '^(DIB_|ELEMENTS|TMPDIR|EXTRA)' | sort\npwd\n{}",
            DIB.replace("#!/bin/sh", "")
        ),
    );
    fixture.configure(&format!("elements-dir: /elements\n{ONE}"));
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    let log = fixture.log(0);
    let id = fixture.image().builds.keys().next().cloned().unwrap();
    let cwd = std::env::current_dir().unwrap();
    let expected = format!(
        "DIB_IMAGE_FILENAME={}/test-{id}\nDIB_IMAGE_NAME=test\nDIB_RELEASE=21\nELEMENTS_PATH=/elements\nEXTRA=1\nTMPDIR=/tmp\n{}\n",
        fixture.images().display(),
        cwd.display()
    );
    assert!(log.starts_with(&expected), "{log}");
}

#[tokio::test]
async fn two_builds_are_kept() {
    let fixture = Fixture::new(ONE);
    let (builder, _) = fixture.builder();
    for _ in 0..4 {
        settle(&builder).await;
        fixture.pass(90_000.0);
    }
    assert_eq!(fixture.builds(), [BuildState::Ready, BuildState::Ready]);
    assert_eq!(fixture.uploads(), [UploadState::Ready, UploadState::Ready]);
    assert_eq!(fixture.in_cloud("fake-one").await.len(), 2);
    let files = fixture.files();
    assert_eq!(files.len(), 8, "{files:?}");
}

#[tokio::test]
async fn failed_builds_back_off() {
    let fixture = Fixture::new(ONE);
    fixture.script("dib", "#!/bin/sh\nfor o; do :; done\necho broken\nexit 7\n");
    let (builder, session) = fixture.builder();
    settle(&builder).await;
    assert_eq!(fixture.builds(), [BuildState::Failed]);
    assert_eq!(fixture.log(0), "broken\nmillpond: the command ended with exit code 7\nExit code: 7\n");
    fixture.pass(59.0);
    settle(&builder).await;
    assert_eq!(fixture.builds().len(), 1);
    fixture.pass(2.0);
    settle(&builder).await;
    assert_eq!(fixture.builds().len(), 2);
    fixture.pass(61.0);
    settle(&builder).await;
    assert_eq!(fixture.builds().len(), 2);
    // What is asked for does not wait, even where an earlier request stands, and what succeeds ends it.
    for builds in [3, 4] {
        session.write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
        settle(&builder).await;
        assert_eq!(fixture.builds().len(), builds);
        fixture.pass(1.0);
    }
    session.write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
    fixture.script("dib", DIB);
    settle(&builder).await;
    assert_eq!(fixture.builds(), [BuildState::Ready]);
    assert_eq!(fixture.image().request, None);
    assert_eq!(fixture.uploads(), [UploadState::Ready]);
}

#[tokio::test]
async fn what_is_no_image_is_not_uploaded() {
    let fixture = Fixture::new(ONE);
    let out = "while [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done";
    let cases = [
        ("true", "the command made no file"),
        (": > $out.qcow2", "empty"),
        ("ln -s /etc/passwd $out.qcow2", "is not a regular file in the images directory"),
        (
            "echo half > $out.qcow2; echo 'ab' > $out.qcow2.sha256; seq 20 | sha256sum > $out.qcow2.sha256",
            "does not match its checksum",
        ),
    ];
    for (script, problem) in cases {
        fixture.script("dib", &format!("#!/bin/sh\n{out}\n{script}\n"));
        let (builder, _) = fixture.builder();
        settle(&builder).await;
        let last = fixture.image().builds.len() - 1;
        let log = fixture.log(last);
        assert!(log.contains(problem) && log.ends_with("Exit code: 0\n"), "{log}");
        assert!(fixture.files().is_empty(), "{:?}", fixture.files());
        fixture.pass(10_000.0);
    }
    assert!(fixture.uploads().is_empty());
}

#[tokio::test]
async fn commands_that_are_not_there_are_named() {
    let fixture = Fixture::new(&ONE.replace("dib-cmd: DIB", "dib-cmd: /no/such/command"));
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    assert_eq!(fixture.builds(), [BuildState::Failed]);
    assert_eq!(fixture.log(0), "millpond: the command `/no/such/command` of dib-cmd is not there\nExit code: 127\n");
}

#[tokio::test]
async fn long_builds_are_ended() {
    let fixture = Fixture::new(&ONE.replace("dib-cmd: DIB", "dib-cmd: sleep 600\n    build-timeout: 1"));
    fixture.script("sleep", "#!/bin/sh\nsleep 600\n");
    let text = std::fs::read_to_string(fixture.path("nodepool.yaml")).unwrap();
    let script = fixture.path("sleep").display().to_string();
    std::fs::write(fixture.path("nodepool.yaml"), text.replace("sleep 600", &script)).unwrap();
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    assert_eq!(fixture.builds(), [BuildState::Failed]);
    assert_eq!(fixture.log(0), "millpond: the command took longer than build-timeout, 1 s\nExit code: 1\n");
}

#[tokio::test]
async fn pauses_hold() {
    let fixture = Fixture::new(ONE);
    let (builder, session) = fixture.builder();
    session.write(Write::Pause { image: "test".to_owned(), paused: true }).await.unwrap();
    session.write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
    settle(&builder).await;
    assert!(fixture.builds().is_empty() && fixture.image().request.is_some());
    session.write(Write::Pause { image: "test".to_owned(), paused: false }).await.unwrap();
    settle(&builder).await;
    assert_eq!((fixture.builds().len(), fixture.image().request), (1, None));
}

#[tokio::test]
async fn files_go_after_the_upload() {
    let config = ONE.replace(
        "    release: 21\n",
        "    release: 21\n    formats: [qcow2, raw]\n    keep-formats: [raw]\n    delete-after-upload: true\n",
    );
    let fixture = Fixture::new(&config);
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    let ends: Vec<String> = fixture.files().iter().map(|name| name.split_once('.').unwrap().1.to_owned()).collect();
    assert_eq!(ends, ["d", "raw", "raw.md5", "raw.sha256"]);
}

#[tokio::test]
async fn what_is_deleted_goes_everywhere() {
    let fixture = Fixture::new(ONE);
    let (builder, session) = fixture.builder();
    settle(&builder).await;
    // An image that leaves the configuration of its provider.
    std::fs::write(fixture.images().join("test-0123456789abcdef0123456789abcdef.qcow2.md5"), "leaked").unwrap();
    fixture.configure("diskimages: []\nproviders: [{name: fake-one, driver: fake, cloud: fake}]\n");
    builder.clean(&builder.source.current()).await.unwrap();
    assert!(fixture.image().builds.is_empty());
    assert!(fixture.files().is_empty() && fixture.in_cloud("fake-one").await.is_empty());
    drop(session);
}

#[tokio::test]
async fn failed_uploads_back_off() {
    let fixture = Fixture::new(&ONE.replace("meta: {az: one}", "meta: {SHOULD_FAIL: 'true'}"));
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    assert_eq!(fixture.uploads(), [UploadState::Failed]);
    fixture.pass(29.0);
    settle(&builder).await;
    assert_eq!(fixture.uploads().len(), 1);
    fixture.pass(2.0);
    settle(&builder).await;
    assert_eq!(fixture.uploads(), [UploadState::Failed, UploadState::Failed]);
    fixture.configure(ONE);
    fixture.pass(100.0);
    settle(&builder).await;
    assert_eq!(fixture.uploads(), [UploadState::Ready]);
}

#[tokio::test]
async fn a_hook_that_fails_takes_the_upload_back() {
    let fixture =
        Fixture::new(&ONE.replace("    driver: fake\n", "    driver: fake\n    post-upload-hook: DIB-hook\n"));
    fixture.script("dib-hook", "#!/bin/sh\necho no >&2; exit 1\n");
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    assert_eq!(fixture.uploads(), [UploadState::Failed]);
    assert!(fixture.in_cloud("fake-one").await.is_empty());
    fixture.script("dib-hook", &format!("#!/bin/sh\necho \"$*\" > {}\n", fixture.path("hooked").display()));
    fixture.pass(100.0);
    settle(&builder).await;
    let id = fixture.in_cloud("fake-one").await[0].id.clone();
    let hooked = std::fs::read_to_string(fixture.path("hooked")).unwrap();
    assert!(hooked.starts_with(&format!("fake-one {id} ")) && hooked.trim().contains(".qcow2"), "{hooked}");
}

#[tokio::test]
async fn secrets_are_not_logged() {
    let fixture = Fixture::new(ONE);
    fixture.script("dib", "#!/bin/sh\necho \"the token is $TOKEN\"\nexit 1\n");
    std::fs::write(fixture.path("secure.conf"), "diskimages: [{name: test, env-vars: {TOKEN: hunter2}}]\n").unwrap();
    let clouds = Arc::new(TestClouds { images: fixture.images(), credentials: fixture.path("clouds.yaml") });
    let source =
        Source::open(&fixture.path("nodepool.yaml"), Some(&fixture.path("secure.conf")), Path::new("/package"), clouds);
    let settings = Settings {
        source: source.unwrap(),
        identity: Identity::open(&fixture.images()).unwrap(),
        store: fixture.memory.session(),
        hostname: "nb01".to_owned(),
        build_workers: 1,
        upload_workers: 1,
        ansible: Ansible { ssh: SshFolder(fixture.path("ssh")), config_dir: fixture.folder.path().to_owned() },
        now: Arc::new(|| 1.0),
    };
    settle(&Builder::new(settings).unwrap()).await;
    assert!(fixture.log(0).starts_with("the token is ***\n"), "{}", fixture.log(0));
}

#[tokio::test]
async fn exports_come_back() {
    use super::super::operate;
    let fixture = Fixture::new(ONE);
    let (builder, session) = fixture.builder();
    settle(&builder).await;
    session.write(Write::Pause { image: "test".to_owned(), paused: true }).await.unwrap();
    let data = operate::export(&fixture.records());
    assert_eq!(data.len(), 3);
    let other = Memory::new(Arc::new(|| 0.0));
    let copy = other.session();
    operate::import(&*copy, &data).await.unwrap();
    assert_eq!(operate::export(&other.records()), data);
    // Later uploads get later ids.
    let build = other.records()["test"].builds.keys().next().cloned().unwrap();
    let record = crate::model::ImageUpload::new(UploadState::Uploading, 0.0);
    let create = Write::CreateUpload { image: "test".to_owned(), build, provider: "fake-one".to_owned(), record };
    assert_eq!(copy.write(create).await.unwrap(), "0000000002");
    let broken = serde_json::json!({"/nodepool/images/x/builds/y": "{}"});
    assert!(operate::import(&*copy, broken.as_object().unwrap()).await.is_err());
}

#[tokio::test]
async fn several_builders_build_once() {
    let fixture = Fixture::new(ONE);
    let stop = CancellationToken::new();
    let (first, _) = fixture.builder();
    let second = {
        let other = fixture.path("other");
        std::fs::create_dir(&other).unwrap();
        let text = std::fs::read_to_string(fixture.path("nodepool.yaml")).unwrap();
        let text = text.replace(&fixture.images().display().to_string(), &other.display().to_string());
        std::fs::write(fixture.path("other.yaml"), text).unwrap();
        let clouds = Arc::new(TestClouds { images: fixture.images(), credentials: fixture.path("clouds.yaml") });
        let now = Arc::clone(&fixture.now);
        let settings = Settings {
            source: Source::open(&fixture.path("other.yaml"), None, Path::new("/package"), clouds).unwrap(),
            identity: Identity::open(&other).unwrap(),
            store: fixture.memory.session(),
            hostname: "nb02".to_owned(),
            build_workers: 1,
            upload_workers: 1,
            ansible: Ansible { ssh: SshFolder(fixture.path("ssh")), config_dir: fixture.folder.path().to_owned() },
            now: Arc::new(move || *now.lock()),
        };
        Builder::new(settings).unwrap()
    };
    let (one, other) = (first.source.current(), second.source.current());
    let (a, b) = tokio::join!(first.build_due(&one, &stop), second.build_due(&other, &stop));
    a.unwrap();
    b.unwrap();
    assert_eq!(fixture.builds(), [BuildState::Ready]);
}

#[tokio::test]
async fn changed_credentials_make_the_clouds_anew() {
    let fixture = Fixture::new(ONE);
    let (builder, _) = fixture.builder();
    let before = builder.source.current();
    assert!(Arc::ptr_eq(&before, &builder.source.current()));
    std::fs::write(fixture.path("clouds.yaml"), "clouds: {}\n").unwrap();
    let after = builder.source.current();
    assert!(!Arc::ptr_eq(&before.clouds["fake-one"], &after.clouds["fake-one"]));
    assert!(Arc::ptr_eq(&after, &builder.source.current()));
}

#[tokio::test]
async fn metrics_have_the_names_of_software_factory() {
    let fixture = Fixture::new(ONE);
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    let text = builder.metrics();
    for line in [
        r#"nodepool_dib_image_build_status_rc{diskimage="test"} 0"#,
        r#"nodepool_dib_image_build_status_duration{diskimage="test"} 0"#,
        r#"nodepool_dib_image_build_status_last_build{diskimage="test"} 1000000"#,
        r#"nodepool_dib_image_build_size{diskimage="test",ext="qcow2"} 14"#,
        r#"nodepool_image_update_count{image="test",provider="fake-one"} 1"#,
        "nodepool_image_build_requests 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    }
    // The code of a command that fails, and of one that leaves no image.
    for (script, code) in [("#!/bin/sh\nexit 7\n", 7), ("#!/bin/sh\n", 1)] {
        fixture.script("dib", script);
        fixture.memory.session().write(Write::RequestBuild { image: "test".to_owned() }).await.unwrap();
        fixture.pass(7200.0);
        settle(&builder).await;
        let line = format!("nodepool_dib_image_build_status_rc{{diskimage=\"test\"}} {code}\n");
        assert!(builder.metrics().contains(&line), "{}", builder.metrics());
    }
    assert!(builder.metrics().contains("nodepool_image_build_requests 1\n"));
}
