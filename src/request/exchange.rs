//! An exchange: one request and its answer, top to bottom. It is the only place that knows the order
//! `head → rule → persistence → scheduler → upstream → forward → account`.

pub mod answer;
pub mod attempt;
pub mod channel;
pub mod choice;
pub mod decision;
pub mod failure;
pub mod flow;
pub mod head;
pub mod load;
pub mod persistence;
pub mod queueing;
pub mod scratch;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::base::error::Blame;
use crate::pure::forwarding::ClientConnection;
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::Version;
use crate::pure::identity::ClientIdentity;
use crate::pure::refusal::Refusal;
use crate::pure::rule::{Action, Rule};
use crate::request::account::Source;
use crate::request::buffers::{Buffer, Grant};
use crate::request::connection::{Connection, Next};
use crate::request::exchange::answer::OwnAnswer;
use crate::request::exchange::channel::Channel;
use crate::request::exchange::choice::Choice;
use crate::request::exchange::decision::{Decision, Forward};
use crate::request::exchange::failure::Failure;
use crate::request::exchange::flow::Framing;
use crate::request::exchange::head::HeadRead;
use crate::request::exchange::scratch::Scratch;
use crate::request::listener::Listener;
use crate::request::stream::{ClientStream, Stream as _};
use crate::request::tunnel;
use crate::request::worker::Worker;

/// How long a connection may keep its buffer and its exchange's memory for the next request: to give all back and take it
/// again costs a busy connection a tenth of its request.
const WARM: Duration = Duration::from_millis(500);

/// Serves the request that has begun to arrive, and those behind it that came with it.
pub async fn serve(connection: &mut Connection) -> Next {
    let Some(grant) = admit(connection).await else { return Box::pin(turn_away(connection)).await };
    let mut buffer = grant.buffer();
    let mut held = Held::new(connection);
    loop {
        let Some(scratch) = &mut held.scratch else { break Next::Close };
        let next = exchange(connection, &grant, &mut buffer, scratch).await;
        if next != Next::Idle || connection.is_stream() {
            break next;
        }
        scratch.clear();
        if buffer.is_empty()
            && let Some(end) = stay_warm(connection, &mut buffer).await
        {
            break end;
        }
    }
}

/// Scratch memory while it is used, which then goes back to the worker. An exchange that is cut off in its middle, by a
/// panic or with its worker, is accounted for here.
struct Held {
    scratch: Option<Box<Scratch>>,
    worker: Rc<Worker>,
    listener: Arc<Listener>,
    peer: SocketAddr,
    tls: Option<&'static str>,
    identity: Option<Arc<ClientIdentity>>,
    is_http2: bool,
}

impl Held {
    fn new(connection: &Connection) -> Self {
        Self {
            scratch: Some(connection.worker.take_scratch()),
            worker: Rc::clone(&connection.worker),
            listener: Arc::clone(&connection.listener),
            peer: connection.peer,
            tls: connection.stream.tls_version(),
            identity: connection.stream.identity().map(Arc::clone),
            is_http2: connection.is_stream(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut scratch) = self.scratch.take() else { return };
        if scratch.record.is_open() {
            if std::thread::panicking() {
                scratch.record.reason = Some("panic");
            } else {
                scratch.record.reason = Some("stopped");
            }
            let source = Source {
                worker: &self.worker,
                listener: &self.listener,
                peer: self.peer,
                tls: self.tls,
                identity: self.identity.as_deref(),
                is_http2: self.is_http2,
            };
            scratch.record.settle(&source, scratch.upload.passed(), scratch.download.passed());
            // What a panic left of it is not to be trusted.
            return;
        }
        self.worker.put_scratch(scratch);
    }
}

/// Waits a moment for the next request with everything still in hand, where few connections do. `None`: it has begun to
/// arrive.
async fn stay_warm(connection: &mut Connection, buffer: &mut Buffer) -> Option<Next> {
    let worker = Rc::clone(&connection.worker);
    let Some(_place) = worker.warm_place() else { return Some(Next::Idle) };
    let patience = WARM.min(connection.listener.config.limits.idle_timeout);
    connection.deadline.set(worker.now() + patience);
    let next = poll_fn(|context| match connection.stream.poll_fill(context, buffer) {
        Poll::Ready(Ok(1..)) => Poll::Ready(None),
        Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Some(Next::Close)),
        Poll::Pending if connection.deadline.poll_expired(context) || worker.is_draining() => {
            Poll::Ready(Some(Next::Idle))
        }
        Poll::Pending => Poll::Pending,
    })
    .await;
    if next == Some(Next::Idle) {
        connection.paused = patience;
    }
    next
}

/// Waits for buffer memory, no longer than for a head.
async fn admit(connection: &Connection) -> Option<Grant> {
    let worker = Rc::clone(&connection.worker);
    if let Some(grant) = worker.buffers.try_grant() {
        return Some(grant);
    }
    connection.deadline.set(worker.now() + connection.listener.config.limits.header_timeout);
    let mut grant = Box::pin(worker.buffers.grant());
    poll_fn(|context| match grant.as_mut().poll(context) {
        Poll::Ready(grant) => Poll::Ready(Some(grant)),
        Poll::Pending if connection.deadline.poll_expired(context) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Answers a request that no memory was found for, without having read it.
async fn turn_away(connection: &mut Connection) -> Next {
    if !has_arrived(&connection.stream) {
        return Next::Close;
    }
    let worker = Rc::clone(&connection.worker);
    let mut scratch = worker.take_scratch();
    scratch.record.begin(worker.now(), worker.is_logging());
    connection.requests = connection.requests.saturating_add(1);
    // Its head says whether it would be kept, and nobody has read that.
    scratch.is_broken = true;
    scratch.record.reason = Some(Failure::NoMemory.reason());
    let reply = Reply { status: Failure::NoMemory.status(), is_redirect: false, is_refusal: true, body: "" };
    let next = answer(connection, &mut worker.buffers.empty_buffer(), &mut scratch, reply).await;
    scratch.record.settle(&connection.source(), 0, 0);
    worker.put_scratch(scratch);
    next
}

/// Whether something waits to be read, and not the connection's end alone.
fn has_arrived(stream: &ClientStream) -> bool {
    let Some(socket) = stream.socket() else { return true };
    match socket.peek(&mut [MaybeUninit::uninit()]) {
        Ok(count) => count > 0,
        // What TLS has decrypted already is not there any more.
        Err(error) => error.kind() == ErrorKind::WouldBlock && matches!(stream, ClientStream::Tls(_)),
    }
}

/// One request and its answer, accounted for however it ends.
async fn exchange(connection: &mut Connection, grant: &Grant, buffer: &mut Buffer, scratch: &mut Scratch) -> Next {
    scratch.record.begin(connection.worker.now(), connection.worker.is_logging());
    let read = head::read(connection, buffer, &mut scratch.request).await;
    match read {
        Ok(HeadRead::Nothing) => return Next::Nothing,
        Ok(HeadRead::End) => return Next::Close,
        Ok(HeadRead::Whole) | Err(_) => {}
    }
    connection.requests = connection.requests.saturating_add(1);
    scratch.record.open();
    let result = match read {
        Ok(_) => handle(connection, grant, buffer, scratch).await,
        Err(failure) => {
            scratch.is_head_request = connection.stream.is_head_request();
            Err(failure)
        }
    };
    let next = match result {
        Ok(next) => next,
        Err(failure) => fail(connection, buffer, scratch, failure).await,
    };
    scratch.record.settle(&connection.source(), scratch.upload.passed(), scratch.download.passed());
    next
}

/// Decides what becomes of a request, and does it.
async fn handle(
    connection: &mut Connection,
    grant: &Grant,
    buffer: &mut Buffer,
    scratch: &mut Scratch,
) -> Result<Next, Failure> {
    #[cfg(test)]
    crate::request::tests::faults::step();
    let decision = decision::decide(connection, buffer, scratch);
    // A head that is refused is used up as well: it must not be taken for the next one.
    buffer.consume(scratch.request.length);
    match decision? {
        Decision::Forward(forward) => pass_on(connection, grant, buffer, scratch, &forward).await,
        Decision::Answer { rule, status, reason, is_redirect } => {
            scratch.record.reason = Some(reason);
            let reply = Reply { status, is_redirect, is_refusal: false, body: body_of(&rule) };
            Ok(answer(connection, buffer, scratch, reply).await)
        }
    }
}

/// Sends a request to a server and its answer to the client.
async fn pass_on(
    connection: &mut Connection,
    grant: &Grant,
    buffer: &mut Buffer,
    scratch: &mut Scratch,
    forward: &Forward,
) -> Result<Next, Failure> {
    scratch.begin_upload(buffer)?;
    let mut channel = Channel::new(connection, buffer, scratch);
    let mut choice = attempt::first_answer(&mut channel, grant, forward).await?;
    if channel.scratch.response.status == 101 {
        return Ok(Box::pin(pass_tunnel(channel, grant, choice)).await);
    }
    let accepted = channel.accept_head();
    if let Err(failure) = &accepted {
        choice.ends(&channel, Some(failure));
    }
    let verdict = accepted?;
    channel.scratch.record.answer_begins(channel.scratch.response.status);
    channel.scratch.record.is_until_close = verdict.is_until_close;
    let transferred = channel.transfer(verdict, &choice.lease).await;
    if choice.pool.orca.is_some() {
        load::note_trailers(&channel, &choice);
    }
    choice.ends(&channel, transferred.as_ref().err());
    if let Err(failure) = transferred {
        channel.let_go();
        return Err(failure);
    }
    if channel.is_reusable()
        && let Some(server) = channel.server.take()
    {
        choice.keep(channel.connection, server.stream);
    }
    let is_uploaded = channel.scratch.upload.is_done();
    Ok(match verdict.keeps_client {
        // Where the server broke the upload off, the rest of the body is still to come: it must not be read as a request.
        true if is_uploaded => Next::Idle,
        // A client that said close sends nothing more. Where the end is our doing its next request may be there already, and
        // to close on that would reset: the answer could be lost (RFC 9112 9.6).
        false
            if is_uploaded
                && !channel.scratch.request.keep_alive
                && channel.client_buffer.is_empty()
                && !channel.connection.stream.has_unread() =>
        {
            Next::Close
        }
        true | false => Next::Linger,
    })
}

/// Passes a 101 on and carries bytes until the tunnel ends.
async fn pass_tunnel(mut channel: Channel<'_>, grant: &Grant, mut choice: Choice) -> Next {
    channel.accept_upgrade();
    channel.scratch.record.answer_begins(101);
    choice.lease.excuse(true);
    let end = match channel.send_head().await {
        Ok(()) => tunnel::carry(&mut channel, grant, choice.pool.timeouts.tunnel).await,
        Err(failure) => {
            choice.ends(&channel, Some(&failure));
            return Next::Abort;
        }
    };
    channel.scratch.record.reason = end.reason();
    choice.ends(&channel, None);
    channel.let_go();
    end.next()
}

fn body_of(rule: &Rule) -> &str {
    match &rule.action {
        Action::Respond { body, .. } => body,
        Action::Use(_) | Action::Split { .. } | Action::Redirect { .. } => "",
    }
}

/// Answers for a failure, where the client has not begun to get an answer.
async fn fail(connection: &mut Connection, buffer: &mut Buffer, scratch: &mut Scratch, failure: Failure) -> Next {
    scratch.record.reason = Some(failure.reason());
    tracing::debug!(reason = failure.reason(), "{failure}");
    if scratch.record.is_answer_begun {
        // What went out stays cut short, visibly: framed by the end of the connection, only a reset shows it.
        return if scratch.record.is_until_close { Next::Abort } else { Next::Drop };
    }
    if matches!(failure, Failure::ClientGone) {
        scratch.record.status = failure.status();
        return Next::Abort;
    }
    scratch.upload.give_up(buffer);
    // Interim answers may be half-way out: ours comes behind them.
    scratch.download.start(BodyLength::None, Framing::Bare, u64::MAX);
    let is_understood = matches!(failure, Failure::Refused(Refusal::AmbiguousPath | Refusal::Misdirected));
    scratch.is_broken = failure.blame() == Blame::Client && !is_understood;
    let reply = Reply { status: failure.status(), is_redirect: false, is_refusal: true, body: "" };
    answer(connection, buffer, scratch, reply).await
}

/// What an answer of our own says.
#[derive(Clone, Copy, Debug)]
struct Reply<'a> {
    status: u16,
    is_redirect: bool,
    is_refusal: bool,
    body: &'a str,
}

/// Sends an answer of our own. The connection lives on where the request is known to have been read to its end.
async fn answer(connection: &mut Connection, buffer: &mut Buffer, scratch: &mut Scratch, reply: Reply<'_>) -> Next {
    let worker = Rc::clone(&connection.worker);
    let is_read = scratch.request.body == BodyLength::None || scratch.upload.has_ended_well();
    let keeps = is_read && !scratch.is_broken && connection.may_keep(&scratch.request);
    let client_connection = match (keeps, scratch.request.version) {
        (false, _) => ClientConnection::Close,
        (true, Version::Http10) => ClientConnection::KeepAlive,
        (true, Version::Http11) => ClientConnection::Keep,
    };
    let content = worker.with_date(|date| {
        let own = OwnAnswer {
            status: reply.status,
            location: reply.is_redirect.then_some(scratch.changed.target.as_slice()),
            body: reply.body,
            edits: &scratch.changed.response,
            is_refusal: reply.is_refusal,
            is_to_head: scratch.is_head_request,
            connection: client_connection,
            date,
        };
        answer::push(scratch.download.head(), &own)
    });
    scratch.record.answer_begins(reply.status);
    connection.deadline.set(worker.now() + connection.listener.config.limits.idle_timeout);
    let is_sent = poll_fn(|context| match scratch.download.poll_send(context, &mut connection.stream, buffer) {
        Poll::Ready(result) => Poll::Ready(result.is_ok()),
        Poll::Pending if connection.deadline.poll_expired(context) => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    })
    .await;
    scratch.record.own_content = if is_sent { content } else { 0 };
    match (is_sent, keeps) {
        (false, _) => Next::Abort,
        (true, true) => Next::Idle,
        (true, false) => Next::Linger,
    }
}
