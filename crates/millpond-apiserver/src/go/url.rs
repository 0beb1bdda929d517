//! URLs as Go's `net/url` reads them.

use std::collections::BTreeMap;

use super::text::quote;

/// A parsed URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Url {
    /// `https`, in lower case; empty for a path alone.
    pub(crate) scheme: String,
    /// The text after `scheme:` if it does not start with a slash.
    opaque: String,
    user: Option<String>,
    /// Host with port, brackets kept.
    pub(crate) host: String,
    /// The path as it was written.
    raw_path: String,
    force_query: bool,
    raw_query: String,
    fragment: String,
}

/// Parses an absolute URL or an absolute path, as in a request line. The error is Go's sentence.
pub(crate) fn parse_request_uri(raw: &str) -> Result<Url, String> {
    parse(raw, true).map_err(|problem| format!("parse {}: {problem}", quote(raw)))
}

/// Parses any URL reference, with its fragment. The error is Go's sentence.
pub(crate) fn parse_reference(raw: &str) -> Result<Url, String> {
    let (body, fragment) = raw.split_once('#').unwrap_or((raw, ""));
    let mut url = parse(body, false).map_err(|problem| format!("parse {}: {problem}", quote(body)))?;
    url.fragment = unescape(fragment, Part::Other).map_err(|problem| format!("parse {}: {problem}", quote(raw)))?;
    Ok(url)
}

impl Url {
    /// Host without port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        let host = match self.port_colon() {
            Some(colon) => &self.host[..colon],
            None => &self.host,
        };
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Port, empty when there is none.
    pub(crate) fn port(&self) -> &str {
        self.port_colon().map_or("", |colon| &self.host[colon + 1..])
    }

    fn port_colon(&self) -> Option<usize> {
        let colon = self.host.rfind(':')?;
        let digits = self.host[colon + 1..].bytes().all(|byte| byte.is_ascii_digit());
        let outside_brackets = !self.host[colon..].contains(']');
        (digits && outside_brackets).then_some(colon)
    }

    /// The path, escaped: as written when that is a valid encoding.
    pub(crate) fn escaped_path(&self) -> String {
        let valid = self
            .raw_path
            .bytes()
            .all(|byte| matches!(byte, b'[' | b']' | b'%') || is_sub_delimiter(byte) || !escaped_in_path(byte));
        if valid || self.raw_path == "*" {
            return self.raw_path.clone();
        }
        let path = unescape(&self.raw_path, Part::Other).unwrap_or_default();
        escape(&path)
    }

    /// Parameters of the query; those that are malformed are left out.
    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self.raw_query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| unescape(&text.replace('+', " "), Part::Other);
            if let (Ok(key), Ok(value)) = (decode(key), decode(value)) {
                parameters.entry(key).or_default().push(value);
            }
        }
        parameters
    }

    /// The URL put together again.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text.push_str(&self.scheme);
            text.push(':');
        }
        if self.opaque.is_empty() {
            if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
                if !self.host.is_empty() || !self.raw_path.is_empty() || self.user.is_some() {
                    text.push_str("//");
                }
                if let Some(user) = &self.user {
                    text.push_str(user);
                    text.push('@');
                }
                text.push_str(&self.host);
            }
            text.push_str(&self.escaped_path());
        } else {
            text.push_str(&self.opaque);
        }
        if self.force_query || !self.raw_query.is_empty() {
            text.push('?');
            text.push_str(&self.raw_query);
        }
        if !self.fragment.is_empty() {
            text.push('#');
            text.push_str(&escape(&self.fragment));
        }
        text
    }
}

fn parse(raw: &str, in_request: bool) -> Result<Url, String> {
    if raw.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if raw.is_empty() && in_request {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if raw == "*" {
        "*".clone_into(&mut url.raw_path);
        return Ok(url);
    }
    let (scheme, mut rest) = split_scheme(raw)?;
    url.scheme = scheme.to_lowercase();
    if rest.ends_with('?') && rest.matches('?').count() == 1 {
        url.force_query = true;
        rest = &rest[..rest.len() - 1];
    } else if let Some((before, query)) = rest.split_once('?') {
        query.clone_into(&mut url.raw_query);
        rest = before;
    }
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if in_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let may_have_authority = !url.scheme.is_empty() || (!in_request && !rest.starts_with("///"));
    if may_have_authority && let Some(after) = rest.strip_prefix("//") {
        let end = after.find('/').unwrap_or(after.len());
        parse_authority(&after[..end], &mut url)?;
        rest = &after[end..];
    }
    unescape(rest, Part::Other)?;
    rest.clone_into(&mut url.raw_path);
    Ok(url)
}

/// The scheme and what follows its colon; no scheme when the text does not begin like one.
fn split_scheme(raw: &str) -> Result<(&str, &str), String> {
    for (index, byte) in raw.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&raw[..index], &raw[index + 1..])),
            _ => break,
        }
    }
    Ok(("", raw))
}

fn parse_authority(authority: &str, url: &mut Url) -> Result<(), String> {
    let host = match authority.rsplit_once('@') {
        None => authority,
        Some((user, host)) => {
            let allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || is_sub_delimiter(byte) || b"-._:~%@".contains(&byte);
            if !user.bytes().all(allowed) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user, Part::Other)?;
            url.user = Some(user.to_owned());
            host
        }
    };
    url.host = parse_host(host)?;
    Ok(())
}

fn parse_host(host: &str) -> Result<String, String> {
    let port = if let Some(bracketed) = host.strip_prefix('[') {
        let Some(end) = bracketed.rfind(']') else { return Err("missing ']' in host".to_owned()) };
        &bracketed[end + 1..]
    } else {
        host.rfind(':').map_or("", |colon| &host[colon..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !port.is_empty() && (!port.starts_with(':') || !digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    unescape(host, Part::Host)
}

/// The part of a URL that is decoded; hosts allow fewer characters.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Host,
    Other,
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let byte = bytes[index];
        if byte == b'%' {
            let code = text.get(index + 1..index + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let Some(code) = code else {
                let shown: String = text[index..].chars().take(3).collect();
                return Err(format!("invalid URL escape {}", quote(&shown)));
            };
            // Only a zone may be escaped in a host, and bytes beyond ASCII.
            if part == Part::Host && code < 0x80 && &text[index..index + 3] != "%25" {
                return Err(format!("invalid URL escape {}", quote(&text[index..index + 3])));
            }
            out.push(code);
            index += 3;
            continue;
        }
        if part == Part::Host && byte < 0x80 && !allowed_in_host(byte) {
            let shown = text[index..=index].to_owned();
            return Err(format!("invalid character {} in host name", quote(&shown)));
        }
        out.push(byte);
        index += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if escaped_in_path(byte) {
            out.push_str(&format!("%{byte:02X}"));
        } else {
            out.push(char::from(byte));
        }
    }
    out
}

fn escaped_in_path(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte))
}

fn allowed_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~:[]<>\"".contains(&byte) || is_sub_delimiter(byte)
}

fn is_sub_delimiter(byte: u8) -> bool {
    b"!$&'()*+,;=".contains(&byte) || byte == b':' || byte == b'@'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_uris() {
        for (raw, fine) in [
            ("https://example.com/a?b=c", true),
            ("/path", true),
            ("mailto:x@y", true),
            ("https://[::1]:8080/", true),
            ("https://host:80x/", false),
            ("https://[::1/", false),
            ("example.com", false),
            ("../x", false),
            ("", false),
            (":x", false),
            ("http://a b/", false),
            ("/%zz", false),
            ("/a b", true),
            ("http://\u{7f}/", false),
            ("*", true),
        ] {
            assert_eq!(parse_request_uri(raw).is_ok(), fine, "{raw}");
        }
        assert_eq!(parse_request_uri("example.com").unwrap_err(), "parse \"example.com\": invalid URI for request");
    }

    #[test]
    fn parts() {
        let url = parse_reference("https://user@[2001:db8::1]:8443/a%2Fb/c d?k=1&k=%32&x;y=z#frag").unwrap();
        assert_eq!(
            (url.scheme.as_str(), url.host.as_str(), url.hostname(), url.port()),
            ("https", "[2001:db8::1]:8443", "2001:db8::1", "8443")
        );
        assert_eq!(url.escaped_path(), "/a/b/c%20d");
        assert_eq!(url.query(), BTreeMap::from([("k".to_owned(), vec!["1".to_owned(), "2".to_owned()])]));
        let plain = parse_reference("/a%2Fb").unwrap();
        assert_eq!((plain.scheme.as_str(), plain.host.as_str(), plain.port()), ("", "", ""));
        assert_eq!(plain.escaped_path(), "/a%2Fb");
        assert_eq!(plain.text(), "/a%2Fb");
    }
}
