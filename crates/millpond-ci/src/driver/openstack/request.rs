//! Builds the request to Nova for one node: flavor, image, networks, metadata.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::super::template;
use super::client::{Cloud, Flavor};
use super::{DriverError, Launch, Launched, NODE_ID, POOL_NAME, PROVIDER_NAME, text};
use crate::config::{OpenStackLabel, OpenStackPool, OpenStackProvider, Resources};
use crate::model::Json;

/// The port of SSH.
const SSH_PORT: u16 = 22;

/// The parts of a request for a node.
pub(super) struct Plan {
    /// The body of the request to Nova.
    pub(super) server: Value,
    /// The server's usage that counts against limits.
    pub(super) resources: Resources,
    /// How its image is used.
    pub(super) image: Image,
    /// Nova's id of its flavor.
    pub(super) flavor: String,
    /// Its zone; empty where Nova chooses.
    pub(super) zone: String,
}

/// An image and how to log in to its servers.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// Glance's id.
    id: String,
    /// What the node's record calls it.
    shown: String,
    /// What servers are grouped by.
    name: String,
    config_drive: Option<bool>,
    username: Option<String>,
    python_path: Option<String>,
    shell_type: Option<String>,
    connection_type: String,
    connection_port: u16,
}

impl Image {
    pub(super) fn write_to(self, launched: &mut Launched) {
        launched.image_id = Some(self.shown);
        launched.username = self.username;
        launched.python_path = self.python_path;
        launched.shell_type = self.shell_type;
        launched.connection_type = Some(self.connection_type);
        launched.connection_port = Some(Json::of(&self.connection_port));
    }
}

impl Plan {
    pub(super) async fn new(
        cloud: &Cloud,
        provider: &OpenStackProvider,
        pool: &OpenStackPool,
        label: &OpenStackLabel,
        launch: &Launch,
    ) -> Result<Self, DriverError> {
        let flavors = cloud.flavors().await?;
        let flavor = choose_flavor(&flavors, label)?;
        let image = image(cloud, provider, label, launch).await?;
        let mut server = json!({
            "name": format!("np{}", launch.node_id),
            "flavorRef": flavor.id,
            "metadata": metadata(&image, label, launch)?,
        });
        if label.boot_from_volume {
            server["block_device_mapping_v2"] = json!([{
                "boot_index": 0, "uuid": image.id, "source_type": "image", "destination_type": "volume",
                "volume_size": label.volume_size, "delete_on_termination": true,
            }]);
        } else {
            server["imageRef"] = image.id.as_str().into();
        }
        if let Some(drive) = image.config_drive {
            server["config_drive"] = drive.into();
        }
        if let Some(key) = &label.key_name {
            server["key_name"] = key.as_str().into();
        }
        if let Some(data) = &label.userdata {
            server["user_data"] = STANDARD.encode(data).into();
        }
        let zone = zone(cloud, pool, launch, flavor).unwrap_or_default();
        if !zone.is_empty() {
            server["availability_zone"] = zone.into();
        }
        if !pool.security_groups.is_empty() {
            server["security_groups"] = pool.security_groups.iter().map(|name| json!({"name": name})).collect();
        }
        let wanted = label.networks.as_ref().unwrap_or(&pool.networks);
        if !wanted.is_empty() {
            server["networks"] = networks(cloud, wanted).await?;
        }
        let (flavor, resources) = (flavor.id.clone(), resources(flavor, label));
        Ok(Self { server: json!({"server": server}), resources, image, flavor, zone: zone.to_owned() })
    }
}

/// The smallest flavor with enough memory whose name contains the label's text; without `min-ram`, the one with that
/// name.
pub(super) fn choose_flavor<'a>(flavors: &'a [Flavor], label: &OpenStackLabel) -> Result<&'a Flavor, DriverError> {
    let name = label.flavor_name.as_deref();
    if label.min_ram == 0
        && let Some(name) = name
    {
        let found = flavors.iter().find(|flavor| flavor.name == name || flavor.id == name);
        return found.ok_or_else(|| DriverError::Permanent(format!("the cloud has no flavor `{name}`")));
    }
    let fits = |flavor: &&Flavor| flavor.ram >= label.min_ram && name.is_none_or(|name| flavor.name.contains(name));
    let smallest = flavors.iter().filter(fits).min_by(|one, other| (one.ram, &one.name).cmp(&(other.ram, &other.name)));
    smallest.ok_or_else(|| {
        let named = name.map(|name| format!(" with `{name}` in its name")).unwrap_or_default();
        DriverError::Permanent(format!("the cloud has no flavor of {} MiB or more{named}", label.min_ram))
    })
}

/// The usage of a server with this flavor.
pub(super) fn resources(flavor: &Flavor, label: &OpenStackLabel) -> Resources {
    let mut resources = flavor.resources();
    if label.boot_from_volume {
        resources.insert("volumes".to_owned(), 1);
        resources.insert("volume-gb".to_owned(), label.volume_size);
    }
    resources
}

async fn image(
    cloud: &Cloud,
    provider: &OpenStackProvider,
    label: &OpenStackLabel,
    launch: &Launch,
) -> Result<Image, DriverError> {
    if let Some(name) = &label.diskimage {
        let settings = provider.diskimages.iter().find(|image| image.name == *name);
        let settings =
            settings.ok_or_else(|| DriverError::Permanent(format!("the provider takes no diskimage `{name}`")))?;
        let image = launch.image.as_ref();
        let image = image.ok_or_else(|| DriverError::Capacity(format!("no upload of `{name}` is ready")))?;
        return Ok(Image {
            id: image.upload.external_id.clone(),
            shown: image.upload.path.clone(),
            name: name.clone(),
            config_drive: settings.config_drive,
            username: Some(image.username.clone()),
            python_path: Some(image.python_path.clone()),
            shell_type: image.shell_type.clone(),
            connection_type: settings.connection_type.clone(),
            connection_port: settings.connection_port.unwrap_or(SSH_PORT),
        });
    }
    let image = label.cloud_image.as_ref();
    let image = image.and_then(|name| provider.cloud_images.iter().find(|image| image.name == *name));
    let image = image.ok_or_else(|| DriverError::Permanent("the label names no image of its provider".to_owned()))?;
    let id = match &image.image_id {
        Some(id) => id.clone(),
        None => cloud.image(image.image_name.as_ref().unwrap_or(&image.name)).await?,
    };
    Ok(Image {
        id,
        shown: image.name.clone(),
        name: image.name.clone(),
        config_drive: image.config_drive,
        username: image.username.clone(),
        python_path: Some(image.python_path.clone()),
        shell_type: image.shell_type.clone(),
        connection_type: image.connection_type.clone(),
        connection_port: image.connection_port,
    })
}

/// Metadata of a server: groups for inventories, the label's properties, and what the server is found again by.
fn metadata(image: &Image, label: &OpenStackLabel, launch: &Launch) -> Result<Map<String, Value>, DriverError> {
    let request = launch.request.as_ref().map(|(id, request)| (id.as_str(), &**request));
    let mut metadata = Map::new();
    let groups = format!("{},{},{}", launch.provider, image.name, launch.label);
    metadata.insert("groups".to_owned(), groups.into());
    for (name, value) in &label.instance_properties {
        metadata.insert(name.clone(), text(value).into());
    }
    for (name, value) in &label.dynamic_instance_properties {
        let value = template::format(&text(value), request).map_err(|field| {
            DriverError::Permanent(format!("dynamic-instance-properties: `{name}` speaks of `{field}`"))
        })?;
        metadata.insert(name.clone(), value.into());
    }
    let own = [(NODE_ID, &launch.node_id), (POOL_NAME, &launch.pool.name), (PROVIDER_NAME, &launch.provider)];
    metadata.extend(own.map(|(name, value)| (name.to_owned(), value.as_str().into())));
    Ok(metadata)
}

/// The zone of a node. Nodes of one request share it, so that they can reach each other; a zone that had no host for the
/// flavor a moment ago comes last.
fn zone<'a>(cloud: &Cloud, pool: &'a OpenStackPool, launch: &Launch, flavor: &Flavor) -> Option<&'a str> {
    let key = launch.request.as_ref().map_or(&launch.node_id, |(id, _)| id);
    let sum = key.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    cloud.shortages.choose(&flavor.id, &pool.availability_zones, sum, Instant::now())
}

async fn networks(cloud: &Cloud, wanted: &[String]) -> Result<Value, DriverError> {
    let known = cloud.networks().await?;
    let mut ids = Vec::new();
    for name in wanted {
        let found = known.iter().find(|network| network.name == *name || network.id == *name);
        let found = found.ok_or_else(|| DriverError::Permanent(format!("the cloud has no network `{name}`")))?;
        ids.push(json!({"uuid": found.id}));
    }
    Ok(ids.into())
}
