//! Attempts: a server is chosen, connected to and asked, until one answers or no further attempt is safe.
//!
//! A request is sent again only where that can't make anything happen twice: any method while nothing of it was written, an
//! idempotent one while no byte of the answer has come (RFC 9110 9.2.2), within the pool's budget. How long an answer takes is
//! never a reason, until control finds that the whole server is silent and takes its requests back: the same rule holds then.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::base::error::{Blame, RetrySafety};
use crate::base::time::{self, Timestamp};
use crate::pure::cache_status;
use crate::pure::head::Fields;
use crate::pure::pool::{Tried, UpstreamProtocol};
use crate::request::buffers::Grant;
use crate::request::clock;
use crate::request::exchange::channel::{Channel, ServerEnd};
use crate::request::exchange::choice::{self, Choice};
use crate::request::exchange::decision::Forward;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::load;
use crate::request::h2_server::{H2ServerStream, Place, Target};
use crate::request::stream::{ServerStream, dial_server};
use crate::request::worker::Worker;
use crate::transport::dial::DialError;
use crate::transport::tls::TlsConnector;

/// Asks servers until one has sent the head of an answer that is to be passed on. That server is on the channel then.
///
/// # Errors
/// The last attempt's [`Failure`], where no further attempt is safe, allowed or possible.
pub async fn first_answer(channel: &mut Channel<'_>, grant: &Grant, forward: &Forward) -> Result<Choice, Failure> {
    let mut tried = Tried::NONE;
    let (mut repeats, mut moves) = (0, 0);
    loop {
        let mut choice = choice::choose(channel, forward, &tried, repeats).await?;
        let leaves = (moves < Tried::MAX).then_some(&tried);
        channel.connection.deadline.asks(choice.lease.endpoint().record.slot);
        let mut is_move = false;
        let asked = ask(channel, grant, forward, &mut choice, leaves).await;
        channel.connection.deadline.asks_nobody();
        match asked {
            Ok(()) => {
                let now = channel.connection.worker.now();
                channel.scratch.record.first_byte_came(now);
                choice.answers(channel.scratch.response.status, now);
                if let Some(orca) = forward.pool.orca {
                    load::note_head(channel, &choice, orca, now);
                }
                if forward.key.is_some() {
                    note_cache(channel, forward, &choice, now);
                }
                if !wants_another(channel, forward, repeats) {
                    return Ok(choice);
                }
            }
            Err(failure) => {
                channel.let_go();
                let is_last = !may_repeat(channel, forward, &failure, repeats);
                choice.fails(&failure, is_last);
                if is_last {
                    return Err(failure);
                }
                is_move = matches!(failure, Failure::NoStreams);
            }
        }
        tried.add(choice.lease.endpoint().record.slot);
        if is_move {
            moves += 1
        } else {
            repeats += 1
        }
        channel.rewind();
    }
}

/// Notes whether the answer came out of the server's cache, where it says.
#[inline(never)]
fn note_cache(channel: &Channel<'_>, forward: &Forward, choice: &Choice, now: Timestamp) {
    let Some(server) = &channel.server else { return };
    let fields = Fields { bytes: server.buffer.bytes(), list: &channel.scratch.response.fields };
    let Some(is_hit) = cache_status::is_hit(fields) else { return };
    channel.connection.worker.admission.snapshot(|snapshot| {
        let place = snapshot.find_again(forward.index, &forward.pool.name);
        if let Some(pool) = place.and_then(|place| snapshot.pool(place)) {
            let is_backup = choice.lease.endpoint().server.is_backup;
            let memory = if is_backup { pool.backup_memory.as_ref() } else { Some(&pool.memory) };
            if let Some(memory) = memory {
                memory.costs.note(is_hit, choice.waited(now));
            }
        }
    });
}

/// Connects to the chosen server, sends the request and waits for the head of its answer. `leaves`: where the server can't have it
/// at present, it may be given to another than those.
async fn ask(
    channel: &mut Channel<'_>,
    grant: &Grant,
    forward: &Forward,
    choice: &mut Choice,
    leaves: Option<&Tried>,
) -> Result<(), Failure> {
    let stream = connect(channel, forward, choice, leaves).await?;
    channel.begin_attempt(ServerEnd { stream, buffer: grant.buffer() }, choice.pool.timeouts);
    loop {
        match channel.answer_head(&choice.lease).await {
            // It stays where it is, and may be answered yet.
            Err(failure @ Failure::TakenBack { .. }) if !may_go_elsewhere(channel, forward, &failure, choice) => {}
            asked => return asked,
        }
    }
}

/// Whether a request that a silent server is to give back may be sent to another, which is granted with it. Without another it
/// has nowhere to go.
#[cold]
fn may_go_elsewhere(channel: &Channel<'_>, forward: &Forward, failure: &Failure, choice: &Choice) -> bool {
    let retry = &forward.pool.retry;
    let is_safe = match failure.retry_safety() {
        RetrySafety::NothingWritten => retry.on_connect,
        RetrySafety::Unanswered => retry.on_reset && channel.scratch.is_idempotent,
        RetrySafety::Never => false,
    };
    is_safe && has_other(channel, forward, choice, &Tried::NONE) && is_affordable(channel, forward, choice.repeats)
}

/// Whether the pool has another server that may be asked, and is none of those.
#[cold]
fn has_other(channel: &Channel<'_>, forward: &Forward, choice: &Choice, tried: &Tried) -> bool {
    let slot = choice.lease.endpoint().record.slot;
    channel.connection.worker.admission.snapshot(|snapshot| {
        let place = snapshot.find_again(forward.index, &forward.pool.name);
        place.and_then(|place| snapshot.pool(place)).is_some_and(|pool| pool.has_other_than(slot, tried))
    })
}

/// A connection that is there already, or a new one. The client's going away ends the wait.
async fn connect(
    channel: &mut Channel<'_>,
    forward: &Forward,
    choice: &mut Choice,
    leaves: Option<&Tried>,
) -> Result<ServerStream, Failure> {
    if let Some(stream) = kept(channel, choice) {
        choice.is_reused = true;
        return Ok(stream);
    }
    // Most requests need none of that, and so should not have to carry its room.
    Box::pin(async {
        match choice.pool.upstream.protocol {
            UpstreamProtocol::Http1 => connect_h1(channel, forward, choice).await,
            UpstreamProtocol::Http2 => connect_h2(channel, forward, choice, leaves).await,
        }
    })
    .await
}

/// An idle connection that has stayed silent, or a place on one that others use as well.
fn kept(channel: &Channel<'_>, choice: &Choice) -> Option<ServerStream> {
    let worker = &channel.connection.worker;
    let is_certain = !channel.scratch.is_idempotent;
    match choice.pool.upstream.protocol {
        UpstreamProtocol::Http1 if choice.wants_fresh => None,
        UpstreamProtocol::Http1 => {
            let owner = choice.owner(channel.connection);
            worker.idle.take(choice.lease.endpoint(), owner, worker.now(), is_certain)
        }
        UpstreamProtocol::Http2 => {
            let place = worker.h2.try_place(&target(choice, None), worker.now(), is_certain)?;
            Some(over_h2(place, choice))
        }
    }
}

fn over_h2(place: Place, choice: &Choice) -> ServerStream {
    ServerStream::H2(Box::new(H2ServerStream::new(place, choice.pool.upstream.tls.is_some())))
}

/// A place on a new connection, or on one that others open meanwhile.
async fn connect_h2(
    channel: &mut Channel<'_>,
    forward: &Forward,
    choice: &mut Choice,
    leaves: Option<&Tried>,
) -> Result<ServerStream, Failure> {
    let connections = Rc::clone(&channel.connection.worker.h2);
    let is_certain = !channel.scratch.is_idempotent;
    let connector = connector_of(&channel.connection.worker, choice)?;
    let started = time::now();
    let reach = async |channel: &mut Channel<'_>| {
        let target = target(choice, connector.as_ref());
        let wait = connections.place(target, is_certain);
        let is_closed = || leaves.filter(|_| connections.is_closed(&target, clock::now()));
        unless_lost(channel, forward, choice, wait, is_closed).await
    };
    let (place, is_reused) = with_room(channel, true, reach).await?;
    choice.is_reused = is_reused;
    if !is_reused {
        choice.lease.connected();
        channel.scratch.record.connect = Some(time::now().since(started));
    }
    Ok(over_h2(place, choice))
}

fn target<'c>(choice: &'c Choice, connector: Option<&'c TlsConnector>) -> Target<'c> {
    Target {
        endpoint: choice.lease.endpoint(),
        connector,
        upstream: &choice.pool.upstream,
        timeout: choice.pool.timeouts.connect,
    }
}

async fn connect_h1(
    channel: &mut Channel<'_>,
    forward: &Forward,
    choice: &mut Choice,
) -> Result<ServerStream, Failure> {
    let started = time::now();
    let reach = async |channel: &mut Channel<'_>| reach(channel, forward, choice).await;
    let stream = with_room(channel, false, reach).await?;
    choice.lease.connected();
    channel.scratch.record.connect = Some(time::now().since(started));
    Ok(stream)
}

/// Reaches a server. Where this machine has nothing left for that, idle connections make room, and it is tried once more.
/// `is_shared`: others wait for the same connection, whose socket is made later, and one of them has made room for all.
async fn with_room<T>(
    channel: &mut Channel<'_>,
    is_shared: bool,
    mut reach: impl AsyncFnMut(&mut Channel<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match reach(channel).await {
        Err(Failure::Connect(DialError::Exhausted(_))) if has_made_room(channel) || is_shared => {
            let worker = Rc::clone(&channel.connection.worker);
            // A client that is accepted next must not take what becomes free before there is a socket.
            let mut room = Some(worker.shared.connections.hold());
            // Those of HTTP/2 end in tasks of their own.
            tokio::task::yield_now().await;
            let mut reached = pin!(reach(channel));
            poll_fn(|context| {
                let reached = reached.as_mut().poll(context);
                if !is_shared {
                    room = None;
                }
                reached
            })
            .await
        }
        reached => reached,
    }
}

/// Dials, until the client goes away or the server is given up.
async fn reach(channel: &mut Channel<'_>, forward: &Forward, choice: &Choice) -> Result<ServerStream, Failure> {
    let connector = connector_of(&channel.connection.worker, choice)?;
    let header = choice.pool.upstream.proxy_protocol.map(|version| (version, channel.connection.proxy_source()));
    let (endpoint, timeout) = (choice.lease.endpoint(), choice.pool.timeouts.connect);
    let dial = dial_server(endpoint, connector.as_ref(), header, timeout);
    unless_lost(channel, forward, choice, dial, || None).await
}

/// How TLS is spoken with the servers of the pool; `None`: it is not.
fn connector_of(worker: &Worker, choice: &Choice) -> Result<Option<TlsConnector>, DialError> {
    if choice.pool.upstream.tls.is_none() {
        return Ok(None);
    }
    // A pool that speaks TLS is never spoken to without.
    let missing = || DialError::Handshake(std::io::ErrorKind::NotFound.into());
    worker.connectors.get(&choice.pool.name).cloned().ok_or_else(missing).map(Some)
}

/// Waits, until the client goes away, the server is given up for silent, or takes nothing at present: then `is_closed` says which
/// servers were tried, and the request goes to another, where there is one.
async fn unless_lost<'t, T>(
    channel: &mut Channel<'_>,
    forward: &Forward,
    choice: &Choice,
    wait: impl Future<Output = Result<T, DialError>>,
    is_closed: impl Fn() -> Option<&'t Tried>,
) -> Result<T, Failure> {
    let mut wait = pin!(wait);
    poll_fn(|context| {
        #[cfg(test)]
        crate::request::tests::faults::step();
        if let Poll::Ready(result) = wait.as_mut().poll(context) {
            return Poll::Ready(result.map_err(Failure::from));
        }
        let deadline = &channel.connection.deadline;
        deadline.listen(context);
        if deadline.is_taken_back() {
            let failure = Failure::TakenBack { is_written: false };
            if may_go_elsewhere(channel, forward, &failure, choice) {
                return Poll::Ready(Err(failure));
            }
        }
        // Nothing has been written: to ask another is no repetition.
        if is_closed().is_some_and(|tried| has_other(channel, forward, choice, tried)) {
            return Poll::Ready(Err(Failure::NoStreams));
        }
        channel.poll_client_gone(context).map(Err)
    })
    .await
}

/// Closes the worker's idle connections to servers, where there are any: each holds a descriptor and a port.
fn has_made_room(channel: &Channel<'_>) -> bool {
    let worker = &channel.connection.worker;
    let has_any = !worker.idle.is_empty();
    worker.idle.clear();
    worker.h2.clear_idle() || has_any
}

/// Whether an answer is one that the pool asks again for, and may be.
fn wants_another(channel: &Channel<'_>, forward: &Forward, repeats: u32) -> bool {
    let retry = &forward.pool.retry;
    retry.on_status.contains(&channel.scratch.response.status)
        && channel.scratch.is_idempotent
        && is_affordable(channel, forward, repeats)
}

fn may_repeat(channel: &Channel<'_>, forward: &Forward, failure: &Failure, repeats: u32) -> bool {
    if matches!(failure, Failure::TakenBack { .. } | Failure::NoStreams) {
        // It was granted before the server lost it, or could not have it.
        return true;
    }
    let retry = &forward.pool.retry;
    let is_safe = match failure.retry_safety() {
        RetrySafety::NothingWritten => {
            if matches!(failure, Failure::Connect(_)) {
                retry.on_connect
            } else {
                retry.on_reset
            }
        }
        RetrySafety::Unanswered => retry.on_reset && channel.scratch.is_idempotent,
        RetrySafety::Never => false,
    };
    // What this machine lacks, it lacks for the next server too; a server that is full says nothing of the next.
    let may_help =
        failure.blame() != Blame::Us || matches!(failure, Failure::Connect(DialError::Full | DialError::Moved));
    is_safe && may_help && is_affordable(channel, forward, repeats)
}

/// Whether the count and the budget allow another attempt, and the request can be sent from its start.
fn is_affordable(channel: &Channel<'_>, forward: &Forward, repeats: u32) -> bool {
    repeats < forward.pool.retry.count
        && channel.has_start()
        && forward.record.budget.try_spend_retry(channel.connection.worker.now())
}
