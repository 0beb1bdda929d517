//! kubectl commands on both servers, one after the other, compared one by one.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;

use millpond_testkit::Kubectl;

use crate::normal;
use crate::script::Entry;

/// Runs every command on both; returns what differs.
pub(crate) fn compare(kubectls: &[Kubectl; 2], commands: &[Entry]) -> Vec<String> {
    let mut differences = Vec::new();
    for entry in commands {
        let [real, embedded] = both(kubectls, entry);
        if real != embedded && entry.differs.is_none() {
            differences.push(format!("--- $ {}\n{}", entry.head, side_by_side(&real, &embedded)));
        }
        if let Some(reason) = &entry.differs {
            assert!(reason.split_whitespace().count() >= 3, "{}: `differs:` wants a reason", entry.head);
        }
    }
    differences
}

fn both(kubectls: &[Kubectl; 2], entry: &Entry) -> [String; 2] {
    thread::scope(|scope| {
        let [real, embedded] = kubectls.each_ref().map(|kubectl| scope.spawn(move || outcome(kubectl, entry)));
        [real.join().expect("kubectl ran"), embedded.join().expect("kubectl ran")]
    })
}

/// Exit code, output and complaints of one command, normalised. The head runs in a shell, so that scripts can use
/// pipes; `kubectl` in it is the pinned one.
fn outcome(kubectl: &Kubectl, entry: &Entry) -> String {
    let template = kubectl.command();
    let mut command = Command::new("sh");
    let program = template.get_program().to_string_lossy().into_owned();
    command.arg("-c").arg(format!("kubectl() {{ '{program}' \"$@\"; }}\n{}", entry.head));
    for (key, value) in template.get_envs() {
        if let Some(value) = value {
            command.env(key, value);
        }
    }
    let mut child = command
        .env("KUBECTL", program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell is there");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A command that does not read its input closes it early; that is its right.
    let _ = stdin.write_all(entry.body.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("the command ends");
    let code = output.status.code().unwrap_or(-1);
    let stdout = normal::text(&String::from_utf8_lossy(&output.stdout));
    let stderr = normal::text(&String::from_utf8_lossy(&output.stderr));
    format!("exit {code}\n{stdout}\n{stderr}")
}

/// Lines that only one of the two has.
pub(crate) fn side_by_side(real: &str, embedded: &str) -> String {
    let mut text = String::new();
    let (real, embedded): (Vec<_>, Vec<_>) = (real.lines().collect(), embedded.lines().collect());
    for line in real.iter().filter(|line| !embedded.contains(line)) {
        text.push_str(&format!("  real:     {line}\n"));
    }
    for line in embedded.iter().filter(|line| !real.contains(line)) {
        text.push_str(&format!("  embedded: {line}\n"));
    }
    if text.is_empty() { "  (the same lines in another order or number)\n".to_owned() } else { text }
}
