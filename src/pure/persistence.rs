//! Persistence: the choice of a server that outlives a request. What rule files say of it, what a request shows of whom its
//! client belongs to, and when a choice is made anew.
//!
//! A pool may have several forms. They are asked in one order, whatever the order in the file: the cookie, which says itself
//! where its client belongs, then the application's cookie, the field, the TLS session and last the address, each surer of the
//! client than the next. The first that knows the client decides; those before it, which did not, learn from it.
//!
//! It refuses to choose a server, and to keep a table: [`crate::shared::choices`] has that.

pub mod cookie;
pub mod opened;
pub mod token;

use std::net::IpAddr;
use std::time::Duration;

use crate::base::id::ServerSlot;
use crate::base::time::UnixTime;
use crate::pure::head::Fields;
use crate::pure::pool::{Candidate, Server, State};
use crate::pure::rendezvous::{Wait, shortest};
use crate::pure::rule::hash::hash;
use token::{Content, PoolTag, ServerTag};

/// How a pool keeps clients with their servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// By a cookie of ours.
    pub cookie: Option<CookieForm>,
    /// By a cookie of the application's.
    pub learn: Option<NamedForm>,
    /// By a field of the request.
    pub header: Option<NamedForm>,
    /// By the TLS session, each deviation kept for so long.
    pub tls_session: Option<Duration>,
    /// By the client's address.
    pub source: Option<SourceForm>,
    /// The pool, as tokens name it.
    pub pool: PoolTag,
    /// The pool's servers, backups last, as tokens name them.
    pub servers: Vec<ServerTag>,
}

impl Persistence {
    /// None yet, for the pool of that name and these servers.
    pub fn new(pool: &str, servers: &[std::sync::Arc<Server>]) -> Self {
        let tags = |is_backup: bool| {
            let of_kind = servers.iter().filter(move |server| server.is_backup == is_backup);
            of_kind.map(|server| ServerTag::of(&server.id.server))
        };
        let servers = tags(false).chain(tags(true)).collect();
        let pool = PoolTag::of(pool);
        Self { cookie: None, learn: None, header: None, tls_session: None, source: None, pool, servers }
    }

    /// Whether its choices outlive the process only with a secret.
    pub const fn needs_secret(&self) -> bool {
        self.cookie.is_some() || self.tls_session.is_some()
    }
}

/// `persist cookie=".."`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieForm {
    /// The cookie's name.
    pub name: String,
    /// How long a token holds; it is renewed at half its life.
    pub ttl: Duration,
    /// Whether servers do not get to see it.
    pub hide: bool,
    /// The Domain attribute.
    pub domain: Option<String>,
    /// The Path attribute.
    pub path: String,
    /// The SameSite attribute.
    pub same_site: SameSite,
    /// Whether there is a Secure attribute; `None`: where the client speaks TLS.
    pub secure: Option<bool>,
    /// Whether there is an HttpOnly attribute.
    pub http_only: bool,
}

impl CookieForm {
    /// The cookie of that name with all defaults.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ttl: Duration::from_secs(8 * 3600),
            hide: false,
            domain: None,
            path: "/".to_owned(),
            same_site: SameSite::Lax,
            secure: None,
            http_only: true,
        }
    }
}

/// Which requests of other sites send a cookie along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// None.
    Strict,
    /// Those that lead a person here.
    Lax,
    /// All.
    None,
}

/// `persist learn=".."` and `persist header=".."`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedForm {
    /// The name of the cookie, or of the field.
    pub name: String,
    /// How long a choice is kept that is not asked for.
    pub ttl: Duration,
}

/// `persist source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceForm {
    /// Bits of an IPv4 address that count.
    pub mask: u8,
    /// Bits of an IPv6 address that count.
    pub mask6: u8,
    /// How long a choice is kept that is not asked for.
    pub ttl: Duration,
}

/// A TLS session's identity: random, made at its first handshake.
pub type SessionIdentity = [u8; 16];

/// What tells who a client is, surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Our cookie.
    Cookie,
    /// The application's cookie.
    Learn,
    /// A field.
    Header,
    /// The TLS session.
    TlsSession,
    /// The address.
    Source,
}

impl Form {
    /// The forms that have a table.
    pub const TABLED: [Self; 4] = [Self::Learn, Self::Header, Self::TlsSession, Self::Source];
}

/// A client as a table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The hash of what it showed, under a secret seed.
    pub hash: u64,
    /// How long its choice is kept that is not asked for.
    pub ttl: Duration,
}

/// What a request shows of whom its client belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The server that our cookie names, and whether the cookie is past half its life.
    pub cookie: Option<(ServerSlot, bool)>,
    /// The client for each of [`Form::TABLED`].
    pub keys: [Option<Key>; 4],
    /// Where the client of a TLS session belongs as long as no table says otherwise.
    pub session_home: Option<ServerSlot>,
}

impl Claim {
    /// The client as the form's table knows it.
    pub fn key(&self, form: Form) -> Option<Key> {
        let place = Form::TABLED.iter().position(|tabled| *tabled == form)?;
        self.keys.get(place).copied().flatten()
    }
}

/// A request, as far as persistence looks at it.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its fields.
    pub fields: Fields<'a>,
    /// Its path as sent.
    pub raw_path: &'a [u8],
    /// Its client's address.
    pub client: IpAddr,
    /// The identity of its TLS session.
    pub session: Option<SessionIdentity>,
}

/// The most cookies of our name that are looked at: two paths or domains may have one each.
const COOKIES_MAX: usize = 4;

/// Reads what a request shows. `candidates` are the pool's servers; `open` opens a token, `seed` is secret.
pub fn read_claim(
    persistence: &Persistence,
    shown: &Shown<'_>,
    candidates: &[Candidate],
    now: UnixTime,
    seed: u64,
    open: impl Fn(&[u8]) -> Option<Content>,
) -> Claim {
    let cookie = persistence.cookie.as_ref().and_then(|form| {
        let mut tokens = cookie::values(shown.fields, &form.name).take(COOKIES_MAX);
        tokens.find_map(|token| {
            let content = open(token)?;
            let age = content.age(now, form.ttl)?;
            Some((slot_of(persistence, candidates, content.server)?, age > form.ttl / 2))
        })
    });
    let key = |form: Form, value: &[u8], ttl| Some(Key { hash: hash(value, seed ^ (form as u64 + 1)), ttl });
    let learned = persistence.learn.as_ref().and_then(|form| {
        let value = cookie::values(shown.fields, &form.name).find(|value| !value.is_empty());
        key(Form::Learn, value.or_else(|| cookie::path_parameter(shown.raw_path, &form.name))?, form.ttl)
    });
    let header = persistence
        .header
        .as_ref()
        .and_then(|form| key(Form::Header, shown.fields.named(&form.name).find(|value| !value.is_empty())?, form.ttl));
    let session = persistence.tls_session.and_then(|ttl| key(Form::TlsSession, &shown.session?, ttl));
    let source =
        persistence.source.and_then(|form| key(Form::Source, network_of(shown.client, form).as_slice(), form.ttl));
    let home =
        persistence.tls_session.and(shown.session).and_then(|identity| home_of(persistence, &identity, candidates));
    Claim { cookie, keys: [learned, header, session, source], session_home: home }
}

/// The hash by which a table knows the client to whom an answer gave this cookie of the application's.
pub fn learned_key(form: &NamedForm, value: &[u8], seed: u64) -> Key {
    Key { hash: hash(value, seed ^ (Form::Learn as u64 + 1)), ttl: form.ttl }
}

/// The server of that name among the pool's.
fn slot_of(persistence: &Persistence, candidates: &[Candidate], server: ServerTag) -> Option<ServerSlot> {
    let place = persistence.servers.iter().position(|known| *known == server)?;
    // Candidates stand in the same order; where they ever should not, names decide.
    let is_it = |candidate: &&Candidate| ServerTag::of(&candidate.server.id.server) == server;
    let found = candidates.get(place).filter(is_it).or_else(|| candidates.iter().find(is_it));
    found.map(|candidate| candidate.slot)
}

/// The network that an address is of, in bytes: as many bits as the form counts, then zeros.
fn network_of(client: IpAddr, form: SourceForm) -> Network {
    match client.to_canonical() {
        IpAddr::V4(address) => {
            let kept = u32::MAX.checked_shl(32_u32.saturating_sub(form.mask.into())).unwrap_or(0);
            Network { bytes: u128::from(address.to_bits() & kept).to_be_bytes(), is_v6: false }
        }
        IpAddr::V6(address) => {
            let kept = u128::MAX.checked_shl(128_u32.saturating_sub(form.mask6.into())).unwrap_or(0);
            Network { bytes: (address.to_bits() & kept).to_be_bytes(), is_v6: true }
        }
    }
}

struct Network {
    bytes: [u8; 16],
    is_v6: bool,
}

impl Network {
    /// Four bytes or sixteen, so that no address of one kind is one of the other.
    fn as_slice(&self) -> &[u8] {
        self.bytes.get(if self.is_v6 { 0 } else { 12 }..).unwrap_or_default()
    }
}

/// Where the client of a TLS session belongs: weighted rendezvous hashing (Schindelhauer, Schomaker 2005) of its identity over
/// the servers by name and configured weight, so that all nodes agree without talking. Backups are home where there is nobody
/// else, and a server of weight 0 is nobody's: where a restart sets its weight to 0, the clients of its TLS sessions move.
fn home_of(persistence: &Persistence, identity: &SessionIdentity, candidates: &[Candidate]) -> Option<ServerSlot> {
    let key = hash(identity, 0);
    let has_regular = candidates.iter().any(|candidate| !candidate.server.is_backup);
    // Names and candidates of one pool stand in the same order.
    let named = persistence.servers.iter().zip(candidates);
    let homes = named.filter(|(_, candidate)| !(has_regular && candidate.server.is_backup));
    shortest(homes.map(|(name, candidate)| (candidate.slot, Wait::of(key, name.0, candidate.server.weight))))
}

/// Whether a client whose own server is in this state, and did not get its request, belongs to another from now on; `None`:
/// the server is no longer configured. Where only this request is served elsewhere, the choice is kept.
pub const fn is_moved(own: Option<State>) -> bool {
    match own {
        None | Some(State::Down | State::Maintenance) => true,
        Some(State::Up | State::Recovering | State::Suspect { .. } | State::Drained) => false,
    }
}

#[cfg(test)]
mod tests;
