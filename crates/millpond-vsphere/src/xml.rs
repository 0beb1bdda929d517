//! XML as a tree of elements, as small as SOAP answers need it.
//!
//! Namespaces are dropped: the answers of vCenter use one, and local names are unambiguous.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};

use crate::reference::Reference;

/// Elements may be nested this deep. Answers of vCenter stay below 20; the limit keeps a hostile answer from
/// overflowing the stack when the tree is dropped.
const DEEPEST: usize = 128;

/// An element with its text and children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    /// Local name.
    pub(crate) name: Box<str>,
    /// Local name of `xsi:type`.
    pub(crate) xsi_type: Option<Box<str>>,
    /// The attribute `type`, which references have.
    pub(crate) reference_type: Option<Box<str>>,
    /// The text directly within the element, with entities resolved.
    pub(crate) text: String,
    /// Child elements in order.
    pub(crate) children: Vec<Element>,
}

/// Why text is not a tree of elements.
#[derive(Debug, thiserror::Error)]
pub(crate) enum XmlError {
    /// The text is not well-formed.
    #[error("not well-formed XML")]
    Syntax(#[from] quick_xml::Error),
    /// An attribute is not well-formed.
    #[error("not a well-formed attribute")]
    Attribute(#[from] quick_xml::events::attributes::AttrError),
    /// An entity that XML does not define.
    #[error("unknown entity `{0}`")]
    Entity(String),
    /// More levels than [`DEEPEST`].
    #[error("elements are nested deeper than {DEEPEST}")]
    TooDeep,
    /// There is no element, or it is not closed.
    #[error("the document ends early")]
    Incomplete,
}

/// Reads a document.
pub(crate) fn parse(text: &str) -> Result<Element, XmlError> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    loop {
        match reader.read_event()? {
            Event::Start(start) => {
                if open.len() == DEEPEST {
                    return Err(XmlError::TooDeep);
                }
                open.push(begin(&start)?);
            }
            Event::Empty(start) => {
                let element = begin(&start)?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => return Ok(element),
                }
            }
            Event::End(_) => {
                let Some(mut element) = open.pop() else { return Err(XmlError::Incomplete) };
                // Between child elements there is only white space.
                if !element.children.is_empty() {
                    element.text = String::new();
                }
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => return Ok(element),
                }
            }
            Event::Text(text) => append(&mut open, &text.xml10_content()),
            Event::CData(text) => append(&mut open, &text.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref()? {
                Some(character) => append(&mut open, character.encode_utf8(&mut [0; 4])),
                None => {
                    let known = resolve_xml_entity(&reference);
                    append(&mut open, known.ok_or_else(|| XmlError::Entity(reference.to_string()))?);
                }
            },
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            Event::Eof => return Err(XmlError::Incomplete),
        }
    }
}

fn begin(start: &BytesStart<'_>) -> Result<Element, XmlError> {
    let mut element = Element { name: start.local_name().into_inner().into(), ..Element::default() };
    for attribute in start.attributes() {
        let attribute = attribute?;
        match attribute.key.into_inner() {
            "type" => element.reference_type = Some(attribute.value.as_ref().into()),
            key if key.ends_with(":type") => element.xsi_type = Some(local(&attribute.value).into()),
            _ => {}
        }
    }
    Ok(element)
}

fn append(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

impl Element {
    /// The first child of a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| &*child.name == name)
    }

    /// All children of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| &*child.name == name)
    }

    /// The text of the first child of a name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.trim())
    }

    /// The reference that the element holds.
    pub(crate) fn reference(&self) -> Option<Reference> {
        Some(Reference::new(self.reference_type.as_deref()?, self.text.trim()))
    }
}

/// Text as it may stand between tags.
pub(crate) fn escape(text: &str) -> std::borrow::Cow<'_, str> {
    quick_xml::escape::escape(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_keep_text_types_and_order() {
        let tree = parse(
            "<?xml version=\"1.0\"?><a:root xmlns:a=\"x\">\n <b xsi:type=\"vim25:HostSystem\" type=\"T\">1 &lt; 2&#x21;</b><b/>\
             <c><![CDATA[<raw>]]></c></a:root>",
        )
        .unwrap();
        assert_eq!(&*tree.name, "root");
        assert_eq!(tree.text, "");
        assert_eq!(tree.all("b").count(), 2);
        let first = tree.child("b").unwrap();
        assert_eq!((first.xsi_type.as_deref(), first.text.as_str()), (Some("HostSystem"), "1 < 2!"));
        assert_eq!(first.reference(), Some(Reference::new("T", "1 < 2!")));
        assert_eq!(tree.text_of("c"), Some("<raw>"));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["", "<a>", "<a></b>", "<a>&bomb;</a>", "</a>"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let deep = "<a>".repeat(DEEPEST + 1) + &"</a>".repeat(DEEPEST + 1);
        assert!(matches!(parse(&deep), Err(XmlError::TooDeep)));
    }

    proptest! {
        #[test]
        fn escaped_text_comes_back(text in "[ -~äß€]{0,40}") {
            let tree = parse(&format!("<a><b>{}</b></a>", escape(&text))).unwrap();
            prop_assert_eq!(&tree.child("b").unwrap().text, &text);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            let _ = parse(&text);
        }
    }
}
