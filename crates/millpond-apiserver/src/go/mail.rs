//! Mail addresses as Go's `net/mail` reads them.

/// Whether the text is one address: `bob@example.com` or `Bob <bob@example.com>`.
pub(crate) fn is_address(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    if let Some(rest) = specification(text)
        && comment_or_end(rest)
    {
        return true;
    }
    let Some(open) = text.find('<').filter(|_| text.ends_with('>')) else {
        // `bob@example.com (Bob)`.
        return specification(text).is_some_and(comment_or_end);
    };
    let quoted_name = text.starts_with('"');
    let open =
        if quoted_name { quoted_end(text).map_or(open, |end| end + text[end..].find('<').unwrap_or(0)) } else { open };
    let (name, rest) = text.split_at(open);
    let Some(inner) = rest.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) else { return false };
    is_phrase(name.trim()) && specification(inner) == Some("")
}

fn comment_or_end(rest: &str) -> bool {
    let rest = rest.trim();
    rest.is_empty() || (rest.starts_with('(') && rest.ends_with(')'))
}

/// Reads `local@domain` and returns what follows.
fn specification(text: &str) -> Option<&str> {
    let local = if text.starts_with('"') { quoted_end(text)? } else { dot_atom(text)? };
    let rest = text[local..].strip_prefix('@')?;
    if let Some(literal) = rest.strip_prefix('[') {
        let end = literal.find(']')?;
        literal[..end].parse::<std::net::IpAddr>().ok()?;
        return Some(&literal[end + 1..]);
    }
    let domain = dot_atom(rest)?;
    Some(&rest[domain..])
}

/// Length of atoms joined by single dots.
fn dot_atom(text: &str) -> Option<usize> {
    let length = text.find(|next: char| !(next == '.' || is_atom(next))).unwrap_or(text.len());
    let atom = &text[..length];
    let fine = !atom.is_empty() && !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..");
    fine.then_some(length)
}

fn is_atom(character: char) -> bool {
    character.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(character) || !character.is_ascii()
}

/// Length of a quoted string with its quotes.
fn quoted_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(index + 1),
            '\r' | '\n' => return None,
            _ => {}
        }
    }
    None
}

fn is_phrase(name: &str) -> bool {
    if name.starts_with('"') {
        return quoted_end(name) == Some(name.len());
    }
    name.split([' ', '\t']).filter(|word| !word.is_empty()).all(|word| word.chars().all(|c| is_atom(c) || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, fine) in [
            ("bob@example.com", true),
            ("Bob <bob@example.com>", true),
            ("\"Bob, the <first>\" <bob@example.com>", true),
            ("bob@example.com (Bob)", true),
            ("\"odd local\"@example.com", true),
            ("bob@[127.0.0.1]", true),
            ("bob@localhost", true),
            ("ö@example.com", true),
            ("bob", false),
            ("@example.com", false),
            ("bob@", false),
            ("bob@.com", false),
            ("b..b@example.com", false),
            ("a@b, c@d", false),
            ("Bob <bob@example.com", false),
            ("", false),
            ("\"", false),
        ] {
            assert_eq!(is_address(text), fine, "{text}");
        }
    }
}
