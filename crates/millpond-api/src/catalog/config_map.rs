//! A catalogue as an object of the cluster: a ConfigMap with the label [`LABEL`], whose value a NodeClass names as
//! its `catalog`, and the text of the catalogue under [`KEY`], in any format that [`import`] reads.
//!
//! ```yaml
//! apiVersion: v1
//! kind: ConfigMap
//! metadata:
//!   name: catalog-lab
//!   namespace: millpond-system
//!   labels: {millpond.dev/catalog: lab}
//! data:
//!   catalog: |
//!     millpond-catalog 1
//!     …
//! ```

use serde_json::{Value, json};

use super::import::{self, ImportError, Options};
use super::{Catalog, text};

/// The label with the name of the catalogue.
pub const LABEL: &str = "millpond.dev/catalog";
/// The key of its text.
pub const KEY: &str = "catalog";
/// The namespace of Millpond's own objects.
pub const NAMESPACE: &str = "millpond-system";
/// The most bytes that Kubernetes takes as the data of a ConfigMap.
pub const LIMIT_BYTES: usize = 1 << 20;

/// Reads the catalogue of that name; `file` stands in messages.
pub fn read(file: &str, name: &str, text: &str) -> Result<Catalog, ImportError> {
    let options = Options { name: name.to_owned(), ..Options::default() };
    let mut catalog = import::read(file, text.as_bytes(), None, &options)?.catalog;
    // The text may contain another name.
    name.clone_into(&mut catalog.name);
    Ok(catalog)
}

/// The ConfigMap of a catalogue.
pub fn object(catalog: &Catalog) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("catalog-{}", catalog.name),
            "namespace": NAMESPACE,
            "labels": { LABEL: catalog.name },
        },
        "data": { KEY: text::encode(catalog) },
    })
}

#[cfg(test)]
mod tests {
    use super::super::built_in;
    use super::*;

    #[test]
    fn what_is_written_is_read_back_under_the_name_of_the_label() {
        let gcp = built_in("gcp").unwrap();
        let object = object(gcp);
        assert_eq!(object["metadata"]["labels"][LABEL], "gcp");
        let text = object["data"][KEY].as_str().unwrap();
        assert_eq!(read("test", "gcp", text).unwrap(), *gcp);
        assert_eq!(read("test", "mine", text).unwrap().name, "mine");
        let broken = read("test", "mine", "millpond-catalog 1\ntypes\nx\n").unwrap_err();
        assert_eq!(broken.to_string(), "test:3:2: field `arch`: is missing");
    }
}
