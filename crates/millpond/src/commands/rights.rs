//! The rights of hosts on the embedded API; another cluster takes them from `millpond install rbac`.

use anyhow::Context as _;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::Value;

/// Who these objects belong to.
const MANAGER: &str = "millpond";

/// Applies every object. What is there already is not written again.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    for object in millpond_hosts::rights::objects() {
        install_one(client, &object).await?;
    }
    Ok(())
}

async fn install_one(client: &Client, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind, name) = (text(&object["apiVersion"]), text(&object["kind"]), text(&object["metadata"]["name"]));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let plural = match kind.as_str() {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, &kind), &plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && group == "admissionregistration.k8s.io" => {
            tracing::debug!(kind, "is not served");
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("cannot put the {kind} `{name}` in place")),
    }
}
