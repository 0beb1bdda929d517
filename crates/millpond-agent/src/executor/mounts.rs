//! What is mounted below a directory.

use std::fs;
use std::path::{Path, PathBuf};

/// Mount points below a directory, or at it, in the order in which they were mounted.
pub(super) fn below(directory: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    points(&text).filter(|point| point.starts_with(directory)).collect()
}

fn points(mountinfo: &str) -> impl Iterator<Item = PathBuf> {
    mountinfo.lines().filter_map(|line| Some(PathBuf::from(unescape(line.split(' ').nth(4)?))))
}

/// The kernel writes spaces, tabs, line breaks and backslashes as three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let text =
            "36 35 98:0 / /var/lib/kubelet/pods/a\\040b rw - tmpfs tmpfs rw\n37 1 0:1 / /proc rw - proc proc rw\n";
        let found: Vec<_> = points(text).collect();
        assert_eq!(found, [PathBuf::from("/var/lib/kubelet/pods/a b"), PathBuf::from("/proc")]);
    }
}
