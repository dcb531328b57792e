//! TLS servers that nobody here wrote: Python's ssl, and `openssl s_server`. Killed when the test is over.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::tls::Certificate;

const SCRIPT: &str = include_str!("tls_server.py");

/// A TLS server in a process of its own.
pub struct TlsServer {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

/// What a server is started with.
#[derive(Default)]
pub struct TlsServerSetup {
    /// The PEM of authorities whose certificates are asked for.
    pub client_ca: Option<String>,
    /// Whether such a certificate has to come.
    pub requires: bool,
    /// Whether a PROXY header of version 1 comes before TLS.
    pub is_announced: bool,
    /// Whether connections are accepted and left alone.
    pub is_silent: bool,
}

impl TlsServerSetup {
    /// Starts Python's ssl with this certificate.
    pub fn start(self, certificate: &Certificate) -> TlsServer {
        let folder = TempDir::with_prefix("pointsman-tls-server-").expect("a temporary folder");
        let file = |name: &str, text: &str| write(folder.path(), name, text);
        let mut options = serde_json::json!({
            "certificate": file("server.crt", &certificate.certificate),
            "key": file("server.key", &certificate.key),
            "require": self.requires,
            "announced": self.is_announced,
            "silent": self.is_silent,
        });
        if let Some(ca) = &self.client_ca {
            options["ca"] = file("ca.crt", ca).display().to_string().into();
        }
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT, &options.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("python3 starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says its port");
        let port = line.trim().parse().expect("a port");
        TlsServer { address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port), child, _folder: folder }
    }
}

impl TlsServer {
    /// Python's ssl with this certificate, asking its clients for none.
    pub fn start(certificate: &Certificate) -> Self {
        TlsServerSetup::default().start(certificate)
    }

    /// `openssl s_server -www` with this certificate: it answers each request with what it knows of the connection.
    pub fn openssl(certificate: &Certificate) -> Self {
        let folder = TempDir::with_prefix("pointsman-tls-server-").expect("a temporary folder");
        let certificate_file = write(folder.path(), "server.crt", &certificate.certificate);
        let key_file = write(folder.path(), "server.key", &certificate.key);
        let mut command = Command::new("openssl");
        command.args(["s_server", "-accept", "127.0.0.1:0", "-www"]);
        command.arg("-cert").arg(certificate_file).arg("-key").arg(key_file);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("openssl starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let address = lines.filter_map(|line| line.strip_prefix("ACCEPT ")?.trim().parse().ok()).next();
        TlsServer { address: address.expect("openssl says where it listens"), child, _folder: folder }
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        // Both fail only where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
