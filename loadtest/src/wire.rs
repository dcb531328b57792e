//! Whether the proxies do the same work: before anything is measured, each must pass on the fields that all are meant to add, over
//! plain TCP and TLS, and log where logs are meant to be written. A proxy that does less than the others would look cheap.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::client::{self, Session, Target};
use crate::failure::{Failure, Outcome, While};
use crate::proxy::{Proxy, Setting, Variant};
use crate::site::Site;

const PATIENCE: Duration = Duration::from_secs(5);
const REQUESTS: usize = 5;

/// An origin that shows what it was asked.
struct Mirror {
    port: u16,
    heads: Receiver<String>,
    stop: Arc<AtomicBool>,
}

impl Mirror {
    fn start() -> Outcome<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(|| "listening".to_owned())?;
        let port = listener.local_addr().doing(|| "asking for a port".to_owned())?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, heads) = mpsc::channel();
        let stopped = stop.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let sender = sender.clone();
                // A connection that breaks is the proxy's affair; what was seen until then was sent.
                thread::spawn(move || reflect(stream, &sender));
            }
        });
        Ok(Self { port, heads, stop })
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listening thread; if it is gone already there is nothing to wake.
        drop(TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))));
    }
}

fn reflect(mut stream: TcpStream, sender: &Sender<String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if head.ends_with(b"\r\n\r\n") {
            // Told before it is answered, so that whoever has the answer finds it.
            let _ = sender.send(String::from_utf8_lossy(&head).into_owned());
            head.clear();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 128\r\n\r\n{}", "x".repeat(128))?;
        }
        if count == 0 {
            return Ok(());
        }
    }
}

/// Fails with what `variant` leaves out.
pub fn verify(variant: Variant, setting: &Setting, site: &mut Site) -> Outcome<()> {
    let mirror = Mirror::start()?;
    let setting = Setting { origin_port: mirror.port, ..setting.clone() };
    let proxy = Proxy::start(variant, &setting, site)?;
    let log = site.path(&format!("{}.access.log", proxy.port));
    for (port, scheme, tls) in [(proxy.port, "http", None), (proxy.tls_port, "https", Some(client::tls()?))] {
        let mut session = Session::open(&Target { port, tls }, Ipv4Addr::UNSPECIFIED)?;
        for _ in 0..REQUESTS {
            // What came before (the probe that waited for the proxy) is of no interest.
            while mirror.heads.try_recv().is_ok() {}
            let mut buffer = [0; 4096];
            let count =
                session.answer(client::KEEP, &mut buffer).doing(|| format!("{} over {scheme}", variant.name()))?;
            let head = mirror.heads.recv_timeout(PATIENCE).doing(|| "waiting for the origin's request".to_owned())?;
            let answer = String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()).into_owned();
            for (text, field, value) in [
                (&head, "x-forwarded-for", "127.0.0.1"),
                (&head, "x-forwarded-proto", scheme),
                (&head, "via", ""),
                (&answer, "via", ""),
            ] {
                demand(text, field, value).doing(|| variant.name())?;
            }
        }
    }
    proxy.terminate(Duration::from_secs(10))?;
    if setting.logged {
        let text = std::fs::read_to_string(&log).doing(|| format!("reading the log of {}", variant.name()))?;
        let lines = text.lines().filter(|line| line.contains("/128")).count();
        if lines < 2 * REQUESTS {
            return Err(Failure::new(format!("{} logged {lines} of {} requests", variant.name(), 2 * REQUESTS)));
        }
    }
    Ok(())
}

fn demand(head: &str, field: &str, value: &str) -> Outcome<()> {
    let found = head.lines().any(|line| {
        line.split_once(':')
            .is_some_and(|(name, found)| name.eq_ignore_ascii_case(field) && found.trim().starts_with(value))
    });
    if found { Ok(()) } else { Err(Failure::new(format!("no {field}: {value} in {head:?}"))) }
}
