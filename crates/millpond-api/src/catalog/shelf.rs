//! The catalogues and price overlays that node classes can name, and what a class's names come to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::overlay::{self, Overlay};
use super::shipped::shared;
use super::{BUILT_IN, Catalog};
use crate::meta::Invalid;
use crate::node_class::NodeClass;
use crate::spelling::nearest;

/// The catalogue of classes that name none.
pub const DEFAULT: &str = "aws";

/// Catalogues and price overlays beside those that come with the binary.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    /// The catalogue of classes that name none; EC2 where none is given.
    pub default: Option<Arc<Catalog>>,
    /// Own catalogues; they hide those of the same name that come with the binary.
    pub catalogs: Vec<Arc<Catalog>>,
    /// Price overlays. A class that names some has just those, all others have all.
    pub overlays: Vec<Overlay>,
}

impl Shelf {
    /// The catalogue of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<Catalog>> {
        let own = self.catalogs.iter().chain(&self.default).find(|catalog| catalog.name == name);
        own.or_else(|| shared(name))
    }

    /// The catalogue of a class, with its overlays laid over it. Where there are some, this copies: keep the result.
    pub fn of_class(&self, class: &NodeClass) -> Result<Arc<Catalog>, Invalid> {
        let catalog = self.named(class)?;
        let overlays = self.overlays_of(class)?;
        if overlays.is_empty() {
            return Ok(Arc::clone(catalog));
        }
        let mut changed = Catalog::clone(catalog);
        overlay::apply(&mut changed, &overlays);
        Ok(Arc::new(changed))
    }

    /// The catalogue of a class as it is.
    fn named(&self, class: &NodeClass) -> Result<&Arc<Catalog>, Invalid> {
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

    fn overlays_of(&self, class: &NodeClass) -> Result<Vec<Overlay>, Invalid> {
        let named = &class.spec.overlays;
        if named.is_empty() {
            return Ok(self.overlays.clone());
        }
        let names = || self.overlays.iter().map(|overlay| overlay.name.as_str());
        for (index, name) in named.iter().enumerate() {
            if !names().any(|known| known == name) {
                let hint = nearest(name, names()).map(|like| format!("; is `{like}` meant?")).unwrap_or_default();
                let problem = format!("there is no price overlay `{name}`{hint}");
                return Err(Invalid::new(format!("spec.overlays[{index}]"), problem));
            }
        }
        Ok(self.overlays.iter().filter(|overlay| named.contains(&overlay.name)).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::built_in;
    use super::*;

    fn class(text: &str) -> NodeClass {
        serde_saphyr::from_str(&format!("metadata: {{name: a}}\nspec: {text}")).unwrap()
    }

    fn shelf() -> Shelf {
        let mut own = built_in("kwok").unwrap().clone();
        own.name = "own".to_owned();
        own.types.truncate(1);
        let overlays = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: half}\n\
                        spec: {priceAdjustment: -50%}\n---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\n\
                        metadata: {name: free}\nspec: {weight: 10, price: '0'}\n";
        let overlays = overlay::parse("overlays.yaml", overlays).unwrap();
        Shelf { default: None, catalogs: vec![Arc::new(own)], overlays }
    }

    #[test]
    fn a_class_has_the_catalogue_and_overlays_that_it_names() {
        let price = |text: &str| {
            let catalog = shelf().of_class(&class(text)).unwrap();
            (catalog.name.clone(), catalog.types[0].offerings[0].price_nanos_hour)
        };
        let full = built_in("kwok").unwrap().types[0].offerings[0].price_nanos_hour;
        assert_eq!(price("{catalog: own, overlays: [half]}"), ("own".to_owned(), full.div_ceil(2)));
        assert_eq!(price("{catalog: kwok}"), ("kwok".to_owned(), 0));
        assert_eq!(price("{}").0, "aws");
        let empty = Shelf { overlays: Vec::new(), ..shelf() };
        let shipped = empty.of_class(&class("{catalog: kwok}")).unwrap();
        assert!(std::ptr::eq(&raw const *shipped, built_in("kwok").unwrap()));
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_a_like_one() {
        let problem = |text: &str| shelf().of_class(&class(text)).unwrap_err().to_string();
        assert_eq!(problem("{catalog: awss}"), "spec.catalog: there is no catalogue `awss`; is `aws` meant?");
        assert_eq!(
            problem("{catalog: azure-west}"),
            "spec.catalog: there is no catalogue `azure-west`; there are `aws`, `fake`, `gcp`, `kwok`, `own`"
        );
        assert_eq!(
            problem("{overlays: [half, fre]}"),
            "spec.overlays[1]: there is no price overlay `fre`; is `free` meant?"
        );
    }
}
