//! Owners of files by name, from the host's own `passwd` and `group`.

use std::fs;
use std::io;
use std::path::Path;

/// Gives a file to `user` or `user:group`.
pub(super) fn change(root: &Path, path: &Path, owner: &str) -> io::Result<()> {
    let (user, group) = owner.split_once(':').map_or((owner, None), |(user, group)| (user, Some(group)));
    let user = (!user.is_empty()).then(|| number(&root.join("etc/passwd"), user)).transpose()?;
    let group = group.filter(|group| !group.is_empty()).map(|group| number(&root.join("etc/group"), group));
    std::os::unix::fs::chown(path, user, group.transpose()?)
}

/// The number of a user or group: the third field of its line.
fn number(table: &Path, name: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(table)?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|fields| fields.first() == Some(&name)).and_then(|fields| fields.get(2)?.parse().ok());
    found.ok_or_else(|| io::Error::other(format!("`{name}` is not in {}", table.display())))
}
