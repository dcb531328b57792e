//! The choice of a server for one attempt, and what becomes of it: its lease, its outcome, its connection.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Blame;
use crate::base::time::Timestamp;
use crate::pure::pool::{Pool, Tried};
use crate::pure::refusal::Refusal;
use crate::pure::trace::Trace;
use crate::request::connection::Connection;
use crate::request::exchange::channel::Channel;
use crate::request::exchange::decision::Forward;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::queueing;
use crate::request::stream::ServerStream;
use crate::request::upstream::Owner;
use crate::shared::choices::Own;
use crate::shared::choose::Ask;
use crate::shared::lease::{Admitted, Lease, PoolRef, Refused};
use crate::shared::outcome::Outcome;
use crate::transport::dial::DialError;

/// A server that was chosen, and the place that was taken there.
#[derive(Debug)]
pub struct Choice {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The place at the server.
    pub lease: Lease,
    /// Whether only a connection of its own will do: the server was tried before.
    pub wants_fresh: bool,
    /// How often the request was sent before.
    pub repeats: u32,
    /// Whether the connection had been idle: its reset before an answer says that the server had closed it meanwhile.
    pub is_reused: bool,
    /// The requests that the server had in flight then, this one among them, where the pool's scheduler asks how fast servers
    /// answer; elsewhere 0.
    active: u32,
    chosen: Timestamp,
}

/// Chooses the server that the client belongs to, or one that was not tried, where there is one, and takes a place there; it may
/// have to wait for one.
///
/// # Errors
/// [`Failure::Refused`] where there is none, and what can end a wait.
pub async fn choose(
    channel: &mut Channel<'_>,
    forward: &Forward,
    tried: &Tried,
    repeats: u32,
) -> Result<Choice, Failure> {
    let worker = &channel.connection.worker;
    let mut now = worker.now();
    if tried.is_empty() {
        forward.record.budget.note_request(now);
    }
    let lease = match place_at_once(channel, forward, tried, now) {
        AtOnce::Settled(lease) => lease.map_err(refusal_of)?,
        AtOnce::Later(own) => {
            let lease = Box::pin(place(channel, forward, tried, own)).await?;
            now = channel.connection.worker.now();
            lease
        }
    };
    let endpoint = lease.endpoint();
    channel.scratch.record.set_server(&endpoint.server);
    if repeats > 0 {
        endpoint.record.count_retry();
    }
    let wants_fresh = tried.contains(endpoint.record.slot);
    let active = if endpoint.is_measured { endpoint.record.load.active() } else { 0 };
    Ok(Choice { pool: Arc::clone(&forward.pool), lease, wants_fresh, repeats, is_reused: false, active, chosen: now })
}

/// What comes of a choice without a wait.
enum AtOnce {
    /// There is a place, or none.
    Settled(Result<Lease, Refused>),
    /// It may have to wait, or the client belongs to another server since: whom it belongs to.
    Later(Option<Own>),
}

/// A place in a pool without a queue, where no other request of the same client has made another choice meanwhile.
#[inline]
fn place_at_once(channel: &mut Channel<'_>, forward: &Forward, tried: &Tried, now: Timestamp) -> AtOnce {
    let worker = &channel.connection.worker;
    let persisting = channel.scratch.persisting.as_mut();
    let own = persisting.as_ref().and_then(|persisting| persisting.own(now));
    let pool = PoolRef { index: forward.index, name: &forward.pool.name };
    let ask = Ask { key: forward.key, own: own.map(|own| own.slot), tried, now };
    match (worker.admission.place_at_once(pool, &ask), persisting) {
        (None, _) => AtOnce::Later(own),
        (Some(Ok(lease)), Some(persisting)) => match persisting.settle(worker, &forward.pool, own, &lease, now) {
            Ok(()) => AtOnce::Settled(Ok(lease)),
            Err(other) => {
                lease.withdraw();
                AtOnce::Later(Some(other))
            }
        },
        (Some(lease), _) => AtOnce::Settled(lease),
    }
}

/// A place in a pool whose requests wait for places, or for a client whose server others have chosen.
#[cold]
async fn place(
    channel: &mut Channel<'_>,
    forward: &Forward,
    tried: &Tried,
    mut own: Option<Own>,
) -> Result<Lease, Failure> {
    let pool = PoolRef { index: forward.index, name: &forward.pool.name };
    loop {
        let worker = &channel.connection.worker;
        let ask = Ask { key: forward.key, own: own.map(|own| own.slot), tried, now: worker.now() };
        let lease = match worker.admission.admit(pool, &ask, &mut Trace::off()).map_err(refusal_of)? {
            Admitted::Place(lease) => lease,
            Admitted::Waits(wait) => queueing::wait(channel, wait, pool, &ask).await?,
        };
        let Some(persisting) = &mut channel.scratch.persisting else { return Ok(lease) };
        let worker = &channel.connection.worker;
        match persisting.settle(worker, &forward.pool, own, &lease, worker.now()) {
            Ok(()) => return Ok(lease),
            Err(other) => own = Some(other),
        }
        lease.withdraw();
    }
}

/// How a request is refused that gets no place.
pub const fn refusal_of(refused: Refused) -> Refusal {
    match refused {
        Refused::AllFull => Refusal::PoolFull,
        Refused::NoneAvailable | Refused::PoolGone => Refusal::NoServer,
        Refused::QueueFull => Refusal::QueueFull,
        Refused::QueueTimedOut => Refusal::QueueTimeout,
    }
}

impl Choice {
    /// The server's answer has begun.
    pub fn answers(&mut self, status: u16, now: Timestamp) {
        let nanos = now.as_nanos().saturating_sub(self.chosen.as_nanos());
        let latency = Duration::from_nanos(nanos);
        let outcome = if status >= 400 && self.pool.is_failure(status) {
            Outcome::Failing { status, latency }
        } else {
            Outcome::Answered { status, latency }
        };
        self.lease.answers(outcome, now, nanos);
        if self.active > 0 {
            self.lease.endpoint().record.load.pace.answers(now, latency, self.active);
        }
    }

    /// How long the server has had the request.
    pub fn waited(&self, now: Timestamp) -> Duration {
        now.since(self.chosen)
    }

    /// The attempt failed before the answer; `is_last`: there will be no other.
    pub fn fails(&mut self, failure: &Failure, is_last: bool) {
        // That a server ends a connection that is idle is its right, and happens while a request is on its way; so is that it
        // takes no more on one that it is about to end, or than it can do.
        let is_ordinary = match failure {
            Failure::Unprocessed => true,
            Failure::Reset { .. } => self.is_reused,
            Failure::StreamReset(reset) => reset.may_be_of_request(),
            _ => false,
        };
        if is_last || !is_ordinary && failure.blame() == Blame::Server {
            self.say(failure);
        }
        self.lease.outcome(if is_ordinary { Outcome::OwnFault } else { outcome_of(failure) });
    }

    /// The exchange is over: as it should be, or by a failure after the answer's head.
    pub fn ends(&mut self, channel: &Channel<'_>, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            self.say(failure);
            self.lease.outcome(outcome_of(failure));
        }
        let (up, down) = (channel.scratch.upload.passed(), channel.scratch.download.passed());
        self.lease.endpoint().record.count_bytes(up, down);
    }

    /// Tells operators of a failure that is not the client's. The access log tells of the request; this tells of the cause, which
    /// may be the same for thousands.
    #[cold]
    fn say(&self, failure: &Failure) {
        let record = &self.lease.endpoint().record;
        // What this machine lacks is told where it lacks it.
        let is_news = match failure {
            Failure::Stopped | Failure::NoMemory | Failure::Unmappable | Failure::Connect(DialError::Exhausted(_)) => {
                false
            }
            failure => failure.blame() != Blame::Client,
        };
        if is_news && record.said.is_due() {
            tracing::warn!("a request to the server {}/{} failed: {failure}", record.id.pool, record.id.server);
        }
    }

    /// Keeps the server's connection for another request.
    pub fn keep(&self, connection: &Connection, stream: ServerStream) {
        let endpoint = self.lease.endpoint();
        let upstream = &self.pool.upstream;
        let (now, max) = (connection.worker.now(), upstream.idle_max as usize);
        connection.worker.idle.put(endpoint, self.owner(connection), stream, now, max, upstream.idle_timeout);
    }

    /// Whom an idle connection must be for: one that began with the client's name is nobody else's.
    pub fn owner(&self, connection: &Connection) -> Option<Owner> {
        self.pool.upstream.proxy_protocol.map(|_| connection.owner())
    }
}

/// What control is told of a failure. A client's fault never counts against the server.
fn outcome_of(failure: &Failure) -> Outcome {
    match failure {
        Failure::Connect(DialError::TimedOut) => Outcome::ConnectTimeout,
        Failure::Connect(error) if error.blame() == Blame::Server => Outcome::ConnectError,
        Failure::Reset { .. }
        | Failure::StreamReset(_)
        | Failure::TlsAlert(_)
        | Failure::Truncated
        | Failure::CutByReset(_) => Outcome::Reset,
        Failure::ResponseTimeout => Outcome::ResponseTimeout,
        Failure::TakenBack { .. } => Outcome::Silent,
        Failure::Response(_) | Failure::BrokenH2 | Failure::UnwantedUpgrade | Failure::TooManyInterim => {
            Outcome::Malformed
        }
        // It has answered, and need not know the protocol.
        Failure::NoUpgrade => Outcome::ClientAborted,
        failure if failure.blame() == Blame::Client => Outcome::ClientAborted,
        _ => Outcome::OwnFault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::h2_reset::H2Reset;
    use crate::pure::config::load_text;
    use crate::pure::rule::compile::RuleSet;
    use crate::shared::counters::ProcessCounters;
    use crate::shared::snapshot::SnapshotStore;

    /// How often that failure speaks against the server.
    fn failures(is_reused: bool, failure: &Failure) -> u64 {
        let text = "listen \"127.0.0.1:80\"\npool \"a\" { server \"s\" \"127.0.0.1:1\" }\nrule use=\"a\"";
        let config = Arc::new(load_text(text).unwrap());
        let rules = Arc::new(RuleSet::compile(config.rules.clone()).unwrap());
        let counters = Arc::new(ProcessCounters::default());
        let snapshot = SnapshotStore::new(config, rules, counters).load();
        let pool = &snapshot.pools[0];
        let lease = Lease::take(&pool.endpoints[0], None).unwrap();
        let pool = Arc::clone(&pool.pool);
        let mut choice =
            Choice { pool, lease, wants_fresh: false, repeats: 0, is_reused, active: 0, chosen: Timestamp::default() };
        choice.fails(failure, false);
        drop(choice);
        snapshot.pools[0].endpoints[0].record.ended().failed
    }

    #[test]
    fn a_server_that_ends_an_idle_connection_while_a_request_comes_is_not_blamed() {
        let reset = Failure::Reset { is_written: true };
        assert_eq!((failures(true, &reset), failures(false, &reset)), (0, 1));
        let stream_reset = |code| failures(true, &Failure::StreamReset(code));
        assert_eq!((stream_reset(H2Reset::INTERNAL_ERROR), stream_reset(H2Reset::CANCEL)), (1, 0));
        let (timeout, cut) = (Failure::ResponseTimeout, Failure::Truncated);
        assert_eq!((failures(true, &timeout), failures(true, &cut)), (1, 1));
    }
}
