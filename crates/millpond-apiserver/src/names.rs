//! The syntax of names, label keys and label values, with the sentences Kubernetes says about bad ones.
//!
//! Each function returns all problems of its text; none if the text is valid. All run in linear time.

const MAX_LABEL: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Problems of a label or annotation key: `name` or `prefix/name`.
pub fn label_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut parts = key.splitn(3, '/');
    let first = parts.next().unwrap_or_default();
    let name = match (parts.next(), parts.next()) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let found = problems_of(first, MAX_SUBDOMAIN, "bytes", is_subdomain(first), SUBDOMAIN);
                problems.extend(found.into_iter().map(|problem| format!("prefix part {problem}")));
            }
            name
        }
        (Some(_), Some(_)) => {
            let hint = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {hint}")];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL {
        problems.push(format!("name part {}", too_long(MAX_LABEL, "bytes")));
    }
    if !is_qualified_name(name) {
        problems.push(format!("name part {QUALIFIED}"));
    }
    problems
}

/// Problems of a label value.
pub fn label_value_problems(value: &str) -> Vec<String> {
    let well_formed = value.is_empty() || is_qualified_name(value);
    problems_of(value, MAX_LABEL, "bytes", well_formed, LABEL_VALUE)
}

/// Problems of an RFC 1123 subdomain, the rule for most object names.
pub fn subdomain_problems(name: &str) -> Vec<String> {
    problems_of(name, MAX_SUBDOMAIN, "characters", is_subdomain(name), SUBDOMAIN)
}

/// Problems of an RFC 1123 label, the rule for namespaces.
pub fn label_problems(name: &str) -> Vec<String> {
    let message = if is_subdomain(name) { "must not contain dots" } else { LABEL };
    problems_of(name, MAX_LABEL, "characters", is_label(name), message)
}

/// Problems of an RFC 1035 label: as RFC 1123, but it starts with a letter.
pub fn label_1035_problems(name: &str) -> Vec<String> {
    let well_formed = is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase());
    problems_of(name, MAX_LABEL, "characters", well_formed, LABEL_1035)
}

/// Problems of a name that only has to fit into one path segment (RBAC).
pub fn path_segment_problems(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].into_iter().filter(|part| name.contains(part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// Names of objects are said to have characters, labels to have bytes; both mean bytes.
fn problems_of(text: &str, max: usize, unit: &str, well_formed: bool, message: &str) -> Vec<String> {
    let mut found = Vec::new();
    if text.len() > max {
        found.push(too_long(max, unit));
    }
    if !well_formed {
        found.push(message.to_owned());
    }
    found
}

fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

fn is_qualified_name(name: &str) -> bool {
    bounded_by(name, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_label(name: &str) -> bool {
    bounded_by(name, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), |byte| byte == b'-')
}

/// The text is not empty, has `edge` bytes at both ends, and `edge` or `inner` bytes between them.
fn bounded_by(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let ends = |end: Option<&u8>| end.is_some_and(|byte| edge(*byte));
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|byte| edge(*byte) || inner(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_names_have_no_problems() {
        for key in ["a", "a.b_c-D", "example.com/Name", "0/0"] {
            assert_eq!(label_key_problems(key), Vec::<String>::new(), "{key}");
        }
        for value in ["", "a", "A_b.c-1", &"x".repeat(63)] {
            assert_eq!(label_value_problems(value), Vec::<String>::new(), "{value}");
        }
        assert!(subdomain_problems("a-b.c0.1").is_empty());
        assert!(label_problems("a-b0").is_empty());
        assert!(label_1035_problems("a-b0").is_empty());
        assert!(path_segment_problems("system:node").is_empty());
    }

    #[test]
    fn each_problem_is_reported_once() {
        assert_eq!(label_key_problems("/x"), ["prefix part must be non-empty"]);
        assert_eq!(label_key_problems("x/").len(), 2);
        assert_eq!(label_key_problems("a/b/c").len(), 1);
        assert_eq!(
            label_key_problems(&format!("{}/x", "a".repeat(254))),
            ["prefix part must be no more than 253 bytes"]
        );
        assert_eq!(label_value_problems(&"-".repeat(64)).len(), 2);
        assert_eq!(subdomain_problems(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(label_problems("a.b"), ["must not contain dots"]);
        assert_eq!(subdomain_problems("a..b"), [SUBDOMAIN]);
        assert_eq!(subdomain_problems(""), [SUBDOMAIN]);
        assert_eq!(label_1035_problems("0a"), [LABEL_1035]);
        assert_eq!(path_segment_problems("a/b%c"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment_problems(".."), ["may not be '..'"]);
    }
}
