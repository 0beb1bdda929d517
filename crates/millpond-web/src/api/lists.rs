//! Lists of other dialects: own hosts, GPU jobs, CI nodes. The API server makes the tables, as it does for kubectl, and
//! the user's own client asks for them.

use http::Request;
use http::header::ACCEPT;
use kube::Client;
use serde_json::{Value, json};

use crate::respond::Problem;

/// A list: its path below the API of the dashboard, and the path of its kind in the API of Kubernetes.
const LISTS: &[(&[&str], &str)] = &[
    (&["hosts"], "/apis/infrastructure.cluster.x-k8s.io/v1beta1/byohosts"),
    (&["gpus"], "/apis/topology.corinternal.com/v1/gpuinfoes"),
    (&["ci", "requests"], "/apis/millpond.dev/v1alpha1/noderequests"),
    (&["ci", "nodes"], "/apis/millpond.dev/v1alpha1/cinodes"),
    (&["ci", "images"], "/apis/millpond.dev/v1alpha1/diskimages"),
    (&["ci", "builds"], "/apis/millpond.dev/v1alpha1/imagebuilds"),
];
/// Rows of a page; the answer says that there are more.
const MOST: usize = 2_000;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The list at a path, if there is one: titles of columns, and rows of texts.
pub(super) async fn list(client: &Client, path: &[&str]) -> Option<Result<Value, Problem>> {
    let (_, kind) = LISTS.iter().find(|(of, _)| *of == path)?;
    let request = Request::get(format!("{kind}?limit={MOST}")).header(ACCEPT, TABLE).body(Vec::new());
    let request = request.expect("the path is a constant");
    Some(match client.request::<Value>(request).await {
        Ok(table) => Ok(shown(&table)),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Ok(json!({ "columns": [], "rows": [], "message": "the cluster does not have this kind" }))
        }
        Err(error) => Err(error.into()),
    })
}

/// A table of Kubernetes with the columns that kubectl shows without `-o wide`.
fn shown(table: &Value) -> Value {
    let all = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (at, columns): (Vec<usize>, Vec<String>) = all
        .iter()
        .enumerate()
        .filter(|(_, column)| column["priority"].as_i64().unwrap_or(0) == 0)
        .map(|(at, column)| (at, column["name"].as_str().unwrap_or_default().to_uppercase()))
        .unzip();
    let text = |cell: &Value| match cell {
        Value::Null => Value::Null,
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    };
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<Value>> = rows.iter().map(|row| at.iter().map(|at| text(&row["cells"][*at])).collect()).collect();
    let mut body = json!({ "columns": columns, "rows": rows });
    if let Some(rest) = table["metadata"]["remainingItemCount"].as_i64() {
        body["message"] = json!(format!("{rest} more are not shown"));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_are_left_out_and_cells_are_text() {
        let table = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "UID", "priority": 1}, {"name": "CPU", "priority": 0}],
            "rows": [{"cells": ["a", "x", 4]}, {"cells": ["b", "y", null]}],
            "metadata": {"remainingItemCount": 3},
        });
        let expected = json!({
            "columns": ["NAME", "CPU"], "rows": [["a", "4"], ["b", null]], "message": "3 more are not shown",
        });
        assert_eq!(shown(&table), expected);
    }
}
