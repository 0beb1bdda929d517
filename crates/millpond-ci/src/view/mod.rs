//! What people and programs see of nodes, requests and images: the columns, text tables and JSON of Nodepool's command
//! line and web API. Pure: the time is an argument.

mod lists;
mod reasons;
mod table;
#[cfg(test)]
mod tests;

pub use lists::{
    BuildEntry, ImageStatusEntry, ListedNode, ListedRequest, UploadEntry, dib_image_list, image_list, image_status,
    info_images, info_nodes, label_list, node_list, request_list,
};
pub use reasons::reason_code;
pub use table::{Cell, Listing};

/// The columns of `list` without `--detail`.
pub const NODE_FIELDS: &[&str] =
    &["id", "provider", "label", "server_id", "public_ipv4", "ipv6", "state", "age", "locked"];

/// An age as `DD:HH:MM:SS`.
pub fn age(since: f64, now: f64) -> String {
    let seconds = (now - since).floor() as i64;
    let (minutes, seconds) = (seconds.div_euclid(60), seconds.rem_euclid(60));
    let (hours, minutes) = (minutes.div_euclid(60), minutes.rem_euclid(60));
    let (days, hours) = (hours.div_euclid(24), hours.rem_euclid(24));
    format!("{days:02}:{hours:02}:{minutes:02}:{seconds:02}")
}
