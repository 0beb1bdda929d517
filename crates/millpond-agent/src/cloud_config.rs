//! The subset of cloud-config that bootstrap providers write: `write_files`, `bootcmd` and `runcmd`.
//!
//! Everything else is refused with its name. A key that were ignored would make a bootstrap a success that did not run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::gzip;
use crate::plan::{FileStep, RunStep, Step};
use crate::template;

pub use crate::template::Instance;

/// Permissions of files that say none.
const DEFAULT_MODE: u32 = 0o644;

/// Why bootstrap data cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum CloudConfigError {
    /// The text is not a cloud-config.
    #[error("bootstrap data does not begin with `#cloud-config`")]
    NoHeader,
    /// The text is not YAML.
    #[error("bootstrap data is not YAML: {0}")]
    Yaml(String),
    /// A field cannot be executed.
    #[error("{field}: {problem}")]
    Field {
        /// Where.
        field: String,
        /// The problem.
        problem: String,
    },
}

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> CloudConfigError {
    CloudConfigError::Field { field: field.into(), problem: problem.into() }
}

/// First line of bootstrap data with variables in it.
const TEMPLATE: &str = "## template: jinja";

/// Turns a cloud-config into steps: `bootcmd`, then files, then `runcmd`, then files with `defer`.
pub fn parse(text: &str, timeout_seconds: u64, instance: &Instance) -> Result<Vec<Step>, CloudConfigError> {
    let mut lines = text.lines().map(str::trim_end);
    let first = lines.next();
    let is_template = first == Some(TEMPLATE);
    if (if is_template { lines.next() } else { first }) != Some("#cloud-config") {
        return Err(CloudConfigError::NoHeader);
    }
    let filled;
    let text = if is_template {
        filled = template::jinja(text, instance).map_err(|variable| wrong(variable, "is no variable that is known"))?;
        &filled
    } else {
        text
    };
    let config: Value = serde_saphyr::from_str(text).map_err(|error| CloudConfigError::Yaml(error.to_string()))?;
    let empty = serde_json::Map::new();
    let config = match &config {
        Value::Object(map) => map,
        Value::Null => &empty,
        _ => return Err(CloudConfigError::Yaml("it is not a mapping".to_owned())),
    };
    let known = ["write_files", "runcmd", "bootcmd"];
    if let Some(key) = config.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(wrong(key, "is not supported; write_files, bootcmd and runcmd are"));
    }
    let list = |key: &str| match config.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list.clone()),
        Some(_) => Err(wrong(key, "is not a list")),
    };
    let commands = |key: &str| -> Result<Vec<Step>, CloudConfigError> {
        let all = list(key)?;
        all.iter().enumerate().map(|(index, one)| command(&format!("{key}[{index}]"), one, timeout_seconds)).collect()
    };
    let (mut files, mut deferred) = (Vec::new(), Vec::new());
    for (index, one) in list("write_files")?.iter().enumerate() {
        let field = format!("write_files[{index}]");
        let is_deferred = one.get("defer").is_some_and(|defer| defer == &Value::Bool(true));
        if is_deferred { &mut deferred } else { &mut files }.push(Step::WriteFile(file(&field, one, instance)?));
    }
    Ok([commands("bootcmd")?, files, commands("runcmd")?, deferred].concat())
}

/// A text runs in a shell, a list without one.
fn command(field: &str, value: &Value, timeout_seconds: u64) -> Result<Step, CloudConfigError> {
    let argv = match value {
        Value::String(line) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
        Value::Array(words) if !words.is_empty() => {
            let word = |word: &Value| match word {
                Value::String(text) => Ok(text.clone()),
                Value::Number(number) => Ok(number.to_string()),
                _ => Err(wrong(field, "has a word that is no text")),
            };
            words.iter().map(word).collect::<Result<_, _>>()?
        }
        _ => return Err(wrong(field, "is neither a line nor a list of words")),
    };
    Ok(Step::Run(RunStep { argv, timeout_seconds, ..RunStep::default() }))
}

fn file(field: &str, value: &Value, instance: &Instance) -> Result<FileStep, CloudConfigError> {
    let map = value.as_object().ok_or_else(|| wrong(field, "is not a mapping"))?;
    let known = ["path", "content", "encoding", "permissions", "owner", "append", "defer"];
    if let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(wrong(format!("{field}.{key}"), "is not supported"));
    }
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    if !text("path").starts_with('/') {
        return Err(wrong(format!("{field}.path"), "is not an absolute path"));
    }
    let decoded = || {
        let compact: String = text("content").split_whitespace().collect();
        STANDARD.decode(compact).map_err(|error| wrong(format!("{field}.content"), error.to_string()))
    };
    let bytes = match text("encoding") {
        "" | "text/plain" => text("content").as_bytes().to_vec(),
        "b64" | "base64" => decoded()?,
        "gz+b64" | "gzip+b64" | "gz+base64" | "gzip+base64" => {
            gzip::decompress(&decoded()?).map_err(|problem| wrong(format!("{field}.content"), problem))?
        }
        // Bytes that are no text cannot stand in YAML by themselves.
        other => return Err(wrong(format!("{field}.encoding"), format!("`{other}` is not supported"))),
    };
    let content = STANDARD.encode(template::default_interface(bytes, instance));
    let mode = match map.get("permissions") {
        None | Some(Value::Null) => DEFAULT_MODE,
        Some(Value::String(octal)) => u32::from_str_radix(octal.trim_start_matches("0o"), 8)
            .ok()
            .filter(|mode| *mode <= 0o7777)
            .ok_or_else(|| wrong(format!("{field}.permissions"), format!("`{octal}` is not octal")))?,
        Some(_) => return Err(wrong(format!("{field}.permissions"), "is a number; write it in quotes: '0600'")),
    };
    let append = map.get("append") == Some(&Value::Bool(true));
    Ok(FileStep { path: text("path").to_owned(), content, mode, append, owner: text("owner").to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_commands_become_steps_in_cloud_inits_order() {
        let text = "## template: jinja\n#cloud-config\nruncmd:\n- kubeadm join --config /run/join.yaml && echo ok > /run/done\n- [echo, 1]\nbootcmd: [swapoff -a]\nwrite_files:\n- {path: /run/late, content: x, defer: true}\n- {path: /run/join.yaml, owner: 'root:root', permissions: '0640', encoding: b64, content: 'aGk='}\n";
        let steps = parse(text, 60, &Instance::default()).unwrap();
        let titles: Vec<String> = steps.iter().map(Step::title).collect();
        assert_eq!(
            titles,
            ["run swapoff -a", "write /run/join.yaml", "run sh", "run echo", "write /run/late"]
                .map(|title| title.replace("run swapoff -a", "run sh"))
        );
        let Step::Run(join) = &steps[2] else { panic!("a command") };
        assert_eq!(
            join.argv[2], "kubeadm join --config /run/join.yaml && echo ok > /run/done",
            "the whole line, in a shell"
        );
        let Step::WriteFile(file) = &steps[1] else { panic!("a file") };
        assert_eq!((file.mode, file.owner.as_str(), file.content.as_str()), (0o640, "root:root", "aGk="));
    }

    #[test]
    fn what_cannot_be_executed_is_refused() {
        for (text, problem) in [
            ("#!/bin/sh\n", "does not begin"),
            ("#cloud-config\nntp: {}\n", "ntp: is not supported"),
            ("#cloud-config\nwrite_files: [{path: a}]\n", "write_files[0].path"),
            ("#cloud-config\nwrite_files: [{path: /a, encoding: rot13}]\n", "`rot13` is not supported"),
            ("#cloud-config\nwrite_files: [{path: /a, permissions: '0999'}]\n", "is not octal"),
            ("#cloud-config\nwrite_files: [{path: /a, permissions: 420}]\n", "in quotes"),
            ("#cloud-config\nruncmd: [{a: b}]\n", "runcmd[0]"),
            ("#cloud-config\nruncmd: [\n", "not YAML"),
            ("#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: aGk=}]\n", "not gzip"),
            ("## template: jinja\n#cloud-config\nruncmd: ['{{ ds.secret }}']\n", "ds.secret: is no variable"),
        ] {
            let error = parse(text, 60, &Instance::default()).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn compressed_files_and_variables_are_filled_in() {
        let instance = Instance { name: "node10".into(), default_interface: "eth0".into() };
        // printf 'nic {{ .DefaultNetworkInterfaceName }}' | gzip -n | base64
        let packed = "H4sIAAAAAAAAA8vLTFaorlbQc0lNSyzNKfFLLSnPL8r2zCtJLUpLTE71S8xNVaitBQAucnB3JgAAAA==";
        let text = format!(
            "## template: jinja\n#cloud-config\nwrite_files:\n- {{path: /a, encoding: gzip+base64, content: {packed}}}\n\
             runcmd: ['echo {{{{ ds.meta_data.local_hostname }}}}']\n"
        );
        let steps = parse(&text, 60, &instance).unwrap();
        let [Step::WriteFile(file), Step::Run(echo)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(STANDARD.decode(&file.content).unwrap(), b"nic eth0");
        assert_eq!(echo.argv[2], "echo node10");
    }
}
