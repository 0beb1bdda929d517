//! The catalogues that come with the binary. The files under `data/` are the
//! output of `millpond catalog import`; they are parsed when first asked for.

use std::sync::LazyLock;

use super::{Catalog, synthetic, text};

/// Names that [`built_in`] knows.
pub const BUILT_IN: [&str; 4] = ["aws", "gcp", "kwok", "fake"];

/// EC2 in us-east-1.
pub(super) const AWS: &str = include_str!("../../data/aws-us-east-1.catalog");
/// Compute Engine in us-central1.
pub(super) const GCP: &str = include_str!("../../data/gcp-us-central1.catalog");

/// The catalogue of that name.
pub fn built_in(name: &str) -> Option<&'static Catalog> {
    static AWS_CATALOG: LazyLock<Catalog> = LazyLock::new(|| shipped("aws", AWS));
    static GCP_CATALOG: LazyLock<Catalog> = LazyLock::new(|| shipped("gcp", GCP));
    static KWOK_CATALOG: LazyLock<Catalog> = LazyLock::new(synthetic::kwok);
    static FAKE_CATALOG: LazyLock<Catalog> = LazyLock::new(|| synthetic::fake(synthetic::FAKE_TYPES));
    match name {
        "aws" => Some(&AWS_CATALOG),
        "gcp" => Some(&GCP_CATALOG),
        "kwok" => Some(&KWOK_CATALOG),
        "fake" => Some(&FAKE_CATALOG),
        _ => None,
    }
}

fn shipped(name: &str, data: &str) -> Catalog {
    text::parse(name, data).expect("a test parses every shipped file")
}
