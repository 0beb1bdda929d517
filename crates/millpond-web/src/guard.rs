//! Requests that no page of ours makes are refused: of other names of this address, and of pages from elsewhere.

use http::header::{HOST, ORIGIN};
use http::request::Parts;

use crate::respond::Problem;

/// Refuses a request to a name that is not ours: a name of an attacker may point to this address.
pub(crate) fn check_host(parts: &Parts, ours: &[String]) -> Result<(), Problem> {
    let said = parts.uri.authority().map(ToString::to_string);
    let said = said.or_else(|| parts.headers.get(HOST)?.to_str().ok().map(str::to_owned)).unwrap_or_default();
    if ours.iter().any(|name| name.eq_ignore_ascii_case(&said)) { Ok(()) } else { Err(Problem::misdirected(&said)) }
}

/// Refuses a request that a page of another origin makes.
pub(crate) fn check_origin(parts: &Parts, ours: &[String]) -> Result<(), Problem> {
    let refused = || Problem::forbidden("pages of another origin may not ask this server");
    if let Some(site) = parts.headers.get("sec-fetch-site")
        && !matches!(site.to_str(), Ok("same-origin" | "none"))
    {
        return Err(refused());
    }
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let is_ours = host.is_some_and(|host| ours.iter().any(|name| name.eq_ignore_ascii_case(host)));
    if is_ours { Ok(()) } else { Err(refused()) }
}
