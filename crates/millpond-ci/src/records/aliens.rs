//! Images in clouds that carry the mark of a build and that no record of an upload names: what a builder that lost its
//! records has left there.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Result, Source};
use crate::builder::cloud::{BUILD_ID, Clouds};
use crate::config::{Config, Driver};
use crate::view::{Cell, Listing};

/// `alien-image-list`, of one provider or of all. Clouds that cannot be asked are named in the second part, and the
/// others are listed. Images without the mark are none of the builder's business.
pub async fn list_aliens(
    source: &dyn Source,
    config: &Config,
    clouds: &dyn Clouds,
    provider: Option<&str>,
) -> Result<(Listing, Vec<String>)> {
    let images = source.images().await?;
    let known: BTreeSet<&str> = images.uploads().filter_map(|(.., upload)| upload.external_id.as_deref()).collect();
    let images_dir = Path::new(config.builder.images_dir.as_deref().unwrap_or_default());
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    let takes_images = |driver: Driver| matches!(driver, Driver::OpenStack | Driver::Fake);
    let asked = config.providers.iter().filter(|it| takes_images(it.driver));
    for asked in asked.filter(|it| provider.is_none_or(|name| it.name == name)) {
        let listed = match clouds.open(asked, images_dir) {
            Ok(cloud) => cloud.list().await,
            Err(error) => Err(error),
        };
        let mut found = match listed {
            Ok(found) => found,
            Err(error) => {
                problems.push(format!("images of `{}` are not listed: {error}", asked.name));
                continue;
            }
        };
        found.retain(|image| image.properties.contains_key(BUILD_ID) && !known.contains(image.id.as_str()));
        rows.extend(
            found
                .into_iter()
                .map(|image| vec![Cell::Text(asked.name.clone()), Cell::Text(image.name), Cell::Text(image.id)]),
        );
    }
    let columns = &[("provider", "Provider"), ("name", "Name"), ("image_id", "Image ID")];
    Ok((Listing { columns, rows }, problems))
}
