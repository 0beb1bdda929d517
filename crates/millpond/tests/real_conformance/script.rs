//! The form of the scripts: `#` lines are prose, `$` or `>` starts an entry, lines below belong to it.
//! `differs: REASON` as the prose right above an entry says that its outcomes may differ, and why.

/// One command or request.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The line behind the mark.
    pub(crate) head: String,
    /// The lines below.
    pub(crate) body: String,
    /// Why outcomes may differ, if they may.
    pub(crate) differs: Option<String>,
}

/// Reads a script.
pub(crate) fn read(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut differs = None;
    for line in text.lines() {
        if let Some(prose) = line.strip_prefix('#') {
            differs = prose.trim().strip_prefix("differs:").map(|reason| reason.trim().to_owned());
        } else if let Some(head) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")) {
            entries.push(Entry { head: head.to_owned(), body: String::new(), differs: differs.take() });
        } else if let Some(entry) = entries.last_mut().filter(|_| !line.trim().is_empty()) {
            entry.body.push_str(line);
            entry.body.push('\n');
        }
    }
    entries
}
