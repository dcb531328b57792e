//! The clients of a soak: they draw by lot what they do next, check it, and now and then break off in the middle.
//!
//! What breaks off by a client's own will is counted as such; every other exchange must go well.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use super::exchanges::{self, Kind};
use super::link::{Door, Link, Sender, Way};
use crate::client;
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;
use crate::statistics::Numbers;

/// Exchanges that one after the other may use a connection.
const EXCHANGES: usize = 40;
/// Of an HTTP/2 connection, at a time.
const STREAMS: usize = 4;
/// An exchange that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest pause of a client between two exchanges, in microseconds: it bounds the load.
const PAUSE_MAX: usize = 8_000;
/// An abort comes within so many microseconds.
const ABORT_MAX: usize = 12_000;
/// Errors that are kept to be shown.
const SHOWN: usize = 20;

/// What has happened.
#[derive(Default)]
pub struct Tally {
    /// Exchanges that went well.
    pub done: BTreeMap<(Kind, Way), u64>,
    /// Exchanges that the client broke off.
    pub aborted: BTreeMap<Way, u64>,
    /// How many went wrong.
    pub errors: u64,
    /// The first of those.
    pub shown: Vec<String>,
}

/// What all clients share.
pub struct Clients {
    /// Whom they talk to.
    pub door: Door,
    /// From here on nothing new begins.
    pub is_over: AtomicBool,
    /// What has happened so far.
    pub tally: Mutex<Tally>,
}

impl Clients {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && !clock::is_interrupted()
    }

    fn with_tally(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn note(&self, way: Way, what: &str, outcome: Outcome<()>) {
        let Err(failure) = outcome else { return };
        self.with_tally(|tally| {
            tally.errors += 1;
            if tally.shown.len() < SHOWN {
                tally.shown.push(format!("{}, {what}: {failure}", way.name()));
            }
        });
    }
}

fn draw_kind(protocol: Protocol, numbers: &mut Numbers) -> Kind {
    let kinds = Kind::of(protocol);
    kinds.get(numbers.below(kinds.len())).copied().unwrap_or(Kind::Get)
}

/// The first part of the path says which server answers.
fn draw_route(numbers: &mut Numbers) -> &'static str {
    if numbers.below(2) == 0 { "h1" } else { "h2c" }
}

/// Runs `each` clients of every way until it is over, and returns when the last exchange has ended.
pub async fn run(clients: &Arc<Clients>, each: usize, seed: u64) {
    let mut tasks = JoinSet::new();
    for way in Way::ALL {
        for number in 0..each as u64 {
            let numbers = Numbers::new(seed ^ (way as u64) << 32 ^ number << 40);
            tasks.spawn(client(clients.clone(), way, numbers));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        clients.note(Way::Http1, "a client", ended.doing(|| "it panicked".to_owned()));
    }
}

async fn client(clients: Arc<Clients>, way: Way, mut numbers: Numbers) {
    while clients.goes_on() {
        match numbers.below(10) {
            0 => cut_head(&clients, way, &mut numbers).await,
            1 => break_connection(&clients, way, &mut numbers).await,
            _ => connection(&clients, way, &mut numbers).await,
        }
    }
}

/// Some exchanges over a connection, then its end.
async fn connection(clients: &Arc<Clients>, way: Way, numbers: &mut Numbers) {
    let link = match Link::open(&clients.door, way).await {
        Ok(link) => link,
        Err(failure) => return clients.note(way, "connecting", Err(failure)),
    };
    let mut tasks = JoinSet::new();
    while let Some(sender) = link.sender.another().filter(|_| tasks.len() < STREAMS) {
        let numbers = Numbers::new(numbers.below(u32::MAX as usize) as u64);
        tasks.spawn(streams(clients.clone(), way, sender, numbers));
    }
    if tasks.is_empty() {
        return in_turn(clients, way, link, numbers).await;
    }
    while let Some(ended) = tasks.join_next().await {
        clients.note(way, "a stream", ended.doing(|| "it panicked".to_owned()));
    }
}

/// Exchanges of one HTTP/1.1 connection.
async fn in_turn(clients: &Clients, way: Way, mut link: Link, numbers: &mut Numbers) {
    for _ in 0..EXCHANGES {
        if !clients.goes_on() || link.sender.is_closed() {
            return;
        }
        let kind = draw_kind(Protocol::H1, numbers);
        let went_well = checked(clients, kind, way, &mut link.sender, numbers).await;
        if !went_well {
            return;
        }
        if !kind.keeps_connection() {
            return clients.note(way, kind.name(), link.ended().await);
        }
        rest(numbers).await;
    }
}

/// Exchanges of one HTTP/2 client, beside others on the same connection; some are reset in the middle.
async fn streams(clients: Arc<Clients>, way: Way, mut sender: Sender, mut numbers: Numbers) {
    for _ in 0..EXCHANGES {
        if !clients.goes_on() {
            return;
        }
        let kind = draw_kind(Protocol::H2, &mut numbers);
        if numbers.below(12) == 0 {
            broken_off(&clients, kind, way, &mut sender, &mut numbers).await;
        } else {
            checked(&clients, kind, way, &mut sender, &mut numbers).await;
        }
        rest(&mut numbers).await;
    }
}

/// An exchange that must go well; whether it did.
async fn checked(clients: &Clients, kind: Kind, way: Way, sender: &mut Sender, numbers: &mut Numbers) -> bool {
    let route = draw_route(numbers);
    let exchange = exchanges::exchange(kind, way.protocol(), sender, route, numbers);
    let outcome = tokio::time::timeout(PATIENCE, exchange).await;
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::new(format!("not within {PATIENCE:?}"))));
    let went_well = outcome.is_ok();
    if went_well {
        clients.with_tally(|tally| *tally.done.entry((kind, way)).or_default() += 1);
    }
    clients.note(way, &format!("{} from {route}", kind.name()), outcome);
    went_well
}

/// An exchange that is left after a while. What it had seen until then must have been right.
async fn broken_off(clients: &Clients, kind: Kind, way: Way, sender: &mut Sender, numbers: &mut Numbers) {
    let (route, until) = (draw_route(numbers), Duration::from_micros(numbers.below(ABORT_MAX) as u64));
    let exchange = exchanges::exchange(kind, way.protocol(), sender, route, numbers);
    match tokio::time::timeout(until, exchange).await {
        Ok(Ok(())) => clients.with_tally(|tally| *tally.done.entry((kind, way)).or_default() += 1),
        Ok(outcome) => clients.note(way, &format!("{} from {route}", kind.name()), outcome),
        Err(_) => clients.with_tally(|tally| *tally.aborted.entry(way).or_default() += 1),
    }
}

/// A connection of its own that is broken in the middle of an exchange.
async fn break_connection(clients: &Clients, way: Way, numbers: &mut Numbers) {
    match Link::open(&clients.door, way).await {
        Ok(mut link) => {
            let kind = draw_kind(way.protocol(), numbers);
            broken_off(clients, kind, way, &mut link.sender, numbers).await;
        }
        Err(failure) => clients.note(way, "connecting", Err(failure)),
    }
}

/// A connection that ends, or is reset, somewhere in its first request; over TLS in the handshake.
async fn cut_head(clients: &Clients, way: Way, numbers: &mut Numbers) {
    let mut stream = match clients.door.connect(way).await {
        Ok(stream) => stream,
        Err(failure) => return clients.note(way, "connecting", Err(failure)),
    };
    let bytes: &[u8] = match way {
        Way::Http1 => client::KEEP,
        Way::H2c => client::PRIOR,
        // The record of a ClientHello that never comes whole.
        Way::Http1Tls | Way::Http2Tls => b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03",
    };
    let part = bytes.get(..numbers.below(bytes.len())).unwrap_or_default();
    // The proxy may be the quicker one: it owes nothing to such a client.
    let _ = stream.write_all(part).await;
    if numbers.below(2) == 0 {
        let _ = stream.set_zero_linger();
    }
    drop(stream);
    clients.with_tally(|tally| *tally.aborted.entry(way).or_default() += 1);
    rest(numbers).await;
}

async fn rest(numbers: &mut Numbers) {
    tokio::time::sleep(Duration::from_micros(numbers.below(PAUSE_MAX) as u64)).await;
}
