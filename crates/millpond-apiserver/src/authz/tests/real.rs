//! The recorded answers are what the real API server says.

use std::time::Duration;

use millpond_testkit::RealCluster;

use super::questions::{answer, differences, questions, set};

/// A file that the answers are written to, in place of being compared.
const RECORD: &str = "MILLPOND_TEST_RECORD";

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_questions_are_answered_as_recorded() {
    let builder = RealCluster::builder().controller_manager("clusterrole-aggregation-controller");
    let cluster = builder.start().unwrap();
    let client = cluster.client().await.unwrap();
    set(&client).await;
    if let Some(file) = std::env::var_os(RECORD) {
        // Until aggregation and the node authorizer have seen everything.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut lines = String::new();
        for question in questions() {
            lines += &answer(&client, &question).await;
            lines.push('\n');
        }
        std::fs::write(file, lines).unwrap();
        return;
    }
    let differences = differences(&client).await;
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
