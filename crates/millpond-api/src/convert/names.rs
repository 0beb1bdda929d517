//! Names that objects may have.

/// The most letters of a name: of a pool's, which is the value of a label, too.
const LIMIT: usize = 63;

/// The nearest text that can name an object and be the value of a label: small letters, digits and dashes.
pub(super) fn fitting(text: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(letter).collect();
    let name = name.trim_matches('-');
    let name = name.get(..LIMIT).unwrap_or(name).trim_end_matches('-');
    if name.is_empty() { "pool".to_owned() } else { name.to_owned() }
}

/// A name that is not taken yet: the one that is wanted, or with a number behind it.
pub(super) fn free(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(wanted) {
        return wanted.to_owned();
    }
    let numbered = |number: usize| {
        let end = format!("-{number}");
        let room = LIMIT - end.len();
        let start = wanted.get(..room).unwrap_or(wanted).trim_end_matches('-');
        format!("{start}{end}")
    };
    (2..usize::MAX).map(numbered).find(|name| !taken(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit() {
        for (text, name) in [("web", "web"), ("Web_Shop.1", "web-shop-1"), ("-a-", "a"), ("ü", "pool"), ("", "pool")] {
            assert_eq!(fitting(text), name, "{text}");
        }
        assert_eq!(fitting(&"x".repeat(100)).len(), 63);
        assert_eq!(fitting(&format!("{}-b", "x".repeat(62))), "x".repeat(62));
    }

    #[test]
    fn names_are_free() {
        let taken = |taken: &'static [&str]| move |name: &str| taken.contains(&name);
        assert_eq!(free("a", taken(&[])), "a");
        assert_eq!(free("a", taken(&["a", "a-2"])), "a-3");
        let long = "x".repeat(63);
        assert_eq!(free(&long, |name| name == long), format!("{}-2", "x".repeat(61)));
    }
}
