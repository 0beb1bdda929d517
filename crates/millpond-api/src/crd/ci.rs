//! CI nodes: NodeRequest and CINode of `millpond.dev`, and Software Factory's kind.

use super::definition::{AGE, Definition, column, wide};
use super::parts::{conditions, quantity, time};
use super::schema::{Schema, boolean, int32, int64, list, map, object, string};
use crate::ci::{
    CINode, DiskImage, ImageBuild, ImageUpload, LIMIT_NODES, NodeRequest, Precedence, RequestPhase, SoftwareFactory,
};

pub(super) fn definitions() -> Vec<Definition> {
    vec![node_request(), ci_node(), disk_image(), image_build(), image_upload(), software_factory()]
}

fn text(description: &str) -> Schema {
    string(description).length(0, 253)
}

fn node_request() -> Definition {
    let spec = object("Requested nodes")
        .required(
            "labels",
            list("A label for each node; nodes come in this order", text("").not_empty())
                .min_items(1)
                .max_items(LIMIT_NODES as u32),
        )
        .field(
            "count",
            int32("How often the list of labels is repeated; once without it").at_least(1).at_most(LIMIT_NODES as i64),
        )
        .field("priority", int64("Of requests with the same precedence, lower numbers come first"))
        .field("precedence", string("Precedence of the request; normal without it").one_of(&Precedence::NAMES))
        .field("tenant", text("The tenant whose limits the nodes count against"))
        .field("requestor", text("Who asks"))
        .field("provider", text("The provider that the nodes should come from, if it has them"))
        .field("reuse", boolean("Whether nodes that are ready already may be used; they may without it"))
        .field("eventID", text("The event that caused the request, for logs"))
        .rule("self == oldSelf", "a request does not change: delete it and make another one");
    let reason = object("The answer of a pool")
        .required("pool", string("The pool"))
        .required("reason", string("In one word"))
        .required("message", string("In words"));
    let status = object("Result")
        .field("state", string("State").one_of(&RequestPhase::NAMES))
        .field("since", time("Since when"))
        .field("nodes", list("Its nodes, in the order of its labels, once it is fulfilled", connected_node()))
        .field("declinedBy", list("Pools that cannot provide it", string("")))
        .field("reasons", list("The answer of each pool to a request that waits or has failed", reason))
        .field("conditions", conditions(true));
    Definition::of::<NodeRequest>("CI nodes that a job requests by label; deleting the object releases them", spec)
        .status(status)
        .categories(&["millpond"])
        .short_names(&["nreq"])
        .columns(vec![
            column("Labels", "string", ".spec.labels", "Desired state"),
            column("Count", "integer", ".spec.count", "How often"),
            column("State", "string", ".status.state", "State"),
            column("Nodes", "string", ".status.nodes[*].id", "Its nodes"),
            AGE,
            wide("Requestor", "string", ".spec.requestor", "Who asks"),
            wide("Tenant", "string", ".spec.tenant", "Tenant whose limits apply"),
            wide("Message", "string", FULFILLED_MESSAGE, "Why it waits or has failed"),
        ])
}

/// The message of the condition [`FULFILLED`](crate::ci::FULFILLED).
const FULFILLED_MESSAGE: &str = r#".status.conditions[?(@.type=="Fulfilled")].message"#;

fn connected_node() -> Schema {
    object("A node and how to reach it")
        .required("id", string("The name of its CINode"))
        .field("label", string("The label that it was asked for as"))
        .field("provider", string("Its provider"))
        .field("pool", string("Its pool"))
        .field("hostname", string("Its name"))
        .field("interfaceIP", string("The address to connect to; the name of the pod for kubectl"))
        .field("publicIPv4", string("Public IPv4 address"))
        .field("privateIPv4", string("Private IPv4 address"))
        .field("publicIPv6", string("Public IPv6 address"))
        .field("region", string("Region"))
        .field("az", string("Availability zone"))
        .field("connectionType", string("ssh, winrm, kubectl, namespace and so on"))
        .field("connectionPort", int64("The port, where the connection has one"))
        .field("username", string("The user to log in as"))
        .field("hostKeys", list("SSH host keys", string("")))
        .field("pythonPath", string("Its Python"))
        .field("shellType", string("Its shell"))
        .field("namespace", string("The namespace of a pod, or the namespace that the node is"))
        .field("pod", string("The pod"))
        .field("secretName", string("The Secret beside the request with the credentials: keys token and kubeconfig"))
        .field("attributes", object("Attributes of its pool").open())
}

fn ci_node() -> Definition {
    let spec = object("Where it comes from")
        .field("provider", string("Its provider"))
        .field("pool", string("The pool of the provider"))
        .field("labels", list("Its labels", string("")))
        .field("slot", int32("The slot of a static host"))
        .field("resources", map("Usage that counts against the limits", int64("")));
    let request = object("The request that it is for")
        .required("namespace", string("Namespace of the request"))
        .required("name", string("Name of the request"))
        .required("uid", string("Identity of the request"));
    let number = |description: &str| Schema::number(description);
    let status = object("Observed state")
        .field("state", string("init, building, ready, in-use, used, hold, deleting, failed and so on"))
        .field("stateTime", number("Since when, in seconds since 1970"))
        .field("createdTime", number("When it was made, in seconds since 1970"))
        .field("request", request)
        .field("tenant", string("The tenant whose limits it counts against"))
        .field("requestor", string("Requestor"))
        .field("launcher", string("The launcher that made it"))
        .field("externalID", string("Its name at the provider"))
        .field("hostname", string("Its name"))
        .field("interfaceIP", string("The address to connect to"))
        .field("connectionType", string("ssh, winrm, kubectl, namespace and so on"))
        .field("connectionPort", Schema::any("A port, or an object without its credentials"))
        .field("secretName", string("The Secret with the credentials, as NAMESPACE/NAME"))
        .field("username", string("The user to log in as"))
        .field("comment", string("A remark"))
        .field("facts", object("All other facts, under the keys of Nodepool's records").open());
    Definition::of::<CINode>("The record of a CI node; its name is its id", spec)
        .status_in_object(status)
        .categories(&["millpond"])
        .columns(vec![
            column("Provider", "string", ".spec.provider", "Its provider"),
            column("Labels", "string", ".spec.labels", "Its labels"),
            column("State", "string", ".status.state", "State"),
            column("Request", "string", ".status.request.name", "The request that it is for"),
            AGE,
            wide("Pool", "string", ".spec.pool", "The pool of the provider"),
            wide("Server", "string", ".status.externalID", "Its name at the provider"),
            wide("Address", "string", ".status.interfaceIP", "The address to connect to"),
        ])
}

fn disk_image() -> Definition {
    let spec = object("What an operator asks for")
        .field("image", text("The image's name in nodepool.yaml; that of the object without it"))
        .field("paused", boolean("Whether its builds are paused"))
        .field("buildRequest", time("Time of the build request; a later time requests another build"));
    let status = object("Reports of the builders")
        .field("handledBuildRequest", time("The build request that was carried out"))
        .field("formats", list("Formats that are built", string("")))
        .field("providers", list("Providers that it is uploaded to", string("")))
        .field("state", string("What happens next: UpToDate, Building, BackOff, Paused and so on"))
        .field("message", string("The same in words"))
        .field("latestBuild", string("The newest build that is ready"))
        .field("conditions", conditions(true));
    Definition::of::<DiskImage>("An image that builders make; its settings are in nodepool.yaml", spec)
        .status(status)
        .categories(&["millpond"])
        .columns(vec![
            column("State", "string", ".status.state", "What happens next"),
            column("Paused", "boolean", ".spec.paused", "Whether its builds are paused"),
            column("Latest", "string", ".status.latestBuild", "The newest build that is ready"),
            AGE,
            wide("Formats", "string", ".status.formats", "Formats that are built"),
            wide("Providers", "string", ".status.providers", "Providers that it is uploaded to"),
            wide("Message", "string", ".status.message", "What happens next, in words"),
        ])
}

/// The fields that builds and uploads share.
fn image_record(state: &'static str) -> Schema {
    object("Observed state")
        .field("state", string(state))
        .field("stateTime", Schema::number("Since when, in seconds since 1970"))
        .field("message", string("Why it failed or is deleted"))
        .field("username", string("The user to log in as"))
        .field("pythonPath", string("Python on its nodes"))
        .field("shellType", string("The shell of its nodes"))
        .field("facts", object("All other facts, under the keys of Nodepool's records").open())
}

fn image_build() -> Definition {
    let spec = object("Which build it is")
        .required("image", text("The image's name in nodepool.yaml").not_empty())
        .required("buildID", text("The id of the build").not_empty());
    let status = image_record("building, ready, deleting or failed")
        .field("builder", string("The host of the builder"))
        .field("builderID", string("The builder"))
        .field("formats", list("Formats of its files", string("")));
    Definition::of::<ImageBuild>("A build of a disk image; deleting it deletes its files and uploads", spec)
        .status_in_object(status)
        .categories(&["millpond"])
        .columns(vec![
            column("Image", "string", ".spec.image", "The image"),
            column("State", "string", ".status.state", "State"),
            column("Formats", "string", ".status.formats", "Formats of its files"),
            column("Builder", "string", ".status.builder", "The host of the builder"),
            AGE,
            wide("Message", "string", ".status.message", "Why it failed or is deleted"),
        ])
}

fn image_upload() -> Definition {
    let spec = object("Which upload it is")
        .required("image", text("The image's name in nodepool.yaml").not_empty())
        .required("buildID", text("The id of the build").not_empty())
        .required("provider", text("The provider").not_empty())
        .required("uploadID", text("The id of the upload, ten digits").not_empty());
    let status = image_record("uploading, ready, deleting or failed")
        .field("externalID", string("Its name at the provider"))
        .field("externalName", string("Its name at the provider"))
        .field("format", string("The format that was uploaded"));
    Definition::of::<ImageUpload>("An image in a provider; deleting it deletes it there", spec)
        .status_in_object(status)
        .categories(&["millpond"])
        .columns(vec![
            column("Image", "string", ".spec.image", "The image"),
            column("Provider", "string", ".spec.provider", "The provider"),
            column("State", "string", ".status.state", "State"),
            column("Name", "string", ".status.externalName", "Its name at the provider"),
            AGE,
            wide("ID", "string", ".status.externalID", "Its name at the provider"),
            wide("Message", "string", ".status.message", "Why it failed or is deleted"),
        ])
}

fn software_factory() -> Definition {
    let limits =
        || object("Limits of its container").field("memory", quantity("Memory")).field("cpu", quantity("Cores"));
    let log_level = || string("INFO, WARN or DEBUG").one_of(&["INFO", "WARN", "DEBUG"]);
    let storage = object("The volume of its images")
        .field("size", quantity("Its size"))
        .field("className", string("Its storage class"))
        .field("extraAnnotations", map("Annotations of the volume claim", string("")));
    let launcher = object("The launcher").field("logLevel", log_level()).field("limits", limits());
    let builder =
        object("The image builder").field("storage", storage).field("logLevel", log_level()).field("limits", limits());
    let nodepool = object("Launcher and builder of CI nodes")
        .field("launcher", launcher)
        .field("builder", builder)
        .field("statsdTarget", string("Where statsd metrics go, as HOST:PORT"));
    let spec = object("Desired state of the deployment; Millpond manages nodepool and keeps the rest as it is")
        .required("fqdn", string("Its domain: the API is at https://FQDN/nodepool/api/"))
        .field("nodepool", nodepool)
        .field("extraLabels", map("Labels of all created objects", string("")))
        .open();
    let status = object("Observed state of the deployment")
        .field("ready", boolean("Whether launcher and builder are ready"))
        .field("observedGeneration", int64("The metadata.generation that the status is about"))
        .field("reconciledBy", string("Which program wrote this"))
        .field("conditions", conditions(true));
    Definition::of::<SoftwareFactory>("A deployment of Software Factory, as far as its nodepool goes", spec)
        .status(status)
        .short_names(&["sf"])
        .columns(vec![
            column("Ready", "boolean", ".status.ready", "Whether launcher and builder are ready"),
            column("Status", "string", ".status.conditions[0].status", "Status"),
            column("Message", "string", ".status.conditions[0].message", "Message"),
        ])
}
