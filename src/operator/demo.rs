//! `pointsman demo`: the product in front of servers of its own, to be tried with curl and a browser.
//!
//! It starts three pools of small servers on free loopback ports, writes a rule file and a certificate made on the spot
//! into a folder of its own, says what to try, and then runs the proxy exactly as `pointsman run` would. It listens on
//! loopback alone, and refuses to leave anything behind: servers and folder go when it ends.

mod answers;
mod folder;
mod guide;
mod rules;
mod servers;
mod websocket;

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use folder::Folder;
use servers::Servers;

/// What can be chosen of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub struct DemoOptions {
    /// The port for plain HTTP; 0 takes any free one.
    #[arg(long, default_value_t = 8080)]
    pub http: u16,
    /// The port for HTTPS; 0 takes any free one.
    #[arg(long, default_value_t = 8443)]
    pub https: u16,
}

/// Why the demo did not start, or ended badly. `E` is the error of the proxy itself.
#[derive(Debug, thiserror::Error)]
pub enum DemoError<E> {
    /// A port is taken, or may not be used.
    #[error("can't listen on 127.0.0.1:{port}: {source}{}; `pointsman demo --{option} {}` takes another port",
        if .source.kind() == io::ErrorKind::AddrInUse { " (another program listens there)" } else { "" },
        other_port(*.port))]
    Port {
        /// The port.
        port: u16,
        /// The option that changes it.
        option: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Both listeners were given one port.
    #[error("HTTP and HTTPS can't both have port {0}: `--http` and `--https` must differ")]
    SamePort(u16),
    /// The folder of its files can't be made or written.
    #[error("can't write the demo's files: {0}")]
    Folder(io::Error),
    /// No certificate could be made.
    #[error("can't make a certificate: {0}")]
    Certificate(rcgen::Error),
    /// Its servers can't be started.
    #[error("can't start the demo's servers: {0}")]
    Servers(io::Error),
    /// What to try can't be said.
    #[error("can't print: {0}")]
    Print(io::Error),
    /// The proxy did not start, or ended badly.
    #[error(transparent)]
    Run(E),
}

/// A port near `port` that needs no privilege, as a suggestion.
fn other_port(port: u16) -> u16 {
    if port < 1024 { 8000 + port % 1000 } else { port.checked_add(1).unwrap_or(8000) }
}

/// The ports of the two listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ports {
    http: u16,
    https: u16,
}

/// Starts the servers, says what to try on `out`, and gives the rule file to `run`, which is the proxy and returns when it
/// has ended.
///
/// # Errors
/// [`DemoError`] where something could not be started, or `run` failed.
pub fn demo<E>(
    options: DemoOptions,
    out: &mut dyn Write,
    run: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), DemoError<E>> {
    let ports = choose_ports(options)?;
    let servers = Servers::start().map_err(DemoError::Servers)?;
    let folder = Folder::new().map_err(DemoError::Folder)?;
    let rule_file = write_files(&folder, ports, &servers)?;
    guide::print(out, ports, &servers, &rule_file).map_err(DemoError::Print)?;
    run(&rule_file).map_err(DemoError::Run)
}

/// Looks whether both ports can be had, and picks free ones where 0 was asked for.
fn choose_ports<E>(options: DemoOptions) -> Result<Ports, DemoError<E>> {
    if options.http == options.https && options.http != 0 {
        return Err(DemoError::SamePort(options.http));
    }
    let bind = |port, option| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .and_then(|listener| Ok((listener.local_addr()?.port(), listener)))
            .map_err(|source| DemoError::Port { port, option, source })
    };
    // Both are held until both are known, so that two free ones differ.
    let (http, _held) = bind(options.http, "http")?;
    let (https, _held_too) = bind(options.https, "https")?;
    Ok(Ports { http, https })
}

/// Writes the rule file, and the certificate and key that it names. The path of the rule file.
fn write_files<E>(folder: &Folder, ports: Ports, servers: &Servers) -> Result<PathBuf, DemoError<E>> {
    let (certificate, key) = folder::certificate().map_err(DemoError::Certificate)?;
    folder.write(rules::CERTIFICATE, &certificate).map_err(DemoError::Folder)?;
    folder.write(rules::KEY, &key).map_err(DemoError::Folder)?;
    folder.write("demo.kdl", &rules::text(ports, servers)).map_err(DemoError::Folder)
}

#[cfg(test)]
mod tests;
