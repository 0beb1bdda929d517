//! The lists of Nodepool's command line and web API.

use super::age;
use super::table::{Cell, Listing};
use crate::model::{Node, NodeRequest};

/// A node and what is known about it beside its record.
#[derive(Debug, Clone, Copy)]
pub struct ListedNode<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its record.
    pub node: &'a Node,
    /// Whether a process holds or awaits its lock.
    pub locked: bool,
}

/// A request and its id.
#[derive(Debug, Clone, Copy)]
pub struct ListedRequest<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its record.
    pub request: &'a NodeRequest,
}

/// Nodes with all their columns. A port that carries credentials is not shown.
pub fn node_list(nodes: &[ListedNode<'_>], now: f64) -> Listing {
    Listing {
        columns: &[
            ("id", "ID"),
            ("provider", "Provider"),
            ("label", "Label"),
            ("server_id", "Server ID"),
            ("public_ipv4", "Public IPv4"),
            ("ipv6", "IPv6"),
            ("state", "State"),
            ("age", "Age"),
            ("locked", "Locked"),
            ("pool", "Pool"),
            ("hostname", "Hostname"),
            ("private_ipv4", "Private IPv4"),
            ("AZ", "AZ"),
            ("username", "Username"),
            ("connection_port", "Port"),
            ("launcher", "Launcher"),
            ("allocated_to", "Allocated To"),
            ("hold_job", "Hold Job"),
            ("comment", "Comment"),
            ("user_data", "User Data"),
            ("driver_data", "Driver Data"),
        ],
        rows: nodes.iter().map(|listed| node_row(listed, now)).collect(),
    }
}

fn node_row(listed: &ListedNode<'_>, now: f64) -> Vec<Cell> {
    let node = listed.node;
    let text = |value: &Option<String>| Cell::text(value.as_deref());
    let json = |value: &Option<crate::model::Json>| value.clone().map_or(Cell::None, Cell::Json);
    let port = node.connection_port.as_i64().map_or_else(|| Cell::Text("redacted".to_owned()), Cell::Number);
    vec![
        Cell::Text(listed.id.to_owned()),
        text(&node.provider),
        Cell::List(node.labels.clone()),
        text(&node.external_id),
        text(&node.public_ipv4),
        text(&node.public_ipv6),
        Cell::Text(node.state.name().to_owned()),
        Cell::Text(age(node.state_time, now)),
        Cell::Text(if listed.locked { "locked" } else { "unlocked" }.to_owned()),
        text(&node.pool),
        text(&node.hostname),
        text(&node.private_ipv4),
        text(&node.az),
        text(&node.username),
        port,
        text(&node.launcher),
        text(&node.allocated_to),
        text(&node.hold_job),
        text(&node.comment),
        json(&node.user_data),
        json(&node.driver_data),
    ]
}

/// Requests.
pub fn request_list(requests: &[ListedRequest<'_>]) -> Listing {
    let row = |listed: &ListedRequest<'_>| {
        let request = listed.request;
        vec![
            Cell::Text(listed.id.to_owned()),
            Cell::Number(request.relative_priority),
            Cell::Text(request.state.to_string()),
            Cell::text(request.requestor.as_deref()),
            Cell::List(request.node_types.clone()),
            Cell::List(request.nodes.clone()),
            Cell::List(request.declined_by.clone()),
            Cell::text(request.event_id.as_deref()),
        ]
    };
    Listing {
        columns: &[
            ("id", "Request ID"),
            ("relative_priority", "Priority"),
            ("state", "State"),
            ("requestor", "Requestor"),
            ("node_types", "Node Types"),
            ("nodes", "Nodes"),
            ("declined_by", "Declined By"),
            ("event_id", "Event ID"),
        ],
        rows: requests.iter().map(row).collect(),
    }
}

/// Labels that any pool provides.
pub fn label_list(labels: &[&str]) -> Listing {
    let rows = labels.iter().map(|label| vec![Cell::Text((*label).to_owned())]).collect();
    Listing { columns: &[("label", "Label")], rows }
}

/// An image that was built.
#[derive(Debug, Clone)]
pub struct BuildEntry {
    /// The image's name.
    pub image: String,
    /// The build's id.
    pub id: String,
    /// The builder's host.
    pub builder: Option<String>,
    /// Its formats.
    pub formats: Vec<String>,
    /// Its state.
    pub state: String,
    /// Since when.
    pub state_time: f64,
    /// Whether builds of the image are paused.
    pub paused: bool,
}

/// Images that were built.
pub fn dib_image_list(builds: &[BuildEntry]) -> Listing {
    let row = |build: &BuildEntry| {
        vec![
            Cell::Text(format!("{}-{}", build.image, build.id)),
            Cell::Text(build.image.clone()),
            Cell::text(build.builder.as_deref()),
            Cell::List(build.formats.clone()),
            Cell::Text(if build.paused { "paused".to_owned() } else { build.state.clone() }),
            Cell::Since(build.state_time as i64),
        ]
    };
    Listing {
        columns: &[
            ("id", "ID"),
            ("image", "Image"),
            ("builder", "Builder"),
            ("formats", "Formats"),
            ("state", "State"),
            ("age", "Age"),
        ],
        rows: builds.iter().map(row).collect(),
    }
}

/// Whether an image is paused or a build of it was asked for.
#[derive(Debug, Clone)]
pub struct ImageStatusEntry {
    /// The image's name.
    pub image: String,
    /// Whether it is paused.
    pub paused: bool,
    /// Since when a build is asked for, and whether it has begun.
    pub build_request: Option<(f64, bool)>,
}

/// The status of images.
pub fn image_status(images: &[ImageStatusEntry]) -> Listing {
    let row = |image: &ImageStatusEntry| {
        let (request, since) = match image.build_request {
            Some((since, building)) => {
                let state = if building { "building" } else { "pending" };
                (Cell::Text(state.to_owned()), Cell::Since(since as i64))
            }
            None => (Cell::None, Cell::None),
        };
        vec![Cell::Text(image.image.clone()), Cell::Bool(image.paused), request, since]
    };
    Listing {
        columns: &[
            ("image", "Image"),
            ("paused", "Paused"),
            ("build_request", "Build Request"),
            ("build_request_age", "Build Request Age"),
        ],
        rows: images.iter().map(row).collect(),
    }
}

/// An image in a provider.
#[derive(Debug, Clone)]
pub struct UploadEntry {
    /// The build's id.
    pub build_id: String,
    /// The upload's id.
    pub id: String,
    /// The provider.
    pub provider: String,
    /// The image's name.
    pub image: String,
    /// Its name at the provider.
    pub external_name: Option<String>,
    /// Its id at the provider.
    pub external_id: Option<String>,
    /// Its state.
    pub state: String,
    /// Since when.
    pub state_time: f64,
}

/// Images in providers.
pub fn image_list(uploads: &[UploadEntry]) -> Listing {
    let row = |upload: &UploadEntry| {
        vec![
            Cell::Text(upload.build_id.clone()),
            Cell::Text(upload.id.clone()),
            Cell::Text(upload.provider.clone()),
            Cell::Text(upload.image.clone()),
            Cell::text(upload.external_name.as_deref()),
            Cell::text(upload.external_id.as_deref()),
            Cell::Text(upload.state.clone()),
            Cell::Since(upload.state_time as i64),
        ]
    };
    Listing {
        columns: &[
            ("id", "Build ID"),
            ("upload_id", "Upload ID"),
            ("provider", "Provider"),
            ("image", "Image"),
            ("external_name", "Provider Image Name"),
            ("external_id", "Provider Image ID"),
            ("state", "State"),
            ("age", "Age"),
        ],
        rows: uploads.iter().map(row).collect(),
    }
}

/// Images of one provider, for `info`: name, build, and uploads.
pub fn info_images(images: &[(String, String, Vec<String>)]) -> Listing {
    let row = |(image, build, uploads): &(String, String, Vec<String>)| {
        vec![Cell::Text(image.clone()), Cell::Text(build.clone()), Cell::List(uploads.clone())]
    };
    Listing {
        columns: &[("image", "Image Name"), ("build_id", "Build ID"), ("upload_ids", "Upload IDs")],
        rows: images.iter().map(row).collect(),
    }
}

/// Nodes of one provider, for `info`.
pub fn info_nodes(nodes: &[ListedNode<'_>]) -> Listing {
    let row = |listed: &ListedNode<'_>| {
        // The original prints the absence of an id.
        let server = listed.node.external_id.clone().unwrap_or_else(|| "None".to_owned());
        vec![Cell::Text(listed.id.to_owned()), Cell::Text(server)]
    };
    Listing { columns: &[("id", "ID"), ("server_id", "Server ID")], rows: nodes.iter().map(row).collect() }
}
