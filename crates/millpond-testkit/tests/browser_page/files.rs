//! Files over HTTP on loopback, with the headers that the dashboard's server sets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result};

/// The policy of the page: nothing inline, nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// A server that runs until the test program ends.
pub(crate) struct Files {
    port: u16,
}

impl Files {
    /// Serves folders below paths; every other path is the page.
    pub(crate) fn serve(folders: &[(&str, &Path)]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a loopback port")?;
        let port = listener.local_addr().context("read the bound port")?.port();
        let folders: Vec<(String, PathBuf)> =
            folders.iter().map(|(path, folder)| ((*path).to_owned(), folder.to_path_buf())).collect();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let folders = folders.clone();
                // A browser that goes away in the middle of an answer is no failure.
                thread::spawn(move || answer(stream, &folders).ok());
            }
        });
        Ok(Self { port })
    }

    /// The address of a path.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn answer(mut stream: TcpStream, folders: &[(String, PathBuf)]) -> Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().context("no request")??;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let path = request.split(' ').nth(1).context("no path")?;
    let path = path.split('?').next().unwrap_or_default();
    let file = find(path, folders);
    let (status, body) = match file.as_deref().map(std::fs::read) {
        Some(Ok(body)) => ("200 OK", body),
        _ => ("404 Not Found", Vec::new()),
    };
    let kind = content_type(file.as_deref().unwrap_or(Path::new("")));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nContent-Security-Policy: {POLICY}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)?;
    Ok(())
}

fn find(path: &str, folders: &[(String, PathBuf)]) -> Option<PathBuf> {
    for (prefix, folder) in folders {
        if let Some(rest) = path.strip_prefix(prefix.as_str()) {
            let is_plain = Path::new(rest).components().all(|part| matches!(part, Component::Normal(_)));
            return is_plain.then(|| folder.join(rest));
        }
    }
    let assets = folders.iter().find(|(prefix, _)| prefix == "/assets/")?;
    (!path.starts_with("/ui/")).then(|| assets.1.join("index.html"))
}

fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|end| end.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
