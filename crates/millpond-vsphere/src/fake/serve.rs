//! Answers of the fake vCenter.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::world::{Change, Rest, Watched, World};
use crate::reference::Reference;
use crate::soap;
use crate::xml::{self, Element, escape};

/// Objects in a page if the request names no number.
const PAGE: usize = 500;

/// A certificate for loopback, and what accepts connections with it.
pub(super) fn acceptor() -> Result<(rcgen::Certificate, TlsAcceptor), Box<dyn std::error::Error + Send + Sync>> {
    let key = rcgen::KeyPair::generate()?;
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)?;
    Ok((certificate, TlsAcceptor::from(Arc::new(config))))
}

/// Accepts connections until the token is cancelled.
pub(super) async fn run(
    inner: Arc<Inner>,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    stop: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        if *inner.down.borrow() {
            continue;
        }
        let (inner, acceptor, stop) = (Arc::clone(&inner), acceptor.clone(), stop.clone());
        tokio::spawn(async move {
            let mut down = inner.down.subscribe();
            let serving = async {
                match acceptor {
                    None => serve(Arc::clone(&inner), stream).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(Arc::clone(&inner), stream).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                _ = down.wait_for(|down| *down) => {}
                () = serving => {}
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(inner: Arc<Inner>, stream: S) {
    let service = service_fn(|request| {
        let inner = Arc::clone(&inner);
        async move { Ok::<_, std::convert::Infallible>(answer(&inner, request).await) }
    });
    // A connection that breaks is what tests ask for.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A SOAP fault: its type, its message, and more of its detail.
struct Fault(&'static str, String, String);

fn fault(kind: &'static str, message: &str) -> Fault {
    Fault(kind, message.to_owned(), String::new())
}

async fn answer(inner: &Inner, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let cookie = session_of(&request);
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return status(StatusCode::BAD_REQUEST),
    };
    let Ok(envelope) = xml::parse(&String::from_utf8_lossy(&body)) else { return status(StatusCode::BAD_REQUEST) };
    let Some(call) = envelope.child("Body").and_then(|body| body.children.first()) else {
        return status(StatusCode::BAD_REQUEST);
    };
    let mut session = None;
    let outcome = respond(inner, call, cookie.as_deref(), &mut session).await;
    let (code, text) = match outcome {
        Ok(inside) => (StatusCode::OK, format!("<{0}Response xmlns=\"urn:vim25\">{inside}</{0}Response>", call.name)),
        Err(Fault(kind, message, detail)) => {
            let text = format!(
                "<soapenv:Fault><faultcode>ServerFaultCode</faultcode>{}<detail><{kind}Fault xmlns=\"urn:vim25\" \
                 xsi:type=\"{kind}\">{detail}</{kind}Fault></detail></soapenv:Fault>",
                soap::element("faultstring", &message)
            );
            (StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    };
    let mut response = Response::builder().status(code).header(header::CONTENT_TYPE, "text/xml; charset=utf-8");
    if let Some(session) = session {
        response = response.header(header::SET_COOKIE, format!("vmware_soap_session={session}; Path=/; HttpOnly"));
    }
    response.body(Full::from(soap::envelope(&text))).unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
}

fn status(code: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = code;
    response
}

fn session_of(request: &Request<Incoming>) -> Option<String> {
    let cookie = request.headers().get(header::COOKIE)?.to_str().ok()?;
    cookie.split(';').find_map(|pair| pair.trim().strip_prefix("vmware_soap_session=").map(str::to_owned))
}

async fn respond(
    inner: &Inner,
    call: &Element,
    cookie: Option<&str>,
    session: &mut Option<String>,
) -> Result<String, Fault> {
    match &*call.name {
        "RetrieveServiceContent" => return Ok(service_content()),
        "Login" => return login(inner, call, cookie).map(|new| *session = Some(new)).map(|()| String::new()),
        _ => {}
    }
    {
        let world = inner.world.lock();
        if !cookie.is_some_and(|cookie| world.sessions.contains(cookie)) {
            return Err(fault("NotAuthenticated", "The session is not authenticated."));
        }
    }
    let this = call.child("_this").and_then(Element::reference).ok_or_else(|| fault("InvalidRequest", "no _this"))?;
    match &*call.name {
        "Logout" => {
            if let Some(cookie) = cookie {
                inner.world.lock().sessions.remove(cookie);
            }
            Ok(String::new())
        }
        "CreateContainerView" => Ok(create_view(&mut inner.world.lock(), call)),
        "CreatePropertyCollector" => {
            let mut world = inner.world.lock();
            let id = world.fresh_id("collector");
            world.collectors.insert(id.clone(), None);
            Ok(soap::reference("returnval", &Reference::new("PropertyCollector", &id)))
        }
        "DestroyPropertyCollector" => {
            inner.world.lock().collectors.remove(&*this.id).map(|_| String::new()).ok_or_else(gone)
        }
        "DestroyView" => inner.world.lock().views.remove(&*this.id).map(|_| String::new()).ok_or_else(gone),
        "CreateFilter" => create_filter(&mut inner.world.lock(), &this, call),
        "RetrievePropertiesEx" => retrieve(&mut inner.world.lock(), call),
        "ContinueRetrievePropertiesEx" => next_page(&mut inner.world.lock(), call),
        "RetrieveEntityScheduledTask" => tasks(&inner.world.lock()),
        "WaitForUpdatesEx" => wait(inner, &this, call, cookie.unwrap_or_default()).await,
        _ => Err(fault("MethodNotFound", "The method is not known.")),
    }
}

fn service_content() -> String {
    let reference = |name: &str, kind: &str, id: &str| soap::reference(name, &Reference::new(kind, id));
    format!(
        "<returnval>{}{}{}{}{}<about><name>VMware vCenter Server</name><fullName>Fake vCenter 8.0.2</fullName>\
         <apiType>VirtualCenter</apiType><apiVersion>8.0.2.0</apiVersion>\
         <instanceUuid>6d696c6c-706f-6e64-0000-000000000001</instanceUuid></about></returnval>",
        reference("rootFolder", "Folder", "group-d1"),
        reference("propertyCollector", "PropertyCollector", "propertyCollector"),
        reference("viewManager", "ViewManager", "ViewManager"),
        reference("sessionManager", "SessionManager", "SessionManager"),
        reference("scheduledTaskManager", "ScheduledTaskManager", "ScheduledTaskManager"),
    )
}

fn login(inner: &Inner, call: &Element, cookie: Option<&str>) -> Result<String, Fault> {
    let refused = || fault("InvalidLogin", "Cannot complete login due to an incorrect user name or password.");
    let mut world = inner.world.lock();
    world.logins += 1;
    // Within a session there is no second login.
    if world.refuse_logins || cookie.is_some_and(|cookie| world.sessions.contains(cookie)) {
        return Err(refused());
    }
    let text = |name: &str| call.child(name).map(|child| child.text.as_str());
    let options = &inner.options;
    if text("userName") != Some(&options.user) || text("password") != Some(&options.password) {
        return Err(refused());
    }
    let id = world.fresh_id("session");
    world.sessions.insert(id.clone());
    Ok(id)
}

fn create_view(world: &mut World, call: &Element) -> String {
    let id = world.fresh_id("view");
    let kinds = call.all("type").map(|kind| kind.text.clone()).collect();
    world.views.insert(id.clone(), kinds);
    soap::reference("returnval", &Reference::new("ContainerView", &id))
}

/// A fault that concerns neither the account nor the session.
fn broken(world: &World) -> Result<(), Fault> {
    if world.fail_reads {
        return Err(fault("SystemError", "A general system error occurred: the inventory service is starting"));
    }
    Ok(())
}

fn no_permission(detail: &str) -> Fault {
    Fault("NoPermission", "Permission to perform this operation was denied.".to_owned(), detail.to_owned())
}

fn gone() -> Fault {
    fault("ManagedObjectNotFound", "The object has already been deleted or has not been completely created")
}

fn create_filter(world: &mut World, this: &Reference, call: &Element) -> Result<String, Fault> {
    let watched = watched(call.child("spec").unwrap_or(call));
    *world.collectors.get_mut(&*this.id).ok_or_else(gone)? = Some(watched);
    let id = world.fresh_id("filter");
    Ok(soap::reference("returnval", &Reference::new("PropertyFilter", &id)))
}

fn watched(spec: &Element) -> Watched {
    let set = |set: &Element| {
        let kind = set.text_of("type").unwrap_or_default().to_owned();
        (kind, set.all("pathSet").map(|path| path.text.clone()).collect())
    };
    Watched { sets: spec.all("propSet").map(set).collect() }
}

fn retrieve(world: &mut World, call: &Element) -> Result<String, Fault> {
    broken(world)?;
    if world.deny_reads {
        return Err(no_permission("<object type=\"Folder\">group-d1</object><privilegeId>System.View</privilegeId>"));
    }
    let spec = call.child("specSet").ok_or_else(|| fault("InvalidRequest", "no specSet"))?;
    let watched = watched(spec);
    let mut objects = Vec::new();
    for set in spec.all("objectSet") {
        let Some(from) = set.child("obj").and_then(Element::reference) else { continue };
        if &*from.kind == "ContainerView" {
            let kinds = world.views.get(&*from.id).ok_or_else(gone)?;
            let in_view = |object: &&Reference| kinds.iter().any(|kind| kind.as_str() == &*object.kind);
            let asked = |object: &&Reference| watched.sets.iter().any(|(kind, _)| kind.as_str() == &*object.kind);
            objects.extend(world.objects.keys().filter(in_view).filter(asked).cloned());
        } else if world.objects.contains_key(&from) {
            objects.push(from);
        } else {
            return Err(gone());
        }
    }
    let most = call.child("options").and_then(|options| options.text_of("maxObjects")?.parse().ok());
    Ok(page(world, Rest { objects, watched, page: most.unwrap_or(PAGE).max(1) }))
}

fn next_page(world: &mut World, call: &Element) -> Result<String, Fault> {
    let rest = call.text_of("token").and_then(|token| world.pages.remove(token));
    Ok(page(world, rest.ok_or_else(|| fault("InvalidProperty", "unknown token"))?))
}

/// The next page, with a token if there are more.
fn page(world: &mut World, mut rest: Rest) -> String {
    if rest.objects.is_empty() {
        return String::new();
    }
    let more = rest.objects.split_off(rest.page.min(rest.objects.len()));
    let text = |object: &Reference| {
        let mut values = world.values(object, &rest.watched);
        values.retain(|(path, _)| world.may_read(object, path));
        object_content(object, &values)
    };
    let there = rest.objects.iter().filter(|object| world.objects.contains_key(object));
    let objects: String = there.map(text).collect();
    if more.is_empty() {
        return format!("<returnval>{objects}</returnval>");
    }
    let token = world.fresh_id("token");
    world.pages.insert(token.clone(), Rest { objects: more, ..rest });
    format!("<returnval>{}{objects}</returnval>", soap::element("token", &token))
}

fn object_content(object: &Reference, values: &[(String, String)]) -> String {
    let property =
        |(path, value): &(String, String)| format!("<propSet><name>{}</name>{value}</propSet>", escape(path));
    let properties: String = values.iter().map(property).collect();
    format!("<objects>{}{properties}</objects>", soap::reference("obj", object))
}

fn tasks(world: &World) -> Result<String, Fault> {
    if world.deny_tasks {
        let detail = "<object type=\"ScheduledTaskManager\">ScheduledTaskManager</object>\
                      <privilegeId>System.View</privilegeId>";
        return Err(no_permission(detail));
    }
    let tasks = world.objects.keys().filter(|object| &*object.kind == "ScheduledTask");
    Ok(tasks.map(|task| soap::reference("returnval", task)).collect())
}

async fn wait(inner: &Inner, this: &Reference, call: &Element, session: &str) -> Result<String, Fault> {
    let since: u64 = call.text_of("version").and_then(|version| version.parse().ok()).unwrap_or_default();
    let option = |name: &str| call.child("options").and_then(|options| options.text_of(name)?.parse::<u64>().ok());
    let most = option("maxObjectUpdates").unwrap_or(PAGE as u64).max(1) as usize;
    let seconds = option("maxWaitSeconds").unwrap_or(60);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let mut version = inner.version.subscribe();
    loop {
        version.mark_unchanged();
        {
            let world = inner.world.lock();
            if !world.sessions.contains(session) {
                return Err(fault("NotAuthenticated", "The session is not authenticated."));
            }
            broken(&world)?;
            let watched = world.collectors.get(&*this.id).ok_or_else(gone)?;
            let hidden = Watched::default();
            let watched = if world.deny_reads { &hidden } else { watched.as_ref().unwrap_or(&hidden) };
            // One change more than fits shows whether there are further ones.
            let mut changes = world.changes(watched, since, most + 1);
            let truncated = changes.len() > most && fits(&changes, most);
            if truncated {
                changes.truncate(most);
            }
            if !changes.is_empty() || since == 0 {
                let last = changes.last().map_or(world.version.max(1), |change| change.version);
                return Ok(update_set(&world, &changes, last, truncated));
            }
        }
        let changed = tokio::time::timeout_at(deadline, version.changed());
        if changed.await.is_err() {
            return Ok(String::new());
        }
    }
}

/// Whether a page can end there: the version after it must not hide changes of the same version.
fn fits(changes: &[Change], most: usize) -> bool {
    changes[most - 1].version < changes[most].version
}

fn update_set(world: &World, changes: &[Change], version: u64, truncated: bool) -> String {
    let objects: String = changes.iter().map(|change| update(world, change)).collect();
    format!(
        "<returnval><version>{version}</version><filterSet><filter type=\"PropertyFilter\">filter</filter>{objects}\
         </filterSet><truncated>{truncated}</truncated></returnval>"
    )
}

fn update(world: &World, change: &Change) -> String {
    let kind = match &change.values {
        None => "leave",
        Some(_) if change.entered => "enter",
        Some(_) => "modify",
    };
    let set = |(path, value): &(String, String)| {
        format!("<changeSet><name>{}</name><op>assign</op>{value}</changeSet>", escape(path))
    };
    let missing = |(path, _): &(String, String)| {
        let object = soap::reference("object", &change.object);
        format!(
            "<missingSet><path>{}</path><fault><fault xsi:type=\"NoPermission\">{object}\
             <privilegeId>System.Read</privilegeId></fault><localizedMessage/></fault></missingSet>",
            escape(path)
        )
    };
    let may_read = |(path, _): &&(String, String)| world.may_read(&change.object, path);
    let (read, denied): (Vec<_>, Vec<_>) = change.values.iter().flatten().partition(may_read);
    // As in the schema: what changed, then what is missing.
    let values: String = read.into_iter().map(set).chain(denied.into_iter().map(missing)).collect();
    format!("<objectSet><kind>{kind}</kind>{}{values}</objectSet>", soap::reference("obj", &change.object))
}
