//! The memory of clients that are connected and silent.
//!
//! Figure: (resident memory with N clients that were idle for 5 s after one request − resident memory without clients after the same
//! warm-up) ÷ N, summed over the processes of the proxy.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use crate::accounting;
use crate::child::{Child, Recipe};
use crate::client::{self, Session, Target};
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::load::{Load, Protocol, Source};
use crate::machine::Cores;
use crate::proxy::{Product, Proxy, Setting, Variant};
use crate::row::Row;
use crate::site::Site;
use crate::statistics;

/// How long clients are idle before they are counted.
const IDLE: Duration = Duration::from_secs(5);
const THREADS: usize = 4;
/// Kibibytes a client that Pointsman may use, or may add to a bare server.
const TARGET: f64 = 1.5;

/// Kibibytes a client, one figure a round.
pub struct Measured {
    /// Who.
    pub name: String,
    /// The product, or none for the bare server.
    pub product: Option<Product>,
    /// The figures.
    pub rounds: Vec<f64>,
}

/// How clients come in.
#[derive(Clone, Copy)]
struct Way {
    tls: bool,
    protocol: Protocol,
}

/// What is measured.
pub struct Plan {
    /// How many clients.
    pub clients: usize,
    /// How often.
    pub rounds: u32,
    /// Whom.
    pub products: Vec<Product>,
}

impl Plan {
    /// Measures all products on `row`, and the bare server where it is about TLS or HTTP/2.
    pub fn run(
        &self,
        row: Row,
        setting: &Setting,
        site: &mut Site,
        cores: &Cores,
        mut say: impl FnMut(String),
    ) -> Outcome<Vec<Measured>> {
        let way = match row {
            Row::IdleH2 => Way { tls: true, protocol: Protocol::H2 },
            _ => Way { tls: row == Row::IdleTls, protocol: Protocol::H1 },
        };
        let mut all = Vec::new();
        for product in &self.products {
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                let proxy = Proxy::start(Variant::plain(*product), setting, site)?;
                let port = if way.tls { proxy.tls_port } else { proxy.port };
                rounds.push(
                    self.measure(port, way, || proxy.resident(), site, cores).doing(|| product.name().to_owned())?,
                );
            }
            say(format!("{}, {}: {rounds:.2?} KiB", row.title(), product.name()));
            all.push(Measured { name: product.name().to_owned(), product: Some(*product), rounds });
        }
        if way.tls {
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                let port = site.free_port()?;
                let server = start_bare(port, way.protocol, site, cores)?;
                let resident = || accounting::resident(&[server.id()]);
                rounds.push(self.measure(port, way, resident, site, cores).doing(|| "the bare server".to_owned())?);
            }
            say(format!("{}, bare server: {rounds:.2?} KiB", row.title()));
            let name = match way.protocol {
                Protocol::H1 => "bare tokio-rustls",
                Protocol::H2 => "bare h2 on tokio-rustls",
            };
            all.push(Measured { name: name.to_owned(), product: None, rounds });
        }
        Ok(all)
    }

    fn measure(
        &self,
        port: u16,
        way: Way,
        resident: impl Fn() -> Outcome<u64>,
        site: &Site,
        cores: &Cores,
    ) -> Outcome<f64> {
        let config = client::tls(way.protocol)?;
        let target = Target { port, tls: way.tls.then(|| config.clone()) };
        let source = Source { cores: &cores.load, site, tls: config };
        let row = match way.protocol {
            Protocol::H1 => Row::KeepAlive128,
            Protocol::H2 => Row::H2,
        };
        let load =
            row.load(Duration::from_secs(1)).map(|load| Load { tls: way.tls, connections: 64, streams: 1, ..load });
        let load = load.ok_or_else(|| Failure::new("a row without a load"))?;
        source.start(load, port)?.finish()?;
        clock::pause(Duration::from_secs(1))?;
        let without = resident()?;
        let sessions = open_all(&target, way.protocol, self.clients)?;
        clock::pause(IDLE)?;
        let with = resident()?;
        let lost = sessions.iter().filter(|session| !session.is_idle()).count();
        if lost > 0 {
            return Err(Failure::new(format!("{lost} of {} clients were not kept", sessions.len())));
        }
        Ok(kibibytes(with.saturating_sub(without)) / figure(self.clients))
    }
}

/// Opens `count` connections, each of which has had one answer.
fn open_all(target: &Target, protocol: Protocol, count: usize) -> Outcome<Vec<Session>> {
    thread::scope(|scope| {
        let open = |number: usize| {
            // Addresses of their own, so that the ports of one don't run out.
            let source = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + number).unwrap_or(2));
            let share = count / THREADS + usize::from(number < count % THREADS);
            let one = move |_| {
                clock::go_on()?;
                let mut session = Session::open(target, source)?;
                session.first_exchange(protocol)?;
                Ok(session)
            };
            scope.spawn(move || (0..share).map(one).collect::<Outcome<Vec<Session>>>())
        };
        let threads: Vec<_> = (0..THREADS).map(open).collect();
        let mut all = Vec::with_capacity(count);
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|_| Err(Failure::new("a thread of the client panicked")))?);
        }
        Ok(all)
    })
}

fn start_bare(port: u16, protocol: Protocol, site: &Site, cores: &Cores) -> Outcome<Child> {
    let own = std::env::current_exe().doing(|| "looking for this program".to_owned())?;
    let name = match protocol {
        Protocol::H1 => "h1",
        Protocol::H2 => "h2",
    };
    let mut child = Recipe::new(own, &cores.proxy.to_string())
        .arguments(["bare-server", name])
        .argument(port.to_string())
        .arguments([site.path("certificate.pem"), site.path("key.pem")])
        .start()?;
    let target = Target { port, tls: Some(client::tls(protocol)?) };
    clock::wait_for("an answer of the bare server", Duration::from_secs(5), || {
        child.still_runs()?;
        let answer =
            Session::open(&target, Ipv4Addr::UNSPECIFIED).and_then(|mut session| session.first_exchange(protocol));
        Ok(answer.is_ok().then_some(()))
    })?;
    Ok(child)
}

/// The table of one row.
pub fn table(row: Row, clients: usize, all: &[Measured]) -> String {
    let title = row.title();
    let mut text = format!(
        "| {title}, {clients} clients | KiB a client | least–most | target | met |\n| --- | --- | --- | --- | --- |\n"
    );
    let bare = all.iter().find(|one| one.product.is_none()).and_then(|one| statistics::median(&one.rounds));
    for one in all {
        let Some(middle) = statistics::median(&one.rounds) else { continue };
        let least = one.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = one.rounds.iter().copied().fold(0.0, f64::max);
        let judged = one.product == Some(Product::Pointsman);
        let limit = bare.unwrap_or_default() + TARGET;
        let target = if judged { format!("≤ {limit:.2}") } else { "–".to_owned() };
        let met = match judged {
            true if most <= limit => "yes",
            true => "**no**",
            false => "–",
        };
        text.push_str(&format!("| {} | {middle:.2} | {least:.2}–{most:.2} | {target} | {met} |\n", one.name));
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "memory of a machine in KiB is far below 2^52")]
fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

#[allow(clippy::cast_precision_loss, reason = "thousands of clients")]
fn figure(count: usize) -> f64 {
    count as f64
}
