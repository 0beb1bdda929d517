//! Replaces `%(NODEPOOL_…)` in a file by a variable of the environment. The text is replaced before YAML is parsed, as
//! Nodepool does; positions in the result are translated back to positions in the file.

use std::borrow::Cow;

use millpond_api::document::Position;

/// Variables that may be used have this prefix.
const PREFIX: &str = "NODEPOOL_";

/// A text with its variables replaced.
#[derive(Debug)]
pub(super) struct Substituted<'a> {
    original: &'a str,
    pub(super) text: Cow<'a, str>,
    edits: Vec<Edit>,
    /// Variables that are not set, with their offset in the original. They are left as they are.
    pub(super) unset: Vec<(String, Position)>,
}

/// One replacement, in bytes.
#[derive(Debug)]
struct Edit {
    /// Where the replacement starts in the result.
    start: usize,
    /// Its length in the result.
    length: usize,
    /// The length of what it replaced.
    replaced: usize,
}

/// Replaces every variable that `env` knows.
pub(super) fn substitute<'a>(original: &'a str, env: &dyn Fn(&str) -> Option<String>) -> Substituted<'a> {
    let (mut text, mut edits, mut unset) = (String::new(), Vec::new(), Vec::new());
    let mut done = 0;
    for (start, _) in original.match_indices("%(") {
        let rest = &original[start + 2..];
        let Some(name) = rest.find(')').map(|end| &rest[..end]) else { continue };
        if start < done || !name.starts_with(PREFIX) || name.contains(char::is_whitespace) {
            continue;
        }
        let Some(value) = env(name) else {
            unset.push((name.to_owned(), place_of(original, start)));
            continue;
        };
        text.push_str(&original[done..start]);
        let replaced = name.len() + "%()".len();
        edits.push(Edit { start: text.len(), length: value.len(), replaced });
        text.push_str(&value);
        done = start + replaced;
    }
    let text = if edits.is_empty() { Cow::Borrowed(original) } else { Cow::Owned(text + &original[done..]) };
    Substituted { original, text, edits, unset }
}

impl Substituted<'_> {
    /// The place in the file that a place in the result comes from. Within a replacement it is the variable's start.
    pub(super) fn original(&self, place: Position) -> Position {
        if self.edits.is_empty() {
            return place;
        }
        let offset = offset_of(&self.text, place);
        let mut shift = 0_isize;
        for edit in self.edits.iter().take_while(|edit| edit.start <= offset) {
            if offset < edit.start + edit.length {
                return place_of(self.original, edit.start.saturating_add_signed(shift));
            }
            shift += edit.replaced as isize - edit.length as isize;
        }
        place_of(self.original, offset.saturating_add_signed(shift))
    }
}

fn offset_of(text: &str, place: Position) -> usize {
    let line_start = match place.line {
        0 | 1 => 0,
        line => text.match_indices('\n').nth(line as usize - 2).map_or(text.len(), |(at, _)| at + 1),
    };
    let column = place.column.saturating_sub(1) as usize;
    text[line_start..].char_indices().nth(column).map_or(text.len(), |(at, _)| line_start + at)
}

fn place_of(text: &str, offset: usize) -> Position {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: number(line), column: number(column) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "NODEPOOL_HOST" => Some("zookeeper.example.com".to_owned()),
            "NODEPOOL_LINES" => Some("one\ntwo".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn known_variables_are_replaced_and_others_left() {
        let result = substitute("a: %(NODEPOOL_HOST)\nb: %(NODEPOOL_NONE) %(HOME) %(x", &env);
        assert_eq!(result.text, "a: zookeeper.example.com\nb: %(NODEPOOL_NONE) %(HOME) %(x");
        assert_eq!(result.unset, [("NODEPOOL_NONE".to_owned(), Position { line: 2, column: 4 })]);
    }

    #[test]
    fn places_after_a_replacement_are_those_of_the_file() {
        let file = "{a: %(NODEPOOL_HOST), b: 1}\nc: %(NODEPOOL_LINES) d\ne: f";
        let result = substitute(file, &env);
        let place = |line, column| Position { line, column };
        let find = |text: &str, needle: &str| place_of(text, text.find(needle).unwrap());
        for needle in ["{a", "b: 1", "c:", " d", "e: f", "f"] {
            assert_eq!(result.original(find(&result.text, needle)), find(file, needle), "{needle}");
        }
        // Inside the value: the variable.
        assert_eq!(result.original(find(&result.text, "example")), place(1, 5));
        assert_eq!(result.original(find(&result.text, "two")), place(2, 4));
    }
}
