//! Envelopes of SOAP 1.1 as vCenter reads and writes them.

use std::fmt::Write as _;

use crate::error::{Error, Result};
use crate::reference::Reference;
use crate::transport::Answer;
use crate::xml::{self, Element, escape};

const OPEN: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
    <soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
    xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\
    <soapenv:Body>";
const CLOSE: &str = "</soapenv:Body></soapenv:Envelope>";

/// An envelope around one call: the method, the object it is called on, and its arguments as XML.
pub(crate) fn request(method: &str, this: &Reference, arguments: &str) -> String {
    let this = reference("_this", this);
    format!("{OPEN}<{method} xmlns=\"urn:vim25\">{this}{arguments}</{method}>{CLOSE}")
}

/// An envelope around an answer.
#[cfg(feature = "fake")]
pub(crate) fn envelope(body: &str) -> String {
    format!("{OPEN}{body}{CLOSE}")
}

/// An element with text.
pub(crate) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// An element with a reference.
pub(crate) fn reference(name: &str, to: &Reference) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write!(text, "<{name} type=\"{}\">{}</{name}>", escape(&to.kind), escape(&to.id));
    text
}

/// The result of a method; `method` is named in errors.
pub(crate) fn read(method: &'static str, answer: &Answer) -> Result<Element> {
    let malformed = |problem: String| Error::Malformed { method, problem };
    let envelope = match xml::parse(&answer.body) {
        Ok(envelope) => envelope,
        // A proxy, or a vCenter whose services are starting, responds with an HTML page.
        Err(_) if answer.status != 200 => return Err(Error::Http { method, status: answer.status }),
        Err(error) => return Err(malformed(error.to_string())),
    };
    let Some(body) = envelope.child("Body") else {
        let http = Error::Http { method, status: answer.status };
        return Err(if answer.status == 200 { malformed("no SOAP body".to_owned()) } else { http });
    };
    if let Some(fault) = body.child("Fault") {
        return Err(fault_of(method, fault));
    }
    body.children.first().cloned().ok_or_else(|| malformed("an empty SOAP body".to_owned()))
}

fn fault_of(method: &'static str, fault: &Element) -> Error {
    let message = fault.text_of("faultstring").unwrap_or_default().to_owned();
    let detail = fault.child("detail").and_then(|detail| detail.children.first());
    let kind = detail.map(|detail| {
        let named = detail.name.strip_suffix("Fault").unwrap_or(&detail.name);
        detail.xsi_type.as_deref().unwrap_or(named)
    });
    match (kind, detail) {
        (Some("NoPermission"), Some(detail)) => permission(detail),
        (Some("NotAuthenticated"), _) => Error::SessionEnded,
        (kind, _) => Error::Fault { method, kind: kind.unwrap_or("Fault").to_owned(), message },
    }
}

/// The error of a fault NoPermission.
pub(crate) fn permission(fault: &Element) -> Error {
    let object = fault.child("object").and_then(Element::reference);
    let privilege = fault.text_of("privilegeId").unwrap_or("System.Read").to_owned();
    Error::Permission { object: object.map_or_else(|| "an object".to_owned(), |object| object.to_string()), privilege }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.to_owned(), cookie: None }
    }

    #[test]
    fn faults_become_errors() {
        let fault = |detail: &str| {
            let body =
                format!("<E><Body><Fault><faultstring>no</faultstring><detail>{detail}</detail></Fault></Body></E>");
            read("M", &answer(500, &body)).unwrap_err().to_string()
        };
        assert_eq!(fault("<NotAuthenticatedFault xsi:type=\"NotAuthenticated\"/>"), "the session ended");
        assert_eq!(fault("<InvalidLoginFault/>"), "M failed with InvalidLogin: no");
        assert_eq!(
            fault(
                "<Fault xsi:type=\"NoPermission\"><object type=\"Folder\">group-d1</object>\
                 <privilegeId>System.View</privilegeId></Fault>"
            ),
            "the account lacks the privilege System.View on Folder:group-d1"
        );
    }

    #[test]
    fn what_is_not_soap_is_an_error() {
        let text = |status, body| read("M", &answer(status, body)).unwrap_err().to_string();
        assert_eq!(text(503, "<html>starting"), "M was answered with HTTP 503");
        assert_eq!(text(502, "<html></html>"), "M was answered with HTTP 502");
        assert!(text(200, "<html></html>").contains("no SOAP body"));
        assert!(text(200, "hello").contains("cannot be read"));
        assert!(text(200, "<E><Body/></E>").contains("empty"));
    }

    #[test]
    fn arguments_are_escaped() {
        let text = request("Login", &Reference::new("SessionManager", "s"), &element("password", "a<&\">b"));
        assert!(text.contains("<password>a&lt;&amp;&quot;&gt;b</password>"), "{text}");
        let tree = xml::parse(&text).unwrap();
        let login = &tree.child("Body").unwrap().children[0];
        assert_eq!(login.text_of("password"), Some("a<&\">b"));
    }
}
