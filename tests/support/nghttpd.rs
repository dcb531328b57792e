//! `nghttpd`, an HTTP/2 server that nobody here wrote, serves a folder on loopback until it is dropped. Where it is not
//! installed there is none, and the test says so.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use super::deadline::{DEADLINE, Deadline, between_looks};

/// nghttpd, where it is installed.
pub struct Nghttpd {
    process: Child,
    /// Where it listens.
    pub address: std::net::SocketAddr,
}

impl Nghttpd {
    /// One without TLS that serves `folder`; `None`: there is none on this machine.
    pub fn start(folder: &std::path::Path, options: &[&str]) -> Option<Self> {
        Self::start_with(folder, &[&["--no-tls"], options].concat(), &[])
    }

    /// The same with options alone. `last` is what comes behind the port.
    pub fn start_with(folder: &std::path::Path, options: &[&str], last: &[&str]) -> Option<Self> {
        // It can't be asked for a port of the system's choice: one that was free a moment ago.
        for _ in 0..20 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new("nghttpd");
            command.args(["-a", "127.0.0.1", "-d"]).arg(folder).args(options);
            command.arg(address.port().to_string()).args(last).stdout(Stdio::null()).stderr(Stdio::null());
            let Ok(mut process) = command.spawn() else {
                println!("nghttpd is not installed: not tested");
                return None;
            };
            let deadline = Deadline::after(DEADLINE);
            while deadline.left().is_some() && process.try_wait().unwrap().is_none() {
                if std::net::TcpStream::connect(address).is_ok() {
                    return Some(Self { process, address });
                }
                between_looks();
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("nghttpd does not start");
    }
}

impl Drop for Nghttpd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
