//! Reset fields: what a resource ignores in a request, so that a request cannot own it.
//!
//! The main resource ignores status, the status subresource ignores the spec. A few kinds ignore more, and
//! two subresources of Pod ignore everything but a few fields.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::fields::FieldSet;
use super::path::PathElement;

/// Fields that a request to a resource or subresource neither changes nor owns.
#[derive(Debug, Clone, Default)]
pub enum Reset {
    /// Every field counts.
    #[default]
    Nothing,
    /// All fields count except these and those below them.
    Fields(FieldSet<'static>),
    /// Only what lies on, or below, these paths counts.
    AllBut(&'static [&'static [Step]]),
}

/// One step of the path to a field that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This field.
    Field(&'static str),
    /// Anything: the items of a list.
    Any,
}

static NOTHING: Reset = Reset::Nothing;
static STATUS: LazyLock<Reset> = LazyLock::new(|| fields(&[&["status"]]));
static SPEC: LazyLock<Reset> = LazyLock::new(|| fields(&[&["spec"]]));
static METADATA_AND_SPEC: LazyLock<Reset> = LazyLock::new(|| fields(&[&["metadata"], &["spec"]]));
static DEPLOYMENT_STATUS: LazyLock<Reset> = LazyLock::new(|| fields(&[&["spec"], &["metadata", "labels"]]));
static POD_STATUS: LazyLock<Reset> =
    LazyLock::new(|| fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]));
static SIGNING_REQUEST: LazyLock<Reset> = LazyLock::new(|| fields(&[&["spec"], &["status"]]));
static SIGNING_STATUS: LazyLock<Reset> = LazyLock::new(|| fields(&[&["spec"], &["status", "conditions"]]));
static SIGNING_APPROVAL: LazyLock<Reset> = LazyLock::new(|| fields(&[&["spec"], &["status", "certificate"]]));

static POD_EPHEMERAL_CONTAINERS: Reset = Reset::AllBut(&[&[Step::Field("spec"), Step::Field("ephemeralContainers")]]);
static POD_RESIZE: Reset = Reset::AllBut(&[
    &[Step::Field("spec"), Step::Field("containers"), Step::Any, Step::Field("resources")],
    &[Step::Field("spec"), Step::Field("containers"), Step::Any, Step::Field("resizePolicy")],
    &[Step::Field("spec"), Step::Field("initContainers"), Step::Any, Step::Field("resources")],
    &[Step::Field("spec"), Step::Field("initContainers"), Step::Any, Step::Field("resizePolicy")],
]);

fn fields(paths: &[&[&'static str]]) -> Reset {
    Reset::Fields(FieldSet::of(paths))
}

/// The reset fields of a built-in resource (`subresource` empty) or of one of its subresources.
pub fn builtin(group: &str, kind: &str, subresource: &str, has_status: bool) -> &'static Reset {
    match (group, kind, subresource) {
        ("certificates.k8s.io", "CertificateSigningRequest", "") => &SIGNING_REQUEST,
        ("certificates.k8s.io", "CertificateSigningRequest", "status") => &SIGNING_STATUS,
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => &SIGNING_APPROVAL,
        ("apps", "Deployment", "status") => &DEPLOYMENT_STATUS,
        ("", "Pod", "status") => &POD_STATUS,
        ("", "Pod", "ephemeralcontainers") => &POD_EPHEMERAL_CONTAINERS,
        ("", "Pod", "resize") => &POD_RESIZE,
        (
            "resource.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "storagemigration.k8s.io"
            | "admissionregistration.k8s.io"
            | "internal.apiserver.k8s.io"
            | "scheduling.k8s.io",
            _,
            "status",
        )
        | ("storage.k8s.io", "VolumeAttachment", "status")
        | ("networking.k8s.io", "ServiceCIDR", "status") => &METADATA_AND_SPEC,
        (_, _, "status") => &SPEC,
        ("", "Namespace", "finalize") => &STATUS,
        (_, _, "") if has_status => &STATUS,
        _ => &NOTHING,
    }
}

/// The reset fields of a custom resource (`subresource` empty) or of its status.
pub fn custom(subresource: &str, has_status: bool) -> &'static Reset {
    match subresource {
        "" if has_status => &STATUS,
        "status" => &METADATA_AND_SPEC,
        _ => &NOTHING,
    }
}

impl Reset {
    /// Removes the fields that do not count from a set.
    pub(super) fn filter(&self, set: &mut FieldSet<'_>) {
        match self {
            Self::Nothing => {}
            Self::Fields(fields) => set.subtract_recursively(fields),
            Self::AllBut(kept) => {
                let kept: Vec<&[Step]> = kept.to_vec();
                *set = keep(std::mem::take(set), &kept);
            }
        }
    }

    /// Whether a top-level field does not count. None if it takes more than the top level to tell.
    pub(super) fn drops_at_top(&self, name: &str) -> Option<bool> {
        match self {
            Self::Nothing => Some(false),
            Self::AllBut(_) => None,
            Self::Fields(fields) => {
                let element = PathElement::Field(Cow::Borrowed(name));
                if fields.below(&element).is_some() { None } else { Some(fields.has_element(&element)) }
            }
        }
    }
}

/// The part of a set that lies on or below the kept paths. A path that ends here keeps all.
fn keep<'a>(set: FieldSet<'a>, kept: &[&[Step]]) -> FieldSet<'a> {
    if kept.iter().any(|path| path.is_empty()) {
        return set;
    }
    let mut out = FieldSet::new();
    for (element, member, below) in set.nodes() {
        let matches = |path: &&&[Step]| match (path.first(), element) {
            (Some(Step::Any), _) => true,
            (Some(Step::Field(wanted)), PathElement::Field(name)) => name == wanted,
            _ => false,
        };
        let below_kept: Vec<&[Step]> = kept.iter().filter(matches).map(|path| &path[1..]).collect();
        if !below_kept.is_empty() {
            out.push(element.clone(), member, keep(below.clone(), &below_kept));
        }
    }
    out
}
