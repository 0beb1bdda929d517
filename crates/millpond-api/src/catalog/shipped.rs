//! The catalogues that come with the binary, parsed when first asked for. The
//! files under `data/` are what `millpond catalog import` made of price lists:
//!
//! ```text
//! millpond catalog import aws-us-east-1.csv --name aws --provider aws --region us-east-1 \
//!   --zones us-east-1a,us-east-1b,us-east-1c,us-east-1d,us-east-1f --estimate-spot 40% \
//!   --source "Karpenter's AWS provider, August 2026: instance types and on-demand prices"
//! millpond catalog import gcp-us-central1.csv --name gcp --provider gcp --region us-central1 \
//!   --zones us-central1-a,us-central1-b,us-central1-c,us-central1-f \
//!   --source "Karpenter's GCP provider, August 2026: prices; sizes from the families' published ratios"
//! ```
//!
//! 93 kB together. `examples/parse_time.rs` tells how long they take to parse.

use std::sync::{Arc, LazyLock};

use super::{Catalog, synthetic, text};

/// Names that [`built_in`] knows.
pub const BUILT_IN: [&str; 4] = ["aws", "gcp", "kwok", "fake"];

/// EC2 in us-east-1.
pub(super) const AWS: &str = include_str!("../../data/aws-us-east-1.catalog");
/// Compute Engine in us-central1.
pub(super) const GCP: &str = include_str!("../../data/gcp-us-central1.catalog");

/// The catalogue of that name.
pub fn built_in(name: &str) -> Option<&'static Catalog> {
    shared(name).map(|catalog| &**catalog)
}

/// The catalogue of that name, to be kept without a copy.
pub(super) fn shared(name: &str) -> Option<&'static Arc<Catalog>> {
    type Lazy = LazyLock<Arc<Catalog>>;
    static AWS_CATALOG: Lazy = LazyLock::new(|| shipped("aws", AWS));
    static GCP_CATALOG: Lazy = LazyLock::new(|| shipped("gcp", GCP));
    static KWOK_CATALOG: Lazy = LazyLock::new(|| Arc::new(synthetic::kwok()));
    static FAKE_CATALOG: Lazy = LazyLock::new(|| Arc::new(synthetic::fake(synthetic::FAKE_TYPES)));
    match name {
        "aws" => Some(&AWS_CATALOG),
        "gcp" => Some(&GCP_CATALOG),
        "kwok" => Some(&KWOK_CATALOG),
        "fake" => Some(&FAKE_CATALOG),
        _ => None,
    }
}

fn shipped(name: &str, data: &str) -> Arc<Catalog> {
    Arc::new(text::parse(name, data).expect("a test parses every shipped file"))
}
