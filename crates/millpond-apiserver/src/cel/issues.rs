//! Errors of an expression, shown with the line that they are about.

use std::fmt;

/// Limit on the problems shown; further ones are only counted.
const MAX_SHOWN: usize = 100;
/// The number of problems that are kept; a longer list is not read.
const MAX_KEPT: usize = 1000;
/// Bytes of all problems together.
const MAX_TEXT: usize = 64 << 10;
/// Lines longer than this are not shown.
const MAX_SNIPPET: usize = 16_384;

/// Problems of one expression.
#[derive(Debug, Clone)]
pub(crate) struct Issues {
    source: String,
    found: Vec<Issue>,
}

#[derive(Debug, Clone)]
struct Issue {
    /// Offset into the source, in characters; `None` for problems of the whole expression.
    position: Option<u32>,
    message: String,
}

impl Issues {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), found: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn report(&mut self, position: u32, message: impl Into<String>) {
        self.push(Some(position), message.into());
    }

    /// A problem of the expression as a whole.
    pub(crate) fn report_whole(&mut self, message: impl Into<String>) {
        self.push(None, message.into());
    }

    fn push(&mut self, position: Option<u32>, message: String) {
        if self.found.len() < MAX_KEPT {
            self.found.push(Issue { position, message });
        }
    }

    /// All problems as one text of limited length.
    pub(crate) fn text(&self) -> String {
        let mut text = self.to_string();
        if text.len() > MAX_TEXT {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
            text.push('…');
        }
        text
    }
}

/// Line (from 1) and column (from 0) of a position.
fn line_and_column(source: &str, position: u32) -> (usize, usize) {
    let mut line = 1;
    let mut column = 0;
    for character in source.chars().take(position as usize) {
        if character == '\n' {
            line += 1;
            column = 0;
        } else {
            column += 1;
        }
    }
    (line, column)
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut placed: Vec<_> = self
            .found
            .iter()
            .map(|issue| (issue.position.map(|position| line_and_column(&self.source, position)), &issue.message))
            .collect();
        placed.sort_by_key(|(place, _)| *place);
        for (index, (place, message)) in placed.iter().take(MAX_SHOWN).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match place {
                None => write!(f, "ERROR: <input>:-1:0: {message}")?,
                Some((line, column)) => {
                    write!(f, "ERROR: <input>:{line}:{}: {message}", column + 1)?;
                    self.write_snippet(f, *line, *column)?;
                }
            }
        }
        if placed.len() > MAX_SHOWN {
            write!(f, "\n{} more errors were truncated", placed.len() - MAX_SHOWN)?;
        }
        Ok(())
    }
}

impl Issues {
    fn write_snippet(&self, f: &mut fmt::Formatter<'_>, line: usize, column: usize) -> fmt::Result {
        let Some(text) = self.source.split('\n').nth(line - 1).filter(|text| text.len() <= MAX_SNIPPET) else {
            return Ok(());
        };
        let text = text.replace('\t', " ");
        write!(f, "\n | {text}\n | ")?;
        // Characters beyond ASCII are marked by wide dots, which take as much room.
        let mut characters = text.chars();
        for character in characters.by_ref().take(column) {
            f.write_str(if character.is_ascii() { "." } else { "\u{ff0e}" })?;
        }
        f.write_str(if characters.next().is_none_or(|character| character.is_ascii()) { "^" } else { "\u{ff3e}" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_point_at_their_place() {
        let mut issues = Issues::new("self.a &&\n\tö.b");
        issues.report(12, "second");
        issues.report(4, "first");
        issues.report_whole("whole");
        assert_eq!(
            issues.to_string(),
            "ERROR: <input>:-1:0: whole\n\
             ERROR: <input>:1:5: first\n | self.a &&\n | ....^\n\
             ERROR: <input>:2:3: second\n |  ö.b\n | .\u{ff0e}^"
        );
    }
}
