//! Builds on another machine: `dib-cmd: ansible PLAYBOOK` runs ansible-playbook with the contract of dib-ansible. The
//! playbook builds on a host of its inventory and brings the image to `image_output.FORMAT` here, or leaves it at the
//! same path there: then it is fetched, with its checksum.
//!
//! Ansible's connections use the builder's key and accept only host keys that were accepted before.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::fs::File;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::command::{BuildCommand, output};
use super::decide::Image;
use super::files;
use super::logs;
use super::source::Loaded;
use super::ssh::{KNOWN_HOSTS, PRIVATE, SshFolder};

/// The word in `dib-cmd` that selects this builder.
const WORD: &str = "ansible";
/// Formats that playbooks know.
const FORMATS: [&str; 2] = ["raw", "qcow2"];
/// Where Software Factory keeps playbooks.
const FACTORY_DIR: &str = "/var/lib/nodepool/config/nodepool/dib-ansible";
/// Inventories that are looked for beside a playbook.
const INVENTORIES: [&str; 3] = ["inventory.yaml", "inventory.yml", "inventory.ini"];
/// How much of a log is searched for reasons.
const SEARCHED_BYTES: u64 = 64 << 10;
/// How long fetching an image may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// How remote builds reach their hosts.
#[derive(Debug, Clone)]
pub struct Ansible {
    /// Keys.
    pub ssh: SshFolder,
    /// The folder of the configuration file; playbooks are looked for below it.
    pub config_dir: PathBuf,
}

/// A remote build that runs.
#[derive(Debug)]
pub struct Remote {
    inventory: Option<PathBuf>,
    env: Vec<(String, String)>,
    images: PathBuf,
}

impl Ansible {
    /// ansible-playbook in the place of `ansible PLAYBOOK`; `None` for every other command.
    pub fn command(&self, command: &BuildCommand, loaded: &Loaded) -> Option<Result<(BuildCommand, Remote), String>> {
        (command.argv.first().map(String::as_str) == Some(WORD)).then(|| self.playbook(command, loaded))
    }

    fn playbook(&self, command: &BuildCommand, loaded: &Loaded) -> Result<(BuildCommand, Remote), String> {
        let Request { playbook, inventory, image_output, formats } = Request::read(&command.argv[1..])?;
        let playbook = self.find(&playbook)?;
        let inventory = match inventory {
            Some(named) => Some(self.find(&named)?),
            None => {
                let beside = |name: &&str| playbook.with_file_name(name);
                INVENTORIES.iter().map(beside).find(|path| path.is_file())
            }
        };
        if let Some(format) = formats.iter().find(|format| !FORMATS.contains(&format.as_str())) {
            return Err(format!("`dib-cmd: ansible` builds {}, not `{format}`", FORMATS.join(" and ")));
        }
        let mut argv = vec!["ansible-playbook".to_owned(), "-v".to_owned()];
        if let Some(inventory) = &inventory {
            argv.extend(["-i".to_owned(), inventory.display().to_string()]);
        }
        argv.push(playbook.display().to_string());
        argv.extend(["-e".to_owned(), format!("image_output={image_output}")]);
        for format in FORMATS.iter().filter(|format| formats.iter().any(|wanted| wanted == *format)) {
            argv.extend(["-e".to_owned(), format!("{format}_type=True")]);
        }
        let ssh = self.environment()?;
        // Variables of the image come last and override the others.
        let env: Vec<(String, String)> = ssh.into_iter().chain(command.env.iter().cloned()).collect();
        let remote = Remote { inventory, env: env.clone(), images: loaded.folders.images.clone() };
        Ok((BuildCommand { argv, env }, remote))
    }

    fn find(&self, name: &str) -> Result<PathBuf, String> {
        let folders = [Path::new(""), &self.config_dir, &self.config_dir.join("dib-ansible"), Path::new(FACTORY_DIR)];
        let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        found.ok_or_else(|| {
            let folders = folders[1..].iter().map(|folder| format!("`{}`", folder.display()));
            format!("the playbook `{name}` is not there, nor below {}", folders.collect::<Vec<_>>().join(", "))
        })
    }

    /// Variables for Ansible's connections.
    fn environment(&self) -> Result<Vec<(String, String)>, String> {
        self.ssh.ensure().map_err(|error| error.to_string())?;
        let folder = std::path::absolute(&self.ssh.0).map_err(|error| error.to_string())?;
        let shown = folder.display().to_string();
        if shown.contains(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '%')) {
            return Err(format!("the folder of SSH keys `{shown}` has letters that ssh cannot take in its options"));
        }
        let (key, known) = (folder.join(PRIVATE), folder.join(KNOWN_HOSTS));
        let options = format!(
            "-o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes \
             -o IdentityFile={} -o IdentitiesOnly=yes -o BatchMode=yes -o ServerAliveInterval=60",
            known.display(),
            key.display()
        );
        let rsync = format!("ssh {options}");
        // Shared connections would outlive the build.
        let variables = [
            ("ANSIBLE_HOST_KEY_CHECKING", "True".to_owned()),
            ("ANSIBLE_SSH_ARGS", "-C -o ControlMaster=no -o ControlPath=none".to_owned()),
            ("ANSIBLE_SSH_COMMON_ARGS", options),
            ("ANSIBLE_NOCOLOR", "1".to_owned()),
            ("RSYNC_RSH", rsync),
        ];
        Ok(variables.map(|(name, value)| (name.to_owned(), value)).to_vec())
    }
}

/// The arguments of dib-ansible.
struct Request {
    playbook: String,
    inventory: Option<String>,
    image_output: String,
    formats: Vec<String>,
}

impl Request {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let (mut playbook, mut inventory, mut image_output, mut formats) = (None, None, None, Vec::new());
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "-x" | "--checksum" | "--no-tmpfs" => {}
                "-t" => formats = arguments.next().map(|text| split(text)).unwrap_or_default(),
                "-o" => image_output = arguments.next().cloned(),
                "-i" => inventory = arguments.next().cloned(),
                "--qemu-img-options" => drop(arguments.next()),
                option if option.starts_with('-') => {
                    return Err(format!("`dib-cmd: ansible` has no option `{option}`"));
                }
                _ if playbook.is_none() => playbook = Some(argument.clone()),
                other => return Err(format!("`dib-cmd: ansible` takes one playbook, and no elements like `{other}`")),
            }
        }
        Ok(Self {
            playbook: playbook.ok_or("`dib-cmd: ansible` needs a playbook")?,
            inventory,
            image_output: image_output.ok_or("`dib-cmd: ansible` needs `-o`")?,
            formats,
        })
    }
}

fn split(formats: &str) -> Vec<String> {
    formats.split(',').map(ToOwned::to_owned).collect()
}

impl Remote {
    /// Fetches the files that the playbook left on its host.
    pub(super) async fn fetch(
        &self,
        image: &Image,
        id: &str,
        log: &mut File,
        stop: &CancellationToken,
    ) -> Result<(), String> {
        let name = &image.settings.name;
        let missing: Vec<PathBuf> = image
            .formats
            .iter()
            .map(|format| files::path(&self.images, name, id, format))
            .filter(|path| !path.exists())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut playbook = output(&self.images, name, id).into_os_string();
        playbook.push(".fetch");
        let playbook = PathBuf::from(playbook);
        tokio::fs::write(&playbook, fetch_playbook(&missing)).await.map_err(|error| error.to_string())?;
        let done = self.run(&playbook, log, stop).await;
        let _ = tokio::fs::remove_file(&playbook).await;
        done
    }

    async fn run(&self, playbook: &Path, log: &mut File, stop: &CancellationToken) -> Result<(), String> {
        let copy = || async { Ok::<_, std::io::Error>(log.try_clone().await?.into_std().await) };
        let (out, err) = (copy().await, copy().await);
        let (out, err) = out.and_then(|out| Ok((out, err?))).map_err(|error| error.to_string())?;
        let mut command = Command::new("ansible-playbook");
        if let Some(inventory) = &self.inventory {
            command.arg("-i").arg(inventory);
        }
        command
            .arg(playbook)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(out))
            .stderr(Stdio::from(err))
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("`ansible-playbook` does not start: {error}"))?;
        let status = tokio::select! {
            biased;
            () = stop.cancelled() => return Err("the builder stops".to_owned()),
            status = tokio::time::timeout(FETCH_TIMEOUT, child.wait()) => status,
        };
        match status {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("the image could not be fetched: ansible-playbook ended with {status}")),
            Ok(Err(error)) => Err(format!("the image could not be fetched: {error}")),
            Err(_) => Err(format!("the image could not be fetched within {} s", FETCH_TIMEOUT.as_secs())),
        }
    }

    /// The reason behind a failed playbook, from its log.
    pub(super) fn explain(&self, log: &Path, reason: String) -> String {
        let text = logs::tail(log, SEARCHED_BYTES).unwrap_or_default();
        match explain(&text) {
            Some(cause) => format!("{cause} ({reason})"),
            None => reason,
        }
    }
}

/// Copies each file from the host that has it, with its checksum, and deletes it there.
fn fetch_playbook(files: &[PathBuf]) -> String {
    let mut tasks = String::new();
    for file in files {
        let path = serde_json::Value::String(file.display().to_string()).to_string();
        let sum = serde_json::Value::String(format!("{}.sha256", file.display())).to_string();
        tasks.push_str(&format!(
            "    - name: Look for the image
      ansible.builtin.stat: {{path: {path}, get_checksum: true, checksum_algorithm: sha256}}
      register: image
    - name: Fetch the image
      ansible.builtin.fetch: {{src: {path}, dest: {path}, flat: true}}
      when: image.stat.exists | default(false)
    - name: Keep its checksum
      ansible.builtin.copy: {{content: \"{{{{ image.stat.checksum }}}}\", dest: {sum}, mode: \"0644\"}}
      delegate_to: localhost
      vars: {{ansible_connection: local, ansible_python_interpreter: \"{{{{ ansible_playbook_python }}}}\"}}
      when: image.stat.exists | default(false)
    - name: Delete it on the host
      ansible.builtin.file: {{path: {path}, state: absent}}
      when: image.stat.exists | default(false)
"
        ));
    }
    format!("- hosts: all\n  gather_facts: false\n  ignore_unreachable: true\n  tasks:\n{tasks}")
}

/// The reason in what Ansible and SSH say.
fn explain(log: &str) -> Option<String> {
    if log.contains("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        return Some("the host key of the image-builder has changed: it is refused until it is accepted again with `millpond ci builder-accept-host-key --replace HOST`".to_owned());
    }
    if log.contains("Host key verification failed") {
        return Some(
            "the host key of the image-builder is not accepted yet: `millpond ci builder-accept-host-key HOST`"
                .to_owned(),
        );
    }
    if log.contains("Permission denied (publickey") {
        return Some(
            "the image-builder does not take the builder's key: `millpond ci builder-ssh-key` prints what belongs in its authorized_keys".to_owned(),
        );
    }
    if log.contains("UNREACHABLE!") {
        let line = log.lines().find(|line| line.contains("UNREACHABLE!")).unwrap_or_default();
        let host = line.split(['[', ']']).nth(1).unwrap_or_default();
        return Some(format!("the image-builder `{host}` is not reachable"));
    }
    if log.contains("No space left on device") {
        return Some("no space left on device".to_owned());
    }
    let task = log.lines().rfind(|line| line.starts_with("TASK ["))?;
    let task = task.trim_start_matches("TASK [").split(']').next().unwrap_or_default();
    log.contains("FAILED!").then(|| format!("the task `{task}` of the playbook failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons() {
        let cases = [
            ("fatal: [ib]: UNREACHABLE! => {\"msg\": \"x: Connection refused\"}", "`ib` is not reachable"),
            ("fatal: [ib]: UNREACHABLE! => Host key verification failed.", "not accepted yet"),
            ("@ REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "has changed"),
            ("fatal: [ib]: UNREACHABLE! => Permission denied (publickey).", "does not take the builder's key"),
            ("TASK [Make it] ***\nfatal: [ib]: FAILED! => No space left on device", "no space left"),
            ("TASK [One] ***\nok\nTASK [Make it] ***\nfatal: [ib]: FAILED! => {}", "the task `Make it`"),
        ];
        for (log, expected) in cases {
            assert!(explain(log).unwrap().contains(expected), "{log}");
        }
        assert_eq!(explain("all is well"), None);
    }

    #[test]
    fn arguments_are_those_of_dib_ansible() {
        let words = |text: &str| text.split(' ').map(ToOwned::to_owned).collect::<Vec<String>>();
        let text = "my.yaml -x -t qcow2,raw --checksum --no-tmpfs --qemu-img-options compat=0.10 -o /x/y";
        let request = Request::read(&words(text)).unwrap();
        assert_eq!((request.playbook.as_str(), request.image_output.as_str()), ("my.yaml", "/x/y"));
        assert_eq!(request.formats, ["qcow2", "raw"]);
        for wrong in ["-x -o y", "a.yaml element -o y", "a.yaml --what -o y", "a.yaml"] {
            assert!(Request::read(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
