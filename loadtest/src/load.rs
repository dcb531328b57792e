//! Load for a bounded time and count: wrk for saturation over HTTP/1.1, h2load for a fixed rate and for HTTP/2, and our own client for
//! new connections where those two won't do.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::child::{Child, Recipe};
use crate::client::{self, Session, Target};
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::site::Site;

/// What a load speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1.
    H1,
    /// HTTP/2.
    H2,
}

/// What to ask, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The path asked for, one of the origin's.
    pub path: &'static str,
    /// The bytes of its body.
    pub body: usize,
    /// What is spoken.
    pub protocol: Protocol,
    /// Requests at a time on each connection.
    pub streams: u32,
    /// A unary gRPC call, by POST.
    pub grpc: bool,
    /// Over TLS.
    pub tls: bool,
    /// A new connection for each request.
    pub fresh: bool,
    /// Connections at a time.
    pub connections: u32,
    /// Requests a second over all connections; `None`: the next as soon as one is answered.
    pub rate: Option<u32>,
    /// For how long.
    pub duration: Duration,
}

/// What came of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Answered requests; a part of a large one counts as a part.
    pub requests: f64,
    /// From the first request to the last answer.
    pub elapsed: Duration,
}

/// Where load comes from: cores, and the folder with the clients' settings.
pub struct Source<'a> {
    /// The cores of the load, as `taskset` writes them.
    pub cores: &'a str,
    /// The folder of the run.
    pub site: &'a Site,
    /// TLS for our own client.
    pub tls: Arc<rustls::ClientConfig>,
}

/// A load that is under way.
pub struct Running {
    load: Load,
    generator: Generator,
}

enum Generator {
    Wrk(Child),
    /// How many answers it must get; as many as it can where there is no number.
    H2load(Child, Option<u64>),
    Own(Vec<JoinHandle<Outcome<u64>>>, Instant),
}

impl Source<'_> {
    /// Starts `load` against a port.
    pub fn start(&self, load: Load, port: u16) -> Outcome<Running> {
        let generator = match (load.fresh, load.rate) {
            (false, None) if load.protocol == Protocol::H2 => {
                let span = format!("-D{}s", load.duration.as_secs().max(1));
                Generator::H2load(self.h2load(load, port, [span])?, None)
            }
            (false, None) => Generator::Wrk(self.wrk(load, port)?),
            (true, None) if !load.tls => Generator::Wrk(self.wrk(load, port)?),
            (false, Some(rate)) => {
                let count = requests_of(rate, load.duration, load.connections);
                let pace = format!("--rps={}", f64::from(rate) / f64::from(load.connections));
                Generator::H2load(self.h2load(load, port, [format!("-n{count}"), pace])?, Some(count))
            }
            (true, _) => self.own(load, port),
        };
        Ok(Running { load, generator })
    }

    /// Makes a proxy warm: caches, memory, connections to the origin.
    pub fn warm_up(&self, load: Load, port: u16) -> Outcome<()> {
        if load.fresh {
            let brief = Load { rate: None, duration: Duration::from_millis(100), ..load };
            let generator = self.own(brief, port);
            return Running { load: brief, generator }.finish().map(drop);
        }
        self.count(load, port, u64::from(load.connections * load.streams) * if load.body > 100_000 { 8 } else { 40 })
    }

    /// Makes exactly `count` requests over kept connections.
    pub fn count(&self, load: Load, port: u16, count: u64) -> Outcome<()> {
        let child = self.h2load(load, port, [format!("-n{count}")])?;
        let text = child.finish(Duration::from_secs(600))?;
        parse_h2load(&text, Some(count), load).map(drop)
    }

    fn wrk(&self, load: Load, port: u16) -> Outcome<Child> {
        let mut recipe = Recipe::new("wrk", self.cores)
            .environment("OPENSSL_CONF", self.site.path("client.openssl.conf"))
            .argument("-t1")
            .argument(format!("-c{}", load.connections))
            .argument(format!("-d{}s", load.duration.as_secs().max(1)))
            .arguments(["--timeout", "10s", "-s"])
            .argument(self.site.path("summary.lua"));
        if load.fresh {
            recipe = recipe.arguments(["-H", "Connection: close"]);
        }
        recipe.argument(address(load, port)).captured().start()
    }

    fn h2load(&self, load: Load, port: u16, bounds: impl IntoIterator<Item = String>) -> Outcome<Child> {
        let mut recipe = Recipe::new("h2load", self.cores)
            .environment("OPENSSL_CONF", self.site.path("client.openssl.conf"))
            .arguments(["--groups=X25519", "--tls13-ciphers=TLS_AES_128_GCM_SHA256"])
            .argument(format!("-c{}", load.connections))
            .arguments(bounds);
        recipe = match load.protocol {
            Protocol::H1 => recipe.argument("--h1"),
            Protocol::H2 => recipe.arguments(["--npn-list=h2".to_owned(), format!("-m{}", load.streams)]),
        };
        if load.grpc {
            recipe = recipe
                .arguments(["-H", "content-type: application/grpc", "-H", "te: trailers", "-d"])
                .argument(self.site.path("grpc.request"));
        }
        recipe.argument(address(load, port)).captured().start()
    }

    /// Our own threads; they are on the load's cores because this program is.
    fn own(&self, load: Load, port: u16) -> Generator {
        let target = Target { port, tls: load.tls.then(|| self.tls.clone()) };
        let begin = clock::now();
        let next = Arc::new(AtomicU64::new(0));
        let threads = (0..load.connections).map(|_| {
            let (target, next) = (target.clone(), next.clone());
            thread::spawn(move || fresh_connections(&target, load, begin, &next))
        });
        Generator::Own(threads.collect(), begin)
    }
}

/// Makes connections one after the other, each for one request; with a rate, each when it is due.
fn fresh_connections(target: &Target, load: Load, begin: Instant, next: &AtomicU64) -> Outcome<u64> {
    let mut done = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let due = load.rate.map_or(Duration::ZERO, |rate| Duration::from_micros(number * 1_000_000 / u64::from(rate)));
        if due.max(begin.elapsed()) >= load.duration || clock::is_interrupted() {
            return Ok(done);
        }
        thread::sleep(due.saturating_sub(begin.elapsed()));
        let mut session = Session::open(target, Ipv4Addr::UNSPECIFIED)?;
        session.exchange(client::CLOSE)?;
        session.end()?;
        done += 1;
    }
}

impl Running {
    /// Waits until it is over. A request that failed makes it a failure: a proxy that answers with errors is cheap.
    pub fn finish(self) -> Outcome<Served> {
        let limit = self.load.duration * 3 + Duration::from_secs(15);
        match self.generator {
            Generator::Wrk(child) => parse_wrk(&child.finish(limit)?, self.load),
            Generator::H2load(child, count) => parse_h2load(&child.finish(limit)?, count, self.load),
            Generator::Own(threads, begin) => {
                let mut sum = 0;
                for thread in threads {
                    sum += thread.join().unwrap_or_else(|_| Err(Failure::new("a thread of the client panicked")))?;
                }
                clock::go_on()?;
                Ok(Served { requests: count_of(sum), elapsed: begin.elapsed() })
            }
        }
    }
}

fn address(load: Load, port: u16) -> String {
    let scheme = if load.tls { "https" } else { "http" };
    format!("{scheme}://127.0.0.1:{port}/{}", load.path)
}

/// As many requests as the rate gives in the time, the same number on each connection.
fn requests_of(rate: u32, duration: Duration, connections: u32) -> u64 {
    let wanted = u128::from(rate) * duration.as_millis() / 1_000;
    let each = wanted / u128::from(connections.max(1));
    u64::try_from(each.max(1)).unwrap_or(1) * u64::from(connections)
}

fn parse_wrk(text: &str, load: Load) -> Outcome<Served> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary "));
    let line = line.ok_or_else(|| Failure::new("wrk printed no summary"))?;
    let number = |name: &str| -> Outcome<u64> {
        let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.unwrap_or_default().parse().doing(|| format!("reading {name} in {line:?}"))
    };
    for error in ["connect", "read", "write", "status", "timeout"] {
        if number(error)? > 0 {
            return Err(Failure::new(format!("requests failed: {line}")));
        }
    }
    let elapsed = Duration::from_micros(number("microseconds")?);
    // What was under way at the end was paid for: with large bodies that is a part that must count.
    let whole = count_of(number("requests")?);
    let requests = if load.body > 100_000 { count_of(number("bytes")?) / count_of(load.body as u64) } else { whole };
    if whole < 1.0 {
        return Err(Failure::new(format!("not one request was answered: {line}")));
    }
    Ok(Served { requests, elapsed })
}

/// Reads what h2load printed: `wanted` answers, or with none given as many as there were, each of them whole and a 2xx. It does not look
/// at trailers: a gRPC call that failed shows by the message that is missing.
fn parse_h2load(text: &str, wanted: Option<u64>, load: Load) -> Outcome<Served> {
    let find = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let first = |line: &str| line.split(' ').next()?.parse::<u64>().ok();
    let statuses = find("status codes: ").unwrap_or_default();
    // Heads count as soon as they are there, answers when they are whole: a load that ends by time has more of the former.
    let good = first(statuses).filter(|_| statuses.ends_with(" 0 3xx, 0 4xx, 0 5xx"));
    let said = find("requests: ").unwrap_or("nothing");
    let count = wanted.or_else(|| first(said)).unwrap_or_default();
    let is_whole = [format!(" {count} succeeded"), " 0 failed".to_owned(), " 0 errored".to_owned()];
    let data =
        find("traffic: ").and_then(|line| line.split_once(" headers")?.1.split_once(") data")?.0.rsplit_once('('));
    let data = data.and_then(|(_, bytes)| bytes.parse::<u64>().ok()).unwrap_or_default();
    if count == 0
        || good.is_none_or(|good| good < count || wanted.is_some_and(|wanted| wanted != good))
        || !is_whole.iter().all(|part| said.contains(part))
    {
        let wanted = wanted.map_or("only".to_owned(), |count| count.to_string());
        return Err(Failure::new(format!("requests failed: h2load wanted {wanted} answers and says {said}")));
    }
    if data < count * load.body as u64 {
        return Err(Failure::new(format!("{count} answers of {} bytes were only {data} bytes", load.body)));
    }
    let time = find("finished in ").and_then(|line| parse_duration(line.split(',').next()?));
    let elapsed = time.ok_or_else(|| Failure::new("h2load printed no time"))?;
    Ok(Served { requests: count_of(count), elapsed })
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match text.get(digits.len()..)? {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        _ => return None,
    };
    Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * factor).ok()
}

#[allow(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn count_of(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
