//! Warning headers, with Kubernetes' bounds on their number and length.

use std::collections::HashSet;

use http::HeaderValue;

/// Characters of all warnings together; beyond it each one is cut,
const MAX_TOTAL: usize = 4096;
/// to so many characters, and none is added after the total is reached again.
const MAX_CUT: usize = 256;

/// The values of the `Warning` headers for these texts.
pub(crate) fn headers(texts: &[String]) -> Vec<HeaderValue> {
    let mut seen = HashSet::new();
    let texts: Vec<&str> =
        texts.iter().map(String::as_str).filter(|text| !text.is_empty() && seen.insert(*text)).collect();
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    if total <= MAX_TOTAL {
        return texts.iter().filter_map(|text| header(text)).collect();
    }
    let mut written = 0;
    let mut values = Vec::new();
    for text in texts {
        if written >= MAX_TOTAL {
            break;
        }
        let cut: String = text.chars().take(MAX_CUT).collect();
        written += cut.chars().count();
        values.extend(header(&cut));
    }
    values
}

fn header(text: &str) -> Option<HeaderValue> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(texts: &[String]) -> Vec<String> {
        headers(texts).iter().map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn few_warnings_are_shown_whole_and_once() {
        let texts = ["a \"quoted\" \\ thing", "", "größer", "größer", "two\nlines"].map(str::to_owned);
        assert_eq!(shown(&texts), ["299 - \"a \\\"quoted\\\" \\\\ thing\"", "299 - \"größer\""]);
        assert_eq!(shown(&["x".repeat(4096)])[0].len(), 4096 + 8);
    }

    #[test]
    fn many_warnings_are_cut_and_then_left_out() {
        let long: Vec<String> = (0..100_000).map(|number| format!("{number:0>300}")).collect();
        let shown = shown(&long);
        assert_eq!(shown.len(), 16);
        assert!(shown.iter().all(|text| text.len() == 256 + 8));
        let alone = ["y".repeat(5000)];
        assert_eq!(headers(&alone)[0].len(), 256 + 8);
    }
}
