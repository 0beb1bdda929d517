//! The PropertyCollector: views, pages of properties, updates.

use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::reference::Reference;
use crate::soap;
use crate::xml::Element;

/// Objects in one page of an answer.
pub(crate) const PAGE: u32 = 500;
/// The longest time that one WaitForUpdatesEx stays open on the server.
const WAIT_SECONDS: u64 = 25;
/// How much longer the client waits for its answer.
const WAIT_GRACE: Duration = Duration::from_secs(15);

/// Properties to read of objects of one type.
#[derive(Clone, Debug)]
pub(crate) struct PropertySet {
    pub(crate) kind: &'static str,
    pub(crate) paths: &'static [&'static str],
}

/// Where objects are found.
#[derive(Clone, Debug)]
pub(crate) enum From<'a> {
    /// All objects of a container view.
    View(&'a Reference),
    /// Exactly these.
    Objects(&'a [Reference]),
}

/// One object in a response.
#[derive(Debug)]
pub(crate) struct ObjectContent {
    pub(crate) object: Reference,
    pub(crate) properties: Vec<(String, Element)>,
}

/// The kind of change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    Enter,
    Modify,
    Leave,
}

/// A change of an object.
#[derive(Debug)]
pub(crate) struct ObjectUpdate {
    pub(crate) kind: UpdateKind,
    pub(crate) object: Reference,
    /// Path and new value; `None` where it was removed.
    pub(crate) changes: Vec<(String, Option<Element>)>,
    /// Properties that could not be read, with the fault.
    pub(crate) missing: Vec<(String, Element)>,
}

/// An answer of WaitForUpdatesEx.
#[derive(Debug)]
pub(crate) struct UpdateSet {
    pub(crate) version: String,
    pub(crate) truncated: bool,
    pub(crate) updates: Vec<ObjectUpdate>,
}

impl Client {
    /// A view of all objects of these types below the root folder. It lives as long as the session.
    pub(crate) async fn create_view(&self, kinds: &[&str]) -> Result<Reference> {
        const METHOD: &str = "CreateContainerView";
        let session = self.session().await?;
        let manager = session.content.view_manager.as_ref();
        let manager = manager
            .ok_or_else(|| Error::Malformed { method: METHOD, problem: "the server has no ViewManager".to_owned() })?;
        let mut arguments = soap::reference("container", &session.content.root_folder);
        kinds.iter().for_each(|kind| arguments += &soap::element("type", kind));
        arguments += "<recursive>true</recursive>";
        returned(METHOD, &self.call(METHOD, manager, &arguments).await?)
    }

    /// A collector of its own, so that filters of other calls are not in its updates.
    pub(crate) async fn create_collector(&self) -> Result<Reference> {
        const METHOD: &str = "CreatePropertyCollector";
        let session = self.session().await?;
        returned(METHOD, &self.call(METHOD, &session.content.property_collector, "").await?)
    }

    /// A filter of that collector.
    pub(crate) async fn create_filter(
        &self,
        collector: &Reference,
        from: From<'_>,
        sets: &[PropertySet],
    ) -> Result<Reference> {
        const METHOD: &str = "CreateFilter";
        let arguments = format!("<spec>{}</spec><partialUpdates>false</partialUpdates>", filter(from, sets));
        returned(METHOD, &self.call(METHOD, collector, &arguments).await?)
    }

    /// Waits for changes since a version; the empty version gets everything. `None` when nothing happened for a while.
    pub(crate) async fn wait_for_updates(&self, collector: &Reference, version: &str) -> Result<Option<UpdateSet>> {
        const METHOD: &str = "WaitForUpdatesEx";
        let arguments = format!(
            "{}<options><maxWaitSeconds>{WAIT_SECONDS}</maxWaitSeconds><maxObjectUpdates>{PAGE}</maxObjectUpdates></options>",
            soap::element("version", version)
        );
        let timeout = Duration::from_secs(WAIT_SECONDS) + WAIT_GRACE;
        let answer = self.call_within(METHOD, collector, &arguments, timeout).await?;
        let Some(set) = answer.child("returnval") else { return Ok(None) };
        let mut updates = Vec::new();
        for filter in set.all("filterSet") {
            for update in filter.all("objectSet") {
                updates.push(read_update(update).ok_or_else(|| malformed(METHOD, "an update without an object"))?);
            }
        }
        let version = set.text_of("version").ok_or_else(|| malformed(METHOD, "no version"))?.to_owned();
        Ok(Some(UpdateSet { version, truncated: set.text_of("truncated") == Some("true"), updates }))
    }

    /// Reads properties page by page. Each page is handed on before the next one is asked for.
    pub(crate) async fn retrieve(
        &self,
        from: From<'_>,
        sets: &[PropertySet],
        mut each: impl FnMut(ObjectContent) + Send,
    ) -> Result<()> {
        let collector = self.session().await?.content.property_collector.clone();
        let arguments =
            format!("<specSet>{}</specSet><options><maxObjects>{PAGE}</maxObjects></options>", filter(from, sets));
        let mut answer = self.call("RetrievePropertiesEx", &collector, &arguments).await?;
        loop {
            let Some(page) = answer.child("returnval") else { return Ok(()) };
            for object in page.all("objects") {
                each(read_content(object).ok_or_else(|| malformed("RetrievePropertiesEx", "an object without `obj`"))?);
            }
            let Some(token) = page.text_of("token") else { return Ok(()) };
            let token = soap::element("token", token);
            answer = self.call("ContinueRetrievePropertiesEx", &collector, &token).await?;
        }
    }
}

/// The inside of a PropertyFilterSpec.
fn filter(from: From<'_>, sets: &[PropertySet]) -> String {
    let mut text = String::new();
    for set in sets {
        text += "<propSet>";
        text += &soap::element("type", set.kind);
        set.paths.iter().for_each(|path| text += &soap::element("pathSet", path));
        text += "</propSet>";
    }
    match from {
        From::View(view) => {
            text += "<objectSet>";
            text += &soap::reference("obj", view);
            text += "<skip>true</skip><selectSet xsi:type=\"TraversalSpec\"><name>view</name><type>ContainerView</type>\
                     <path>view</path><skip>false</skip></selectSet></objectSet>";
        }
        From::Objects(objects) => {
            for object in objects {
                text += &format!("<objectSet>{}<skip>false</skip></objectSet>", soap::reference("obj", object));
            }
        }
    }
    text
}

fn returned(method: &'static str, answer: &Element) -> Result<Reference> {
    answer.child("returnval").and_then(Element::reference).ok_or_else(|| malformed(method, "no reference returned"))
}

fn malformed(method: &'static str, problem: &str) -> Error {
    Error::Malformed { method, problem: problem.to_owned() }
}

fn read_content(object: &Element) -> Option<ObjectContent> {
    let named = |property: &Element| Some((property.text_of("name")?.to_owned(), property.child("val")?.clone()));
    Some(ObjectContent {
        object: object.child("obj")?.reference()?,
        properties: object.all("propSet").filter_map(named).collect(),
    })
}

fn read_missing(object: &Element) -> Vec<(String, Element)> {
    let fault = |missing: &Element| {
        let fault = missing.child("fault")?.child("fault")?.clone();
        Some((missing.text_of("path")?.to_owned(), fault))
    };
    object.all("missingSet").filter_map(fault).collect()
}

fn read_update(update: &Element) -> Option<ObjectUpdate> {
    let kind = match update.text_of("kind")? {
        "enter" => UpdateKind::Enter,
        "leave" => UpdateKind::Leave,
        _ => UpdateKind::Modify,
    };
    let change = |change: &Element| {
        let removed = matches!(change.text_of("op"), Some("remove" | "indirectRemove"));
        let value = if removed { None } else { change.child("val").cloned() };
        Some((change.text_of("name")?.to_owned(), value))
    };
    Some(ObjectUpdate {
        kind,
        object: update.child("obj")?.reference()?,
        changes: update.all("changeSet").filter_map(change).collect(),
        missing: read_missing(update),
    })
}
