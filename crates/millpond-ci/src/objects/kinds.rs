//! The kinds as a client reads and writes them: specs and statuses of `millpond_api::ci` under Kubernetes' own metadata.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use millpond_api::ci;
use millpond_runtime::json_of_kind;
use millpond_runtime::kinds::Kind;
use serde::{Deserialize, Serialize};

macro_rules! kind {
    ($(#[$doc:meta])* $name:ident, $group:literal, $version:literal, $plural:literal, $spec:ty, $status:ty, $scope:ident, $namespaced:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// The group and version; written on creation.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub api_version: String,
            /// The kind; written on creation.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub kind: String,
            /// Name, labels and so on.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// What is asked for.
            #[serde(default)]
            pub spec: $spec,
            /// What is.
            #[serde(default)]
            pub status: $status,
        }

        impl $name {
            /// A new one.
            pub fn new(metadata: ObjectMeta, spec: $spec) -> Self {
                let api_version = concat!($group, "/", $version).to_owned();
                let kind = stringify!($name).to_owned();
                Self { api_version, kind, metadata, spec, status: <$status>::default() }
            }

            /// Its name.
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }
        }

        impl kube::Resource for $name {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($name).into()
            }
            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version(_: &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural(_: &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }

        impl Kind for $name {
            const NAMESPACED: bool = $namespaced;

            json_of_kind!();
        }
    };
}

kind!(
    /// CI nodes that a job asks for.
    NodeRequest, "millpond.dev", "v1alpha1", "noderequests", ci::NodeRequestSpec, ci::NodeRequestStatus,
    NamespaceResourceScope, true
);
kind!(
    /// The record of a CI node.
    CINode, "millpond.dev", "v1alpha1", "cinodes", ci::CINodeSpec, ci::CINodeStatus, ClusterResourceScope, false
);
kind!(
    /// A deployment of Software Factory.
    SoftwareFactory, "sf.softwarefactory-project.io", "v1", "softwarefactories", ci::SoftwareFactorySpec,
    ci::SoftwareFactoryStatus, NamespaceResourceScope, true
);

#[cfg(test)]
mod tests {
    use kube::Resource;
    use millpond_api::meta::Kind as Described;

    use super::*;

    #[test]
    fn the_client_and_the_definitions_name_the_same_kinds() {
        fn names<C: Resource<DynamicType = ()> + Kind, D: Described>() {
            let client = (C::group(&()), C::version(&()), C::kind(&()), C::plural(&()), C::NAMESPACED);
            let defined = (D::GROUP.into(), D::VERSION.into(), D::KIND.into(), D::PLURAL.into(), D::NAMESPACED);
            assert_eq!(client, defined);
        }
        names::<NodeRequest, ci::NodeRequest>();
        names::<CINode, ci::CINode>();
        names::<SoftwareFactory, ci::SoftwareFactory>();
    }
}
