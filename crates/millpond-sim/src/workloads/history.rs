//! Revisions of a pod template, kept as ControllerRevisions.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::claim::claim;
use super::deployment::revision::drop_empty;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::kinds::{Kind, template_of_tree, template_tree};
use crate::meta::{Key, controller_reference};
use crate::name_generator::hash_name;
use crate::scheduler::fit::labels::Selector;

/// The label that says of which revision a pod is.
pub const REVISION_LABEL: &str = "controller-revision-hash";
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The revisions of a workload.
pub struct History {
    /// All revisions, the oldest first.
    pub all: Vec<Arc<ControllerRevision>>,
    /// The one that holds the current template.
    pub update: Arc<ControllerRevision>,
    /// How often a hash was taken by something else.
    pub collisions: i32,
}

impl History {
    /// Finds the revision with this template, making it or moving it to the front.
    pub async fn sync<O: Kind>(
        cluster: &Cluster,
        owner: &O,
        selector: &Selector,
        template: &PodTemplateSpec,
        collisions: i32,
    ) -> Result<Self> {
        let mut all = claim(&cluster.revisions, owner, selector, |_| true).await?;
        all.sort_by_key(|revision| (revision.revision, revision.name_any()));
        let data = data_of(template);
        let newest = all.last().map_or(0, |revision| revision.revision);
        let equal = all.iter().rposition(|revision| holds(revision, &data));
        let (update, collisions) = match equal {
            Some(index) if index + 1 == all.len() => (Arc::clone(&all[index]), collisions),
            Some(index) => {
                let patch = json!({"revision": newest + 1});
                let moved = cluster.revisions.patch(&Key::of(&*all[index]), &patch).await?;
                all.remove(index);
                all.push(Arc::clone(&moved));
                (moved, collisions)
            }
            None => {
                let (made, collisions) = create(cluster, owner, template, &data, newest + 1, collisions).await?;
                all.push(Arc::clone(&made));
                (made, collisions)
            }
        };
        Ok(Self { all, update, collisions })
    }

    /// Deletes the oldest revisions beyond `limit` that nothing uses.
    pub async fn truncate(&self, cluster: &Cluster, in_use: &BTreeSet<String>, limit: i32) -> Result<()> {
        let unused: Vec<_> = self.all.iter().filter(|revision| !in_use.contains(&revision.name_any())).collect();
        let excess = unused.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
        for revision in unused.into_iter().take(excess) {
            cluster.revisions.delete(revision, None).await?;
        }
        Ok(())
    }
}

/// The hash of a revision, as pods of DaemonSets carry it.
pub fn hash_of(revision: &ControllerRevision) -> String {
    let labels = revision.labels();
    labels.get(REVISION_LABEL).or_else(|| labels.get(HASH_LABEL)).cloned().unwrap_or_else(|| revision.name_any())
}

/// The template that a revision holds.
pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    template_of_tree(&template)
}

/// The form in which Kubernetes keeps a template: a patch that replaces it.
fn data_of(template: &PodTemplateSpec) -> Value {
    let mut template = template_tree(template);
    drop_empty(&mut template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

fn holds(revision: &ControllerRevision, data: &Value) -> bool {
    revision.data.as_ref().is_some_and(|held| {
        let mut held = held.0.clone();
        drop_empty(&mut held);
        if let Some(meta) = held.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut) {
            meta.remove("creationTimestamp");
        }
        held == *data
    })
}

async fn create<O: Kind>(
    cluster: &Cluster,
    owner: &O,
    template: &PodTemplateSpec,
    data: &Value,
    number: i64,
    mut collisions: i32,
) -> Result<(Arc<ControllerRevision>, i32)> {
    loop {
        let hash = hash_name(format!("{data}{collisions}").as_bytes());
        let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        labels.insert(REVISION_LABEL.to_owned(), hash.clone());
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", owner.name_any())),
                namespace: owner.namespace(),
                labels: Some(labels),
                owner_references: Some(vec![controller_reference(owner)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data.clone())),
            revision: number,
        };
        match cluster.revisions.create(&revision).await {
            Ok(made) => return Ok((made, collisions)),
            Err(error) if error.is_already_exists() => collisions += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_survives_its_revision() {
        let template: PodTemplateSpec = serde_json::from_value(json!({
            "metadata": {"labels": {"app": "db"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": []},
        }))
        .expect("a template");
        let revision = ControllerRevision { data: Some(RawExtension(data_of(&template))), ..Default::default() };
        assert!(holds(&revision, &data_of(&template)));
        let back = template_of(&revision).expect("a template");
        assert_eq!(back.metadata, template.metadata);
        assert_eq!(back.spec.expect("a spec").containers, template.spec.clone().expect("a spec").containers);
        let mut other = template;
        other.spec.as_mut().expect("a spec").containers[0].image = Some("j".into());
        assert!(!holds(&revision, &data_of(&other)));
    }
}
