//! Objects that are taken as they are, what the server adds to them, and what `kubectl get` shows.

use serde_json::{Value, json};

use super::server::ApiServer;

/// Pools as Karpenter's documentation shows them, for a Millpond node class, and the other kinds.
const OBJECTS: &str = include_str!("objects.yaml");

/// What is taken, completed, shown, scaled.
pub(crate) async fn check(server: &ApiServer) {
    let objects: Vec<Value> = serde_saphyr::from_multiple(OBJECTS).unwrap();
    let mut created = Vec::new();
    for object in &objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        let answer = server.create(object).await;
        assert_eq!(answer.code, 201, "{name}: {:#}", answer.body);
        assert_eq!(answer.warnings, [""; 0], "{name}");
        kept(&name, object, &answer.body);
        created.push(answer.body);
    }
    let find = |kind: &str, name: &str| {
        let mut all = created.iter();
        all.find(|object| object["kind"] == kind && object["metadata"]["name"] == name).expect(name).clone()
    };
    defaults(&find("NodePool", "general-purpose"), &find("CapacityBuffer", "web"), &find("NodeClass", "default"));
    columns_of_pools(server, find("NodePool", "general-purpose")).await;
    columns_of_claims(server, find("NodeClaim", "general-purpose-x7k2p")).await;
    columns_of_the_rest(server, &find).await;
    scaling(server, &find("NodePool", "fixed")).await;
    for object in &created {
        server.delete(object).await;
    }
}

/// Nothing of what was said is lost.
fn kept(name: &str, wanted: &Value, got: &Value) {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(got)) => {
            for (key, value) in wanted {
                kept(&format!("{name}.{key}"), value, got.get(key).unwrap_or_else(|| panic!("{name}.{key} is lost")));
            }
        }
        (Value::Array(wanted), Value::Array(got)) => {
            assert_eq!(wanted.len(), got.len(), "{name}");
            wanted.iter().zip(got).for_each(|(wanted, got)| kept(&format!("{name}[]"), wanted, got));
        }
        _ => assert_eq!(wanted, got, "{name}"),
    }
}

fn defaults(pool: &Value, buffer: &Value, class: &Value) {
    let disruption = json!({
        "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "10%"}],
    });
    assert_eq!(pool["spec"]["disruption"], disruption);
    assert_eq!(pool["spec"]["template"]["spec"]["expireAfter"], "720h");
    assert_eq!(buffer["spec"]["provisioningStrategy"], "buffer.x-k8s.io/active-capacity");
    assert_eq!(class["spec"]["backoff"], json!({"initial": "3m", "max": "30m"}));
    assert_eq!(class["spec"]["sim"]["interruptions"][0]["capacityType"], "spot");
}

fn ready() -> Value {
    json!([{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-11-16T04:30:00Z",
    }])
}

/// Writes a status, and shows the object with it.
async fn shown(server: &ApiServer, object: &Value, status: Value) -> Vec<(String, Value)> {
    let answer = server.merge(object, "/status", &json!({"status": status})).await;
    assert_eq!(answer.code, 200, "{:#}", answer.body);
    let mut table = server.table(object).await;
    // The age is the machine's business.
    table.retain(|(name, _)| name != "Age");
    table
}

fn is_shown(table: &[(String, Value)], expected: &[(&str, Value)]) {
    let table: Vec<_> = table.iter().map(|(name, cell)| (name.as_str(), cell.clone())).collect();
    assert_eq!(table, expected);
}

async fn columns_of_pools(server: &ApiServer, pool: Value) {
    let status = json!({"resources": {"cpu": "12", "memory": "48Gi"}, "conditions": ready()});
    let table = shown(server, &pool, status).await;
    is_shown(
        &table,
        &[
            ("Name", json!("general-purpose")),
            ("NodeClass", json!("default")),
            // The number is not reported.
            ("Nodes", json!("0")),
            ("Ready", json!("True")),
            ("Weight", json!(50)),
            ("CPU", json!("12")),
            ("Memory", json!("48Gi")),
        ],
    );
}

async fn columns_of_claims(server: &ApiServer, claim: Value) {
    let status = json!({
        "nodeName": "general-purpose-x7k2p", "providerID": "sim://default/i-1", "imageID": "sim-image-1",
        "capacity": {"cpu": "2"}, "allocatable": {"cpu": "1930m"}, "lastPodEventTime": "2026-11-16T04:30:00Z",
        "conditions": [
            ready()[0],
            // Karpenter leaves reason and message out of some.
            {"type": "Drifted", "status": "True", "lastTransitionTime": "2026-11-16T04:30:00Z", "reason": ""},
        ],
    });
    let table = shown(server, &claim, status).await;
    is_shown(
        &table,
        &[
            ("Name", json!("general-purpose-x7k2p")),
            ("Type", json!("m5.large")),
            ("Capacity", json!("spot")),
            ("Zone", json!("us-east-1a")),
            ("Node", json!("general-purpose-x7k2p")),
            ("Ready", json!("True")),
            ("ImageID", json!("sim-image-1")),
            ("ID", json!("sim://default/i-1")),
            ("NodePool", json!("general-purpose")),
            ("NodeClass", json!("default")),
            ("Drifted", json!("True")),
        ],
    );
}

async fn columns_of_the_rest(server: &ApiServer, find: &impl Fn(&str, &str) -> Value) {
    let class = find("NodeClass", "default");
    let table = shown(server, &class, json!({"instanceTypes": 144, "conditions": ready()})).await;
    is_shown(
        &table,
        &[
            ("Name", json!("default")),
            ("Provider", json!("sim")),
            ("Catalog", json!("aws")),
            ("Types", json!(144)),
            ("Ready", json!("True")),
            ("Image", json!("sim-image-2")),
        ],
    );
    let limits = find("ClusterLimits", "cluster");
    let used = json!({"used": {"nodes": "3", "cpu": "12", "memory": "48Gi"}, "dollarsPerHour": "1.25"});
    let table = shown(server, &limits, used).await;
    is_shown(
        &table,
        &[
            ("Name", json!("cluster")),
            ("Nodes", json!("3")),
            ("NodeLimit", json!("100")),
            ("Dollars/h", json!("1.25")),
            ("DollarLimit", json!("120.5")),
            ("CPU", json!("12")),
            ("CPULimit", json!("2k")),
            ("Memory", json!("48Gi")),
            ("MemoryLimit", Value::Null),
        ],
    );
    let buffer = find("CapacityBuffer", "web");
    let status = json!({"replicas": 2, "podTemplateRef": {"name": "web"}, "conditions": ready()});
    let table = shown(server, &buffer, status).await;
    assert_eq!(
        table[1..4].iter().map(|(_, cell)| cell.clone()).collect::<Vec<_>>(),
        [json!("buffer.x-k8s.io/active-capacity"), json!("web"), json!(2)]
    );
    let overlay = find("NodeOverlay", "discount");
    let table = shown(server, &overlay, json!({"conditions": ready()})).await;
    is_shown(&table, &[("Name", json!("discount")), ("Ready", json!("True")), ("Weight", json!(10))]);
    let constraint = find("ScalingConstraint", "shoot");
    let table = shown(server, &constraint, json!({"conditions": ready()})).await;
    is_shown(&table, &[("Name", json!("shoot")), ("Consumer", json!("mcm")), ("Ready", json!("True"))]);
    let table = shown(server, &find("ScalingAdvice", "shoot-1"), json!({"conditions": ready()})).await;
    is_shown(&table, &[("Name", json!("shoot-1")), ("Constraint", json!("shoot"))]);
}

/// `kubectl scale` of a static pool.
async fn scaling(server: &ApiServer, pool: &Value) {
    let scale = server.read(pool, "/scale").await;
    assert_eq!(scale.body["spec"]["replicas"], 3, "{:#}", scale.body);
    let answer = server.merge(pool, "/scale", &json!({"spec": {"replicas": 5}})).await;
    assert_eq!(answer.code, 200, "{:#}", answer.body);
    assert_eq!(server.read(pool, "").await.body["spec"]["replicas"], 5);
    let answer = server.merge(pool, "/status", &json!({"status": {"nodes": 4}})).await;
    assert_eq!(answer.code, 200, "{:#}", answer.body);
    assert_eq!(server.read(pool, "/scale").await.body["status"]["replicas"], 4);
}
