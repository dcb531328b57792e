//! Whether the proxies do the same work: before anything is measured, each must pass on the fields that all are meant to add, over
//! plain TCP and TLS and in both versions, and log where logs are meant to be written. A proxy that does less than the others would look cheap.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use http::Request;

use crate::call;
use crate::client::{self, Session, Target};
use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;
use crate::proxy::{Proxy, Setting, Upstream, Variant};
use crate::site::{GRPC_MESSAGE, Site};

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

    /// What came before (the probe that waited for the proxy) is of no interest.
    fn forget(&self) {
        while self.heads.try_recv().is_ok() {}
    }

    fn head(&self) -> Outcome<String> {
        self.heads.recv_timeout(PATIENCE).doing(|| "waiting for the origin's request".to_owned())
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
    let (path, least) = match variant.upstream {
        Upstream::Http1 => {
            verify_h1(&proxy, &mirror).and_then(|()| verify_h2(&proxy, &mirror)).doing(|| variant.name())?;
            ("/128", 3 * REQUESTS)
        }
        Upstream::H2c => {
            verify_fields(&proxy).doing(|| format!("{} with an h2c origin", variant.name()))?;
            ("/fields", REQUESTS)
        }
        Upstream::Grpc => {
            let verified = verify_fields(&proxy).and_then(|()| verify_grpc(&proxy));
            verified.doing(|| format!("{} with a gRPC origin", variant.name()))?;
            ("/bench.Bench/Unary", REQUESTS)
        }
    };
    proxy.terminate(Duration::from_secs(10))?;
    if setting.logged {
        let text = std::fs::read_to_string(&log).doing(|| format!("reading the log of {}", variant.name()))?;
        let lines = text.lines().filter(|line| line.contains(path)).count();
        if lines < least {
            return Err(Failure::new(format!("{} logged {lines} of {least} requests", variant.name())));
        }
    }
    Ok(())
}

fn verify_h1(proxy: &Proxy, mirror: &Mirror) -> Outcome<()> {
    let tls = client::tls(Protocol::H1)?;
    for (port, scheme, tls) in [(proxy.port, "http", None), (proxy.tls_port, "https", Some(tls))] {
        let mut session = Session::open(&Target { port, tls }, Ipv4Addr::UNSPECIFIED)?;
        for _ in 0..REQUESTS {
            mirror.forget();
            let mut buffer = [0; 4096];
            let count = session.answer(client::KEEP, &mut buffer).doing(|| format!("over {scheme}"))?;
            demand_request(&mirror.head()?, scheme)?;
            demand(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()), "via", "")?;
        }
    }
    Ok(())
}

fn verify_h2(proxy: &Proxy, mirror: &Mirror) -> Outcome<()> {
    let tls = client::tls(Protocol::H2)?;
    for (port, scheme, tls) in [(proxy.h2c_port, "http", None), (proxy.tls_port, "https", Some(tls))] {
        for _ in 0..REQUESTS {
            mirror.forget();
            let answer = call::call(port, tls.clone(), request("GET", scheme, "/128")?, "")?;
            demand_request(&mirror.head()?, scheme)?;
            demand(&answer.head, "status", "200")?;
            demand(&answer.head, "via", "")?;
        }
    }
    Ok(())
}

/// The origins that loads go to say themselves what they were asked with.
fn verify_fields(proxy: &Proxy) -> Outcome<()> {
    let tls = client::tls(Protocol::H2)?;
    for _ in 0..REQUESTS {
        let answer = call::call(proxy.tls_port, Some(tls.clone()), request("GET", "https", "/fields")?, "")?;
        demand(&answer.head, "via", "")?;
        demand_request(&String::from_utf8_lossy(&answer.body), "https")?;
    }
    Ok(())
}

fn verify_grpc(proxy: &Proxy) -> Outcome<()> {
    let tls = client::tls(Protocol::H2)?;
    for _ in 0..REQUESTS {
        let unary = request("POST", "https", "/bench.Bench/Unary")?;
        let answer = call::call(proxy.tls_port, Some(tls.clone()), unary, GRPC_MESSAGE)?;
        demand(&answer.head, "status", "200")?;
        demand(&answer.head, "via", "")?;
        demand(&answer.trailers, "grpc-status", "0")?;
        if answer.body != GRPC_MESSAGE.as_bytes() {
            return Err(Failure::new(format!("another message: {:?}", answer.body)));
        }
    }
    Ok(())
}

fn request(method: &str, scheme: &str, path: &str) -> Outcome<Request<()>> {
    let mut request = Request::builder().method(method).uri(format!("{scheme}://127.0.0.1{path}"));
    if method == "POST" {
        request = request.header("content-type", "application/grpc").header("te", "trailers");
    }
    request.body(()).doing(|| "making a request".to_owned())
}

fn demand_request(head: &str, scheme: &str) -> Outcome<()> {
    demand(head, "x-forwarded-for", "127.0.0.1")?;
    demand(head, "x-forwarded-proto", scheme)?;
    demand(head, "via", "")
}

fn demand(head: &str, field: &str, value: &str) -> Outcome<()> {
    let found = head.lines().any(|line| {
        line.split_once(':')
            .is_some_and(|(name, found)| name.eq_ignore_ascii_case(field) && is_value(found.trim(), value))
    });
    if found { Ok(()) } else { Err(Failure::new(format!("no {field}: {value} in {head:?}"))) }
}

fn is_value(found: &str, beginning: &str) -> bool {
    !found.is_empty() && found.starts_with(beginning)
}
