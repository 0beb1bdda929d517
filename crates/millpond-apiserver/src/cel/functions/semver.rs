//! Semantic versions.

use std::cmp::Ordering;

/// A version. Build metadata does not count.
#[derive(Debug, Clone)]
pub(crate) struct Semver {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    pre_release: Vec<Part>,
}

/// Part of a pre-release.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Number(u64),
    Text(String),
}

impl Semver {
    /// Reads `1.2.3-pre+build`; leniently also `v1`, `1.2` and numbers with leading zeros.
    pub(super) fn parse(text: &str, lenient: bool) -> Result<Self, String> {
        if !lenient {
            return Self::parse_strict(text);
        }
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
        Self::parse_strict(&parts.join("."))
    }

    fn parse_strict(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        if let Some(build) = build {
            for part in build.split('.') {
                check_identifier(part, "Build meta data")?;
            }
        }
        let mut pre_release = Vec::new();
        for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
            check_identifier(part, "Prerelease")?;
            pre_release.push(if part.bytes().all(|byte| byte.is_ascii_digit()) {
                Part::Number(number(part, "Numeric PreRelease version")?)
            } else {
                Part::Text(part.to_owned())
            });
        }
        Ok(Self {
            major: number(major, "Major number")?,
            minor: number(minor, "Minor number")?,
            patch: number(patch, "Patch number")?,
            pre_release,
        })
    }

    /// The order of two versions; a pre-release is before its release.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let numbers = (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch));
        numbers.then_with(|| match (self.pre_release.as_slice(), other.pre_release.as_slice()) {
            ([], []) => Ordering::Equal,
            ([], _) => Ordering::Greater,
            (_, []) => Ordering::Less,
            (own, other) => compare_parts(own, other),
        })
    }
}

fn compare_parts(a: &[Part], b: &[Part]) -> Ordering {
    for (a, b) in a.iter().zip(b) {
        let ordering = match (a, b) {
            (Part::Number(a), Part::Number(b)) => a.cmp(b),
            (Part::Number(_), Part::Text(_)) => Ordering::Less,
            (Part::Text(_), Part::Number(_)) => Ordering::Greater,
            (Part::Text(a), Part::Text(b)) => a.cmp(b),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    a.len().cmp(&b.len())
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|first: char| first.is_ascii_digit()) { trimmed.to_owned() } else { format!("0{trimmed}") }
}

fn number(text: &str, what: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} \"{text}\"", what.to_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} must not contain leading zeroes \"{text}\""));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing \"{text}\": value out of range"))
}

fn check_identifier(text: &str, what: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{what} is empty"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(format!("Invalid character(s) found in {} \"{text}\"", what.to_lowercase()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let version = |text: &str| Semver::parse(text, false).unwrap();
        let ordered = ["0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-2", "1.0.0", "1.10.0"];
        for (a, b) in [(0, 1), (1, 2), (2, 3), (4, 1), (4, 5), (5, 6)] {
            assert!(version(ordered[a]).compare(&version(ordered[b])).is_lt(), "{} {}", ordered[a], ordered[b]);
        }
        assert!(version("1.0.0+a").compare(&version("1.0.0+b")).is_eq());
        for bad in ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "a.b.c"] {
            assert!(Semver::parse(bad, false).is_err(), "{bad}");
        }
        for (lenient, strict) in [("v1", "1.0.0"), ("1.2", "1.2.0"), ("01.02.03", "1.2.3"), ("v1.2.3-a", "1.2.3-a")] {
            assert!(Semver::parse(lenient, true).unwrap().compare(&version(strict)).is_eq());
        }
        assert!(Semver::parse("1.2-a", true).is_err());
    }
}
