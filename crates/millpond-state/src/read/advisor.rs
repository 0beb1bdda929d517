//! Documents of Scaling Advisor, which have no `kind`: a request, a snapshot of a cluster, a constraint.

use millpond_api::meta::Invalid;
use serde::Deserialize;

use super::de::Mistake;
use super::tree::Tree;
use super::{Places, Reader, json};
use crate::objects::advisor::{Request, Snapshot};
use crate::objects::{Kind, Object};

/// The kind of a document that names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `{constraint, snapshot}`.
    Request,
    /// `{pods, nodes, …}`.
    Snapshot,
}

fn form(has: impl Fn(&[&str]) -> bool) -> Option<Form> {
    if has(&["snapshot", "constraint"]) {
        return Some(Form::Request);
    }
    let parts = ["pods", "nodes", "pvs", "pvcs", "storageClasses", "priorityClasses", "runtimeClasses"];
    has(&parts).then_some(Form::Snapshot)
}

impl Reader {
    /// Reads a JSON object without a kind; false if it is none of these.
    pub(super) fn kindless_json(&mut self, places: &Places<'_>, object: &str) -> bool {
        let tree = || json::tree(object, places.of(object)).ok();
        let read = match form(|keys| json::has_key(object, keys)) {
            Some(Form::Request) => serde_json::from_str(object).map(|request| (request, "snapshot.")),
            Some(Form::Snapshot) => serde_json::from_str(object).map(|snapshot| (request(snapshot), "")),
            None => return tree().is_some_and(|tree| self.kindless_tree(&tree)),
        };
        match read {
            Ok((request, prefix)) => {
                self.advisor(request, prefix, &mut |field, here| tree().is_some_and(|tree| here(&tree, field)));
            }
            // Parse again to report the error with its position.
            Err(_) => return tree().is_some_and(|tree| self.kindless_tree(&tree)),
        }
        true
    }

    /// The same of a tree.
    pub(super) fn kindless_tree(&mut self, tree: &Tree<'_>) -> bool {
        let read = match form(|keys| keys.iter().any(|key| tree.get(key).is_some())) {
            Some(Form::Request) => Request::deserialize(tree).map(|request| (request, "snapshot.")),
            Some(Form::Snapshot) => Snapshot::deserialize(tree).map(|snapshot| (request(snapshot), "")),
            None if tree.get("spec").is_some_and(|spec| spec.get("nodePools").is_some()) => {
                self.tree_object(tree, Kind::ScalingConstraint);
                return true;
            }
            None => return false,
        };
        match read {
            Ok((request, prefix)) => self.advisor(request, prefix, &mut |field, here| here(tree, field)),
            Err(mistake) => self.mistake(mistake, tree, None),
        }
        true
    }

    fn advisor(
        &mut self,
        request: Request<'_>,
        prefix: &str,
        locate: &mut dyn FnMut(&str, &mut dyn FnMut(&Tree<'_>, &str) -> bool) -> bool,
    ) {
        let constraint = request
            .constraint
            .map(|constraint| ("constraint".to_owned(), Object::ScalingConstraint(Box::new(constraint))));
        let objects = request.snapshot.into_iter().flat_map(Snapshot::objects);
        let objects = objects.map(|(place, object)| (format!("{prefix}{place}"), object));
        for (place, object) in constraint.into_iter().chain(objects) {
            self.take(&object, None, &mut |reader, invalid| {
                // In these documents, fields of metadata and spec are on the same level.
                let flat = invalid.field.strip_prefix("spec.").or_else(|| invalid.field.strip_prefix("metadata."));
                let inner = if place == "constraint" { &invalid.field } else { flat.unwrap_or(&invalid.field) };
                let field = format!("{place}.{inner}");
                let problem = invalid.problem.clone();
                locate(&field, &mut |tree, field| {
                    reader.invalid(&object, tree, Invalid::new(field, problem.clone()));
                    true
                });
            });
        }
    }

    /// Says what could not be read.
    pub(super) fn mistake(&mut self, mistake: Mistake, tree: &Tree<'_>, kind: Option<Kind>) {
        use super::{Diagnostic, Severity, de};
        let place = mistake.place.unwrap_or(tree.place);
        let name = tree.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Tree::text);
        let mut diagnostic = Diagnostic::new(Severity::Error, &self.file(), place, mistake.problem)
            .field(&mistake.field)
            .text(&mistake.text);
        diagnostic.object = kind.zip(name).map(|(kind, name)| format!("{}/{}", kind.name(), de::shorten(name)));
        self.say(diagnostic);
    }
}

fn request(snapshot: Snapshot<'_>) -> Request<'_> {
    Request { constraint: None, snapshot: Some(snapshot) }
}
