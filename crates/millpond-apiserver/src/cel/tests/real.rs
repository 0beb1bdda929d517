//! The recordings are what the real API server says.

use millpond_testkit::RealCluster;

use super::recording::{KARPENTER, RULES, cases, differences};

#[tokio::test]
#[ignore = "needs the real cluster"]
async fn real_rules_are_answered_as_recorded() {
    let cluster = RealCluster::builder().start().unwrap();
    let client = cluster.client().await.unwrap();
    let mut all = Vec::new();
    for (number, case) in cases(RULES).iter().chain(&cases(KARPENTER)).enumerate() {
        all.extend(differences(&client, case, number).await);
    }
    assert!(all.is_empty(), "{} differences:\n{}", all.len(), all.join("\n"));
}
