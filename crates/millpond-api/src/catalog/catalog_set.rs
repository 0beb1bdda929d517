//! The catalogues that node classes can name.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::shipped::shared;
use super::{BUILT_IN, Catalog};
use crate::meta::Invalid;
use crate::node_class::NodeClass;
use crate::spelling::nearest;

/// The catalogue of classes that name none.
pub const DEFAULT: &str = "aws";

/// Catalogues beside those that come with the binary.
#[derive(Debug, Clone, Default)]
pub struct CatalogSet {
    /// The catalogue of classes that name none; EC2 where none is given.
    pub default: Option<Arc<Catalog>>,
    /// Own catalogues; they hide those of the same name that come with the binary.
    pub catalogs: Vec<Arc<Catalog>>,
}

impl CatalogSet {
    /// The catalogue of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<Catalog>> {
        let own = self.catalogs.iter().chain(&self.default).find(|catalog| catalog.name == name);
        own.or_else(|| shared(name))
    }

    /// The catalogue of a class as it is: the reader applies overlays.
    pub fn of_class(&self, class: &NodeClass) -> Result<&Arc<Catalog>, Invalid> {
        let Some(name) = class.spec.catalog.as_deref() else {
            let shipped = || shared(DEFAULT).expect("it comes with the binary");
            return Ok(self.default.as_ref().unwrap_or_else(shipped));
        };
        self.find(name).ok_or_else(|| {
            let own = self.catalogs.iter().chain(&self.default).map(|catalog| catalog.name.as_str());
            let names: BTreeSet<&str> = own.chain(BUILT_IN).collect();
            let all: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let hint = match nearest(name, names) {
                Some(like) => format!("is `{like}` meant?"),
                None => format!("there are {}", all.join(", ")),
            };
            Invalid::new("spec.catalog", format!("there is no catalogue `{name}`; {hint}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::built_in;
    use super::*;

    fn class(text: &str) -> NodeClass {
        serde_saphyr::from_str(&format!("metadata: {{name: a}}\nspec: {text}")).unwrap()
    }

    fn shelf() -> CatalogSet {
        let mut own = built_in("kwok").unwrap().clone();
        own.name = "own".to_owned();
        own.types.truncate(1);
        CatalogSet { default: None, catalogs: vec![Arc::new(own)] }
    }

    #[test]
    fn a_class_has_the_catalogue_that_it_names() {
        let shelf = shelf();
        let of = |text: &str| Arc::clone(shelf.of_class(&class(text)).unwrap());
        assert_eq!((of("{catalog: own}").name.as_str(), of("{catalog: own}").types.len()), ("own", 1));
        assert_eq!(of("{}").name, "aws");
        assert!(std::ptr::eq(&raw const *of("{catalog: kwok, overlays: [any]}"), built_in("kwok").unwrap()));
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_a_like_one() {
        let problem = |text: &str| shelf().of_class(&class(text)).unwrap_err().to_string();
        assert_eq!(problem("{catalog: awss}"), "spec.catalog: there is no catalogue `awss`; is `aws` meant?");
        assert_eq!(
            problem("{catalog: azure-west}"),
            "spec.catalog: there is no catalogue `azure-west`; there are `aws`, `fake`, `gcp`, `kwok`, `own`"
        );
    }
}
