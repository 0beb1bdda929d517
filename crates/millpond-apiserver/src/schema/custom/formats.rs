//! Formats of strings and numbers that are checked; others are ignored.

use std::sync::LazyLock;

use regex::Regex;

use crate::go::{mail, net, time, url};

/// A format that values are checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Format {
    /// A format of strings.
    Text(fn(&str) -> bool),
    /// 32-bit integers.
    Int32,
    /// 64-bit integers.
    Int64,
    /// 32-bit floats.
    Float,
    /// 64-bit floats.
    Double,
}

impl Format {
    /// The check for a format on a schema of this type; `None` if the format does not apply to the type.
    pub(crate) fn new(format: &str, ty: &str, int_or_string: bool) -> Option<Self> {
        if format.is_empty() {
            return None;
        }
        match if int_or_string { "" } else { ty } {
            "" | "string" => text_format(format).map(Self::Text),
            "integer" => match format {
                "int32" => Some(Self::Int32),
                "int64" => Some(Self::Int64),
                _ => None,
            },
            "number" => match format {
                "float" => Some(Self::Float),
                "double" => Some(Self::Double),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Check of a format by name; dashes in the name do not count.
fn text_format(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => |text| url::parse_request_uri(text).is_ok(),
        "email" => mail::is_address,
        "hostname" => is_hostname,
        "ipv4" => net::is_ipv4,
        "ipv6" => net::is_ipv6,
        "cidr" => net::is_network,
        "mac" => net::is_mac,
        "uuid" => is_uuid,
        "uuid3" => |text| is_uuid_of(text, Some(b'3')),
        "uuid4" => |text| is_uuid_of(text, Some(b'4')),
        "uuid5" => |text| is_uuid_of(text, Some(b'5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_social_security_number,
        "hexcolor" => |text| {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        },
        "rgbcolor" => |text| RGB_COLOR.is_match(text),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => |text| time::parse_date(text).is_some(),
        "duration" => |text| time::parse_loose_duration(text).is_some(),
        "datetime" => time::is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_short_name(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_short_name),
        _ => return None,
    })
}

fn expression(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed pattern is well formed")
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    expression(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
    )
});
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    expression(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    const NUMBER: &str = r"[\t\n\x0c\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0c\r ]*";
    expression(&format!(r"^rgb\({NUMBER},{NUMBER},{NUMBER}\)$"))
});

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && HOSTNAME.is_match(text)
}

/// Whether the text is a UUID of any version.
pub(crate) fn is_uuid(text: &str) -> bool {
    is_uuid_of(text, None)
}

/// Hexadecimal digits in groups of 8-4-4-4-12, each dash optional; the version digit when one is asked for.
fn is_uuid_of(text: &str, version: Option<u8>) -> bool {
    let mut rest = text.as_bytes();
    let mut digits = Vec::with_capacity(32);
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 && rest.first() == Some(&b'-') {
            rest = &rest[1..];
        }
        let Some((group, left)) = rest.split_at_checked(length) else { return false };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        digits.extend_from_slice(group);
        rest = left;
    }
    let variant = || matches!(digits[16], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
    rest.is_empty()
        && match version {
            None => true,
            Some(version) => digits[12] == version && (version == b'3' || variant()),
        }
}

fn without_spaces_and_dashes(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b'-' | b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    if digits.len() != 10 || !digits[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match digits[9] {
        b'X' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    let sum: u32 = (1..).zip(&digits[..9]).map(|(weight, digit)| weight * u32::from(digit - b'0')).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_spaces_and_dashes(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighted = |(index, digit): (usize, &u8)| if index % 2 == 0 { 1 } else { 3 } * u32::from(digit - b'0');
    digits.iter().enumerate().map(weighted).sum::<u32>().is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CREDIT_CARD.is_match(&digits) {
        return false;
    }
    let luhn = |(index, digit): (usize, u8)| {
        let digit = u32::from(digit - b'0');
        match (index % 2, digit * 2) {
            (0, _) => digit,
            (_, doubled) if doubled >= 10 => doubled % 10 + 1,
            (_, doubled) => doubled,
        }
    };
    digits.bytes().rev().enumerate().map(luhn).sum::<u32>().is_multiple_of(10)
}

/// `123-45-6789` or with blanks.
fn is_social_security_number(text: &str) -> bool {
    let shape = |(index, byte): (usize, u8)| match index {
        3 | 6 => matches!(byte, b'-' | b' '),
        _ => byte.is_ascii_digit(),
    };
    text.len() == 11 && text.bytes().enumerate().all(shape)
}

/// Standard alphabet with padding, not empty.
pub(crate) fn is_base64(text: &str) -> bool {
    let body = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && body.bytes().all(alphabet)
}

fn is_short_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_strings() {
        for (format, good, bad) in [
            ("date-time", "2024-01-02T03:04:05Z", "2024-01-02"),
            ("date", "2024-01-02", "2024-13-02"),
            ("duration", "1h30m", "soon"),
            ("email", "a@b.c", "a"),
            ("uri", "https://a/b", "a b"),
            ("hostname", "a-b.example.com", "-a.example.com"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("mac", "00:00:5e:00:53:01", "00:00"),
            ("uuid", "A987fbc94bed3078cf079141ba07c9f3", "a987fbc9-4bed"),
            ("uuid3", "a987fbc9-4bed-3078-cf07-9141ba07c9f3", "a987fbc9-4bed-4078-8f07-9141ba07c9f3"),
            ("uuid4", "a987fbc9-4bed-4078-8f07-9141ba07c9f3", "a987fbc9-4bed-4078-cf07-9141ba07c9f3"),
            ("uuid5", "a987fbc9-4bed-5078-8f07-9141ba07c9f3", "a987fbc9-4bed-4078-8f07-9141ba07c9f3"),
            ("isbn", "0-321-75104-3", "0321751041"),
            ("isbn10", "0321751043", "978-0321751041"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "111-11-1111", "111111111"),
            ("hexcolor", "#FFF", "#FFFF"),
            ("rgbcolor", "rgb(0, 10,255)", "rgb(0,10,256)"),
            ("byte", "YQ==", "YQ="),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f1f77bcf86cd79943901"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a-b.c", "a_b"),
        ] {
            let Some(Format::Text(check)) = Format::new(format, "string", false) else { panic!("{format}") };
            assert!(check(good), "{format}: {good}");
            assert!(!check(bad), "{format}: {bad}");
        }
    }

    #[test]
    fn formats_belong_to_types() {
        assert!(matches!(Format::new("int32", "integer", false), Some(Format::Int32)));
        assert!(Format::new("int32", "number", false).is_none());
        assert!(Format::new("uuid", "integer", false).is_none());
        assert!(Format::new("quantity", "string", false).is_none());
        assert!(Format::new("uuid", "", false).is_some());
        assert!(Format::new("uuid", "integer", true).is_some());
    }
}
