//! Plans: typed steps with a hash, for one epoch of one claim.

use serde::{Deserialize, Serialize};

/// The plan that the agent executes on its host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// UID of the machine that holds the host.
    #[serde(rename = "machineUID")]
    pub machine_uid: String,
    /// Epoch of the claim.
    pub epoch: i64,
    /// How many of the first steps install Kubernetes; the remaining ones make the host a node.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub installation: usize,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// One step. Every step can be repeated: an agent that was killed within a step begins the step anew.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Step {
    /// Writes a file, with all its parent directories.
    WriteFile(FileStep),
    /// Runs a command to its end.
    Run(RunStep),
    /// Writes a systemd unit, enables and starts it.
    SystemdUnit(UnitStep),
    /// Waits until a file exists.
    WaitFor(WaitStep),
    /// Records the content of directories that other programs will fill, so that a reset removes everything else.
    Guard(GuardStep),
    /// Does nothing; the reset ends the pods that kubelet started, and what they mounted.
    Pods,
}

/// Writes a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct FileStep {
    /// Absolute path.
    pub path: String,
    /// Content, as bytes in base64: bootstrap data is not always text.
    pub content: String,
    /// Permission bits.
    pub mode: u32,
    /// Whether the content goes to the end of what is there.
    #[serde(default)]
    pub append: bool,
    /// `user` or `user:group`; the agent's own without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
}

/// Runs a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct RunStep {
    /// Program, found by `PATH`, and its arguments.
    pub argv: Vec<String>,
    /// The command is killed, with its child processes, after this many seconds.
    pub timeout_seconds: u64,
    /// Command that undoes it on a reset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo: Vec<String>,
    /// Its name in messages; by default the program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Writes, enables and starts a systemd unit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct UnitStep {
    /// Name: `kubelet.service`.
    pub name: String,
    /// The unit file.
    pub content: String,
}

/// Keeps directories as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardStep {
    /// Absolute paths of directories, which need not exist.
    pub paths: Vec<String>,
}

/// Waits until a file exists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
pub struct WaitStep {
    /// Absolute path.
    pub path: String,
    /// The step fails after this many seconds.
    pub timeout_seconds: u64,
}

impl Plan {
    /// Hash of everything that the plan says, in hexadecimal.
    pub fn hash(&self) -> String {
        let text = serde_json::to_vec(self).expect("a plan has texts for keys");
        let digest = ring::digest::digest(&ring::digest::SHA256, &text);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Step {
    /// The action and its target; never the content of a file, which may be a secret.
    pub fn title(&self) -> String {
        match self {
            Self::WriteFile(step) => format!("write {}", step.path),
            Self::Run(step) if !step.name.is_empty() => step.name.clone(),
            Self::Run(step) => format!("run {}", step.argv.first().map_or("", String::as_str)),
            Self::SystemdUnit(step) => format!("start {}", step.name),
            Self::WaitFor(step) => format!("wait for {}", step.path),
            Self::Guard(_) => "look at directories".to_owned(),
            Self::Pods => "expect pods".to_owned(),
        }
    }
}
