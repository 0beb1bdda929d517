//! A builder that ends at any step: its successor finds nothing that stays for ever.

use std::time::Duration;

use super::*;

/// Runs a builder until a file appears, then ends it as a kill does: nothing of it runs on, its locks are free.
async fn kill_when(fixture: &Fixture, file: &str) {
    let (builder, session) = fixture.builder();
    let alive = Arc::downgrade(&builder);
    let running = tokio::spawn(builder.run(CancellationToken::new()));
    let path = fixture.path(file);
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    session.expire();
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    while alive.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The end state of every case: one build, uploaded once, with its files and no others.
async fn recovers(fixture: &Fixture) {
    fixture.script("dib", DIB);
    let (builder, _) = fixture.builder();
    settle(&builder).await;
    assert_eq!((fixture.builds(), fixture.uploads()), (vec![BuildState::Ready], vec![UploadState::Ready]));
    assert_eq!(fixture.in_cloud("fake-one").await.len(), 1);
    let files = fixture.files();
    assert_eq!(files.len(), 4, "{files:?}");
    let id = fixture.image().builds.keys().next().cloned().unwrap();
    assert!(files.iter().all(|file| file.contains(&id)), "{files:?}");
}

const WAIT: &str = "exec sleep 600\n";

#[tokio::test]
async fn before_the_command_has_made_anything() {
    let fixture = Fixture::new(ONE);
    fixture.script("dib", &format!("#!/bin/sh\n: > {}\n{WAIT}", fixture.path("there").display()));
    kill_when(&fixture, "there").await;
    assert_eq!(fixture.builds(), [BuildState::Building]);
    recovers(&fixture).await;
}

#[tokio::test]
async fn with_half_an_image() {
    let fixture = Fixture::new(ONE);
    let half = "while [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\nmkdir $out.d\necho half > $out.qcow2\n";
    fixture.script("dib", &format!("#!/bin/sh\n{half}: > {}\n{WAIT}", fixture.path("there").display()));
    kill_when(&fixture, "there").await;
    assert_eq!(fixture.files().len(), 2);
    recovers(&fixture).await;
}

#[tokio::test]
async fn during_an_upload() {
    let config = ONE.replace("    driver: fake\n", "    driver: fake\n    post-upload-hook: DIB-hook\n");
    let fixture = Fixture::new(&config);
    // The image is in the cloud, its record does not say so yet.
    fixture.script("dib-hook", &format!("#!/bin/sh\n: > {}\n{WAIT}", fixture.path("there").display()));
    kill_when(&fixture, "there").await;
    assert_eq!((fixture.uploads(), fixture.in_cloud("fake-one").await.len()), (vec![UploadState::Uploading], 1));
    fixture.script("dib-hook", "#!/bin/sh\n");
    recovers(&fixture).await;
}

#[tokio::test]
async fn while_it_stops_in_order() {
    let fixture = Fixture::new(ONE);
    fixture.script("dib", &format!("#!/bin/sh\n: > {}\n{WAIT}", fixture.path("there").display()));
    let (builder, _) = fixture.builder();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&builder).run(stop.clone()));
    while !fixture.path("there").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    running.await.unwrap();
    assert!(fixture.builds().is_empty() && fixture.files().is_empty());
    drop(builder);
    recovers(&fixture).await;
}
