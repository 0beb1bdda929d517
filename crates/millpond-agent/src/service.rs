//! The systemd unit of the agent.

use std::path::Path;

/// Name of the unit.
pub const UNIT: &str = "millpond-agent.service";

/// The unit file that runs a program with these arguments.
pub fn unit(program: &Path, arguments: &[String], log: &str) -> String {
    let words = std::iter::once(program.display().to_string()).chain(arguments.iter().cloned());
    let command: Vec<String> = words.map(|word| quoted(&word)).collect();
    format!(
        "[Unit]\nDescription=Millpond's host agent: makes this host a node when a pool needs it\n\
         Wants=network-online.target\nAfter=network-online.target\n\n[Service]\nExecStart={}\n\
         Environment=MILLPOND_LOG={log}\nRestart=always\nRestartSec=5\n\
         # A token that is not accepted, and a copy of another host: to try again does not help.\n\
         RestartPreventExitStatus=2 6\n\
         # What a step has started goes with the agent; kubelet is a unit of its own.\nKillMode=control-group\n\
         UMask=0077\nLimitNOFILE=4096\n\n[Install]\nWantedBy=multi-user.target\n",
        command.join(" "),
    )
}

/// A word as systemd reads it.
fn quoted(word: &str) -> String {
    let escaped = word.replace('%', "%%").replace('$', "$$");
    let is_plain = |symbol: char| symbol.is_ascii_alphanumeric() || "/._-+,:@=%$".contains(symbol);
    if !escaped.is_empty() && escaped.chars().all(is_plain) {
        return escaped;
    }
    format!("\"{}\"", escaped.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_systemd() {
        let arguments = ["agent", "--label", "note=a b", "--name", "100%"].map(str::to_owned);
        let unit = unit(Path::new("/usr/local/bin/millpond"), &arguments, "info");
        let line = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        assert_eq!(line, "ExecStart=/usr/local/bin/millpond agent --label \"note=a b\" --name 100%%");
    }
}
