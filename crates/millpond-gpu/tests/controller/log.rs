//! What the controller logs of a decision: the lines of the operator that the kind comes from.

use std::io::{self, Write};
use std::sync::Arc;

use millpond_gpu::controller::Options;
use parking_lot::Mutex;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::cluster::Cluster;

/// The lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// The lines about a GPUInfo so far.
    fn of(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).expect("text");
        let field = format!(" gpuinfo=\"default/{name}\"");
        text.lines().filter_map(|line| line.trim().strip_suffix(&field)).map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_logged_once_in_the_words_of_the_tutorial() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .with_level(false)
        .with_target(false)
        .without_time()
        .finish();
    // For all tests of this process, whose lines have other names: tracing remembers of a line that a thread without a
    // subscriber reached it first, and then leaves it out for a subscriber of another thread.
    tracing::subscriber::set_global_default(subscriber).expect("the only one");
    let mut cluster = Cluster::start_virtual().await;
    cluster.node("a", 1, json!({})).await;
    cluster.node("b", 1, json!({})).await;
    cluster.node("c", 2, json!({})).await;
    cluster.node("d", 0, json!({})).await;
    cluster.run(Options::default());
    cluster.ask("logged-sample", json!({"desAccTime": 100, "gpuRequired": true})).await;
    cluster.until_node("logged-sample", "a").await;
    let decided = [
        r#"received reconcile request for "logged-sample" (namespace: "default")"#,
        "DEBUG: found 4 nodes in cluster",
        "Found a total of *** 3 *** suitable candidates for the long running job",
        "DEBUG: multiple candidates : Node b is not the winning candidate",
        "DEBUG: multiple candidates : Node c is not the winning candidate",
    ];
    assert_eq!(lines.of("logged-sample"), decided);
    cluster.ask("logged-none", json!({"desAccTime": 100, "gpuRequired": true, "gpuCount": 3})).await;
    cluster.until_node("logged-none", "None available").await;
    let refused = [
        r#"received reconcile request for "logged-none" (namespace: "default")"#,
        "DEBUG: found 4 nodes in cluster",
        "Found  *** NO *** suitable candidates for the long running job",
    ];
    assert_eq!(lines.of("logged-none"), refused);
    cluster.ask("logged-one", json!({"desAccTime": 100, "gpuRequired": false})).await;
    cluster.until_node("logged-one", "d").await;
    assert_eq!(
        lines.of("logged-one")[2..],
        ["Found a total of *** 1 *** suitable candidates for the long running job"]
    );
    // Later passes decide the same, and log nothing.
    assert_eq!(lines.of("logged-sample"), decided);
    // Of many others a few are named.
    for at in 0..12 {
        cluster.node(&format!("plain-{at:02}"), 0, json!({})).await;
    }
    cluster.ask("logged-many", json!({"desAccTime": 100, "gpuRequired": false})).await;
    cluster.until_node("logged-many", "d").await;
    let many = lines.of("logged-many");
    assert_eq!(many.len(), 3 + 10 + 1, "{many:#?}");
    assert_eq!(many[13], "DEBUG: multiple candidates : 2 more are not the winning candidate");
    cluster.halt().await;
}
