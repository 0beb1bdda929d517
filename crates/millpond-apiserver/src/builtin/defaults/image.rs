//! Names of container images, as far as the pull policy depends on them.

use std::sync::LazyLock;

use regex::Regex;

/// A well-formed reference: a repository with an optional registry, tag and digest.
static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let component = "[a-z0-9]+(?:(?:\\.|_|__|-+)[a-z0-9]+)*";
    let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let host = format!("(?:{label}(?:\\.{label})*|\\[[a-fA-F0-9:]+\\])(?::[0-9]+)?");
    let tag = "[\\w][\\w.-]{0,127}";
    let digest = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}";
    let pattern =
        format!("^(?:(?:{host})/)?{component}(?:/{component})*(?::(?P<tag>{tag}))?(?:@(?P<digest>{digest}))?$");
    Regex::new(&pattern).expect("the pattern is well formed")
});

/// Whether the image has the tag `latest` or no tag, so that it is always pulled.
pub(super) fn is_latest(image: &str) -> bool {
    // Whatever stands before another tag, the image is not the latest; and most images have a tag.
    let after_slash = image.rsplit_once('/').map_or(image, |(_, last)| last);
    if !image.contains('@') && after_slash.rsplit_once(':').is_some_and(|(_, tag)| tag != "latest") {
        return false;
    }
    // 64 hex digits alone are an image id, which is no name.
    let is_id = image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let Some(parts) = REFERENCE.captures(image).filter(|_| !is_id) else { return false };
    match parts.name("tag") {
        Some(tag) => tag.as_str() == "latest",
        None => parts.name("digest").is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_is_what_has_no_other_tag() {
        for image in ["nginx", "nginx:latest", "localhost:5000/a/b", "a.example.com/b", "[::1]:5000/x"] {
            assert!(is_latest(image), "{image}");
        }
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        for image in ["nginx:1.27", "localhost:5000/a:1", "", "Nginx", "a b", &digest, &"a".repeat(64)] {
            assert!(!is_latest(image), "{image}");
        }
    }
}
