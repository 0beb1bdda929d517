//! Debian's Chromium without a window, driven through chromedriver over plain HTTP on loopback.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::process::{POLL_INTERVAL, Process, free_port};
use crate::scratch::Scratch;

/// Where Debian's packages `chromium` and `chromium-driver` put their programs.
const CHROMIUM: &str = "/usr/bin/chromium";
const CHROMEDRIVER: &str = "/usr/bin/chromedriver";

/// A browser takes 2 s on a quiet machine; this is for a busy one.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a page may take to become as a test wants it. Only a test that fails waits so long.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// For one answer of chromedriver; a script may wait in it for as long as a page may.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// The name of an element's reference in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Resolves when an expression holds: looked at again for every frame that the page draws.
const UNTIL: &str = "const [source, limit, done] = arguments;\n\
    const holds = new Function(`return (${source});`);\n\
    const end = performance.now() + limit;\n\
    const look = () => {\n\
      let value = null;\n\
      try { value = holds(); } catch (problem) { value = null; }\n\
      if (value || performance.now() > end) done(value ?? null); else requestAnimationFrame(look);\n\
    };\n\
    look();";

/// A browser with one tab. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    _driver: Process,
    port: u16,
    session: String,
    // After the process, whose profile lies in it.
    _scratch: Scratch,
}

impl Browser {
    /// Are both programs there?
    pub fn is_installed() -> bool {
        Path::new(CHROMIUM).exists() && Path::new(CHROMEDRIVER).exists()
    }

    /// Installs both programs from Debian's packages where they are missing; only root can.
    pub fn install() -> Result<()> {
        if Self::is_installed() {
            return Ok(());
        }
        for arguments in
            [&["update"][..], &["install", "--yes", "--no-install-recommends", "chromium", "chromium-driver"]]
        {
            let mut command = Command::new("apt-get");
            command.arg("--quiet").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
            let output = command.output().context("run apt-get")?;
            if !output.status.success() {
                let last = String::from_utf8_lossy(&output.stderr).lines().next_back().unwrap_or_default().to_owned();
                bail!("`apt-get {}` failed: {last}\nhint: `apt-get install chromium chromium-driver`", arguments[0]);
            }
        }
        Ok(())
    }

    /// Starts a browser with a new profile and a window of this size.
    pub fn start(width: u16, height: u16) -> Result<Self> {
        if !Self::is_installed() {
            bail!("chromedriver is not installed\nhint: `apt-get install chromium chromium-driver`");
        }
        let scratch = Scratch::new("browser")?;
        let port = free_port()?;
        let mut command = Command::new(CHROMEDRIVER);
        command.arg(format!("--port={port}")).env("HOME", scratch.path());
        let mut driver = Process::spawn("chromedriver", &mut command, scratch.path())?;
        wait_ready(&mut driver, port)?;
        let session = open_session(port, &scratch.path().join("profile"), width, height)?;
        Ok(Self { _driver: driver, port, session, _scratch: scratch })
    }

    /// Opens an address.
    pub fn open(&self, address: &str) -> Result<()> {
        self.post("url", &json!({ "url": address })).map(drop)
    }

    /// Runs the body of a function in the page.
    pub fn run(&self, script: &str, args: &[Value]) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": args }))
    }

    /// Waits until an expression of the page is true, and returns its value.
    pub fn until(&self, expression: &str) -> Result<Value> {
        let args = json!([expression, u64::try_from(PAGE_TIMEOUT.as_millis()).unwrap_or(u64::MAX)]);
        let value = self.post("execute/async", &json!({ "script": UNTIL, "args": args }))?;
        if value.is_null() || value == json!(false) {
            bail!("the page never had `{expression}`; it says:\n{}", self.text("body").unwrap_or_default());
        }
        Ok(value)
    }

    /// The text of the first element that a CSS selector finds.
    pub fn text(&self, selector: &str) -> Result<String> {
        let script = "return document.querySelector(arguments[0])?.innerText ?? null";
        let text = self.run(script, &[json!(selector)])?;
        text.as_str().map(str::to_owned).with_context(|| format!("there is no `{selector}`"))
    }

    /// Clicks on an element, as soon as it is there.
    pub fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("element/{element}/click"), &json!({})).map(drop)
    }

    /// Types into an element.
    pub fn fill(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.element(selector)?;
        self.post(&format!("element/{element}/value"), &json!({ "text": text })).map(drop)
    }

    /// Presses keys one after another; names of keys are those of WebDriver's code points.
    pub fn press(&self, keys: &str) -> Result<()> {
        let strokes = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        });
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes.collect::<Vec<_>>() });
        self.post("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    /// Dark or light, as the system would say.
    pub fn set_dark(&self, dark: bool) -> Result<()> {
        let value = if dark { "dark" } else { "light" };
        let params = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.post("goog/cdp/execute", &json!({ "cmd": "Emulation.setEmulatedMedia", "params": params })).map(drop)
    }

    /// What the console has as errors since it was asked last: failed scripts and refusals by the policy of the page.
    pub fn console_errors(&self) -> Result<Vec<String>> {
        let log = self.post("se/log", &json!({ "type": "browser" }))?;
        let severe = log.as_array().into_iter().flatten().filter(|entry| entry["level"] == "SEVERE");
        Ok(severe.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// A picture of the window, as PNG.
    pub fn screenshot(&self) -> Result<Vec<u8>> {
        let picture = ask(self.port, "GET", &format!("/session/{}/screenshot", self.session), None)?;
        STANDARD.decode(picture.as_str().context("read the picture")?).context("decode the picture")
    }

    fn element(&self, selector: &str) -> Result<String> {
        let quoted = json!(selector);
        self.until(&format!("document.querySelector({quoted}) !== null"))?;
        let found = self.post("element", &json!({ "using": "css selector", "value": selector }))?;
        found[ELEMENT].as_str().map(str::to_owned).with_context(|| format!("there is no `{selector}`"))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        ask(self.port, "POST", &format!("/session/{}/{path}", self.session), Some(body))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium with all of its processes; the driver is killed after it.
        let _ = ask(self.port, "DELETE", &format!("/session/{}", self.session), None);
    }
}

fn wait_ready(driver: &mut Process, port: u16) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        driver.ensure_running()?;
        let last = match ask(port, "GET", "/status", None) {
            Ok(status) if status["ready"] == true => return Ok(()),
            Ok(status) => status.to_string(),
            Err(error) => format!("{error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("chromedriver was not ready after {} s: {last}", READY_TIMEOUT.as_secs());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn open_session(port: u16, profile: &Path, width: u16, height: u16) -> Result<String> {
    let args = [
        "--headless".to_owned(),
        "--no-sandbox".to_owned(),
        "--disable-gpu".to_owned(),
        "--disable-dev-shm-usage".to_owned(),
        // Nothing leaves the machine, and nothing is looked up at the start.
        "--disable-quic".to_owned(),
        "--no-first-run".to_owned(),
        "--disable-background-networking".to_owned(),
        "--disable-component-update".to_owned(),
        "--disable-sync".to_owned(),
        format!("--window-size={width},{height}"),
        format!("--user-data-dir={}", profile.display()),
    ];
    let wanted = json!({
        "browserName": "chrome",
        "goog:chromeOptions": { "binary": CHROMIUM, "args": args },
        "goog:loggingPrefs": { "browser": "ALL" },
        "timeouts": { "script": u64::try_from(ANSWER_TIMEOUT.as_millis()).unwrap_or(u64::MAX) },
    });
    let answer = ask(port, "POST", "/session", Some(&json!({ "capabilities": { "alwaysMatch": wanted } })))?;
    answer["sessionId"].as_str().map(str::to_owned).context("read the id of the session")
}

/// One request to chromedriver; the `value` of its answer.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connect to chromedriver")?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).context("set a time-out")?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).context("send to chromedriver")?;
    stream.write_all(body.as_bytes()).context("send to chromedriver")?;
    let body = read_body(&mut BufReader::new(stream)).context("read from chromedriver")?;
    let mut answer: Value = serde_json::from_slice(&body).context("read chromedriver's answer")?;
    let value = answer["value"].take();
    if let Some(error) = value["error"].as_str() {
        bail!("{method} {path}: {error}: {}", value["message"].as_str().unwrap_or_default());
    }
    Ok(value)
}

/// The body of an answer. chromedriver keeps its connections open, whatever it is asked.
fn read_body(answer: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if answer.read_line(&mut line)? == 0 {
            bail!("the connection ended in the head of the answer");
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body)?;
    Ok(body)
}
