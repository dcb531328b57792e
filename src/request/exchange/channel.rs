//! A request and its answer on their way at the same time: both directions of one exchange over one connection to a server.
//!
//! The upload goes on while the answer comes, an answer may come before the upload ends, and a client that goes away is
//! noticed while the server thinks.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::h2_reset::H2Reset;
use crate::base::time::Timestamp;
use crate::pure::forwarding::{ClientConnection, ClientFraming, FieldEdits, ResponseVia, push_response_head};
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{HeadLimits, Parsed, Version};
use crate::pure::h1::response::parse_response_head;
use crate::pure::head::{Fields, Known};
use crate::pure::pool::Timeouts;
use crate::pure::refusal::Refusal;
use crate::request::buffers::Buffer;
use crate::request::connection::Connection;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::flow::{FlowError, Framing, Wait};
use crate::request::exchange::scratch::Scratch;
use crate::request::stream::{ServerStream, Stream as _};
use crate::shared::lease::Lease;

/// The most interim answers (1xx) to one request.
const INTERIM_MAX: u32 = 16;

/// How large a server's head may be: what a client's may be by default.
const RESPONSE_HEAD: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 256 };

/// How long an answer may take before the runtime watches a client that it has not had to watch: about so much later, and a tick of
/// the deadlines, it is noticed that the client has gone.
const UNWATCHED_MAX: Duration = Duration::from_millis(10);

/// How often a side is looked at of which nothing is read: since the other takes nothing, or since it has ended its own direction.
pub(in crate::request) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which side an exchange waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Side {
    /// Nobody yet.
    #[default]
    None,
    Client,
    Server,
    /// The server, which has sent something meanwhile.
    Heard,
}

/// What the answer's head means for the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the client's connection is kept.
    pub keeps_client: bool,
    /// Whether a body that ends early would look complete, being framed by the end of the connection.
    pub is_until_close: bool,
}

/// The server's end of an exchange.
#[derive(Debug)]
pub struct ServerEnd {
    /// The connection.
    pub stream: ServerStream,
    /// What the server sent and was not used yet.
    pub buffer: Buffer,
}

/// Both directions of one exchange.
#[derive(Debug)]
pub struct Channel<'a> {
    /// The client.
    pub connection: &'a mut Connection,
    /// What the client sent and was not used yet.
    pub client_buffer: &'a mut Buffer,
    /// Heads and flows.
    pub scratch: &'a mut Scratch,
    /// The server that is asked at present.
    pub server: Option<ServerEnd>,
    /// Whether what the server says of its load is kept from the client.
    pub hides_load: bool,
    timeouts: Timeouts,
    is_written: bool,
    is_upload_broken: bool,
    has_client_ended: bool,
    has_passed_continue: bool,
    interim: u32,
    waits_for: Side,
    /// When the wait for it is over; the client may be looked at before.
    waits_until: Timestamp,
    /// What the client had not acknowledged when the wait for it began.
    unacknowledged: Option<usize>,
}

impl<'a> Channel<'a> {
    /// A channel that no server is on yet.
    pub fn new(connection: &'a mut Connection, client_buffer: &'a mut Buffer, scratch: &'a mut Scratch) -> Self {
        Self {
            connection,
            client_buffer,
            scratch,
            server: None,
            hides_load: false,
            timeouts: Timeouts::default(),
            is_written: false,
            is_upload_broken: false,
            has_client_ended: false,
            has_passed_continue: false,
            interim: 0,
            waits_for: Side::None,
            waits_until: Timestamp::ZERO,
            unacknowledged: None,
        }
    }

    /// Puts a server on, which is to get the request from its start: what lies in the upload's
    /// [`Flow::head`](super::flow::Flow::head).
    pub fn begin_attempt(&mut self, server: ServerEnd, timeouts: Timeouts) {
        self.server = Some(server);
        self.timeouts = timeouts;
        self.is_written = false;
        self.is_upload_broken = false;
        self.waits_for = Side::None;
        self.scratch.response.clear();
    }

    /// Takes the server off, which is told by which code its client has given the request up, where there is one.
    pub fn let_go(&mut self) {
        if let (Some(server), Some(code)) = (&self.server, self.connection.stream.given_up()) {
            server.stream.reset(code);
        }
        self.server = None;
    }

    /// Takes the server off and goes back to the start of the request, which [has to be there](Self::has_start).
    pub fn rewind(&mut self) {
        self.server = None;
        // Else it still lies as it was put on its way.
        if std::mem::take(&mut self.is_written) {
            let Scratch { upload, forwarded, kept, .. } = &mut *self.scratch;
            upload.rewind(self.client_buffer, forwarded, kept.bytes());
        }
    }

    /// Whether the request can be sent from its start: nothing of it was written, or all that was is there.
    pub fn has_start(&self) -> bool {
        !self.is_written || self.scratch.kept.is_whole()
    }

    /// Notices that the client went away while no server is on yet. What has come of its body by then waits in its buffer.
    pub fn poll_client_gone(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        if self.connection.worker.is_stopping() {
            return Poll::Ready(Failure::Stopped);
        }
        self.read_ahead(context).map_or_else(Poll::Ready, |()| Poll::Pending)
    }

    /// Sends the request and waits for the head of its final answer, or of a 101; interim answers are passed on meanwhile.
    ///
    /// # Errors
    /// [`Failure`]; none of the final answer has gone to the client. After [`Failure::TakenBack`] the wait may go on.
    pub async fn answer_head(&mut self, lease: &Lease) -> Result<(), Failure> {
        poll_fn(|context| self.poll_answer_head(context, lease)).await
    }

    fn poll_answer_head(&mut self, context: &mut Context<'_>, lease: &Lease) -> Poll<Result<(), Failure>> {
        if let Err(failure) = self.poll_upload(context) {
            return Poll::Ready(Err(failure));
        }
        match self.poll_server_head(context) {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(failure) => return Poll::Ready(Err(failure)),
        }
        if let Err(failure) = self.poll_client_end(context) {
            return Poll::Ready(Err(failure));
        }
        if self.connection.deadline.is_taken_back() && self.is_unanswered() {
            return Poll::Ready(Err(Failure::TakenBack { is_written: self.is_written }));
        }
        let expired = self.poll_deadline(context, lease);
        // What the server has not got whole it need not answer.
        lease.excuse(self.waits_for == Side::Client);
        expired.map(Err)
    }

    /// Whether no byte of an answer has come.
    fn is_unanswered(&self) -> bool {
        let has_come = |server: &ServerEnd| !server.buffer.is_empty() || server.stream.has_head();
        self.interim == 0 && self.server.as_ref().is_some_and(|server| !has_come(server))
    }

    /// Reads from the server as far as it goes. True: the final head is there.
    fn poll_server_head(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        loop {
            if self.parse_head()? {
                return Ok(true);
            }
            let Some(server) = &mut self.server else { return Err(Failure::Reset { is_written: false }) };
            let download = &mut self.scratch.download;
            match download.poll_send(context, &mut self.connection.stream, &mut server.buffer) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Err(Failure::ClientGone),
                Poll::Pending => return Ok(false),
            }
            if !server.buffer.has_room() && !server.buffer.grow_for_head(RESPONSE_HEAD.bytes) {
                // One that is too large is refused before it fills that much.
                return Err(Failure::NoMemory);
            }
            match server.stream.poll_fill(context, &mut server.buffer) {
                Poll::Ready(Ok(1..)) => self.waits_for = Side::Heard,
                Poll::Ready(Err(error)) => {
                    let has_begun = !server.buffer.is_empty() || server.stream.has_head() || self.interim > 0;
                    return Err(Failure::of_server(&error, self.is_written, has_begun));
                }
                Poll::Ready(Ok(0)) if server.buffer.is_empty() && self.interim == 0 => {
                    return Err(Failure::Reset { is_written: self.is_written });
                }
                Poll::Ready(Ok(0)) => return Err(Failure::Truncated),
                Poll::Pending => return Ok(false),
            }
        }
    }

    /// Looks for a head in the server's buffer. True: it is the final one. An interim one is put on its way to the client.
    fn parse_head(&mut self) -> Result<bool, Failure> {
        let Some(server) = &mut self.server else { return Ok(false) };
        let Scratch { request, response: head, download, upgrade, is_head_request, .. } = &mut *self.scratch;
        loop {
            let bytes = server.buffer.bytes();
            if bytes.is_empty() || parse_response_head(bytes, RESPONSE_HEAD, *is_head_request, head)? == Parsed::Partial
            {
                return Ok(false);
            }
            if head.status == 101 {
                // A 101 counts only for the token that was asked for (RFC 9110 7.8).
                let is_wanted = head.upgrade.of(bytes).eq_ignore_ascii_case(upgrade);
                return if is_wanted && !upgrade.is_empty() { Ok(true) } else { Err(Failure::UnwantedUpgrade) };
            }
            if matches!(head.status, 200..=299) && self.connection.stream.wants_tunnel() {
                // To an extended CONNECT any success opens the tunnel, which the server has not meant (RFC 8441 5).
                return Err(Failure::NoUpgrade);
            }
            if head.status >= 200 {
                return Ok(true);
            }
            self.interim += 1;
            if self.interim > INTERIM_MAX {
                return Err(Failure::TooManyInterim);
            }
            // One 100 is enough, and HTTP/1.0 clients know none (RFC 9110 15.2).
            let is_wanted = request.version == Version::Http11 && !(head.status == 100 && self.has_passed_continue);
            if is_wanted {
                self.has_passed_continue |= head.status == 100;
                let (framing, keep) = (ClientFraming::AsSent, ClientConnection::Keep);
                push_response_head(
                    download.head(),
                    head,
                    bytes,
                    framing,
                    keep,
                    ResponseVia::None,
                    &FieldEdits::default(),
                );
            }
            let length = head.length;
            server.buffer.consume(length);
            head.clear();
        }
    }

    /// Puts the final head on its way, with what has come of the body, and says what it means for the connections.
    ///
    /// # Errors
    /// [`Failure::Truncated`] where the body's framing is broken from the start.
    pub fn accept_head(&mut self) -> Result<Verdict, Failure> {
        let Some(server) = &mut self.server else { return Err(Failure::Truncated) };
        let Scratch { request, response, upload, download, changed, learning, persisting, .. } = &mut *self.scratch;
        let has_messages = self.connection.stream.has_messages();
        let (outlet, framing, is_until_close) = match (response.body, request.version) {
            (BodyLength::None | BodyLength::Length(_), _) => (Framing::Bare, ClientFraming::AsSent, false),
            (BodyLength::Chunked | BodyLength::UntilClose, Version::Http11) if has_messages => {
                (Framing::Message, ClientFraming::Chunked, false)
            }
            (BodyLength::Chunked | BodyLength::UntilClose, Version::Http11) => {
                (Framing::Chunked, ClientFraming::Chunked, false)
            }
            (BodyLength::Chunked | BodyLength::UntilClose, Version::Http10) => {
                (Framing::Bare, ClientFraming::UntilClose, true)
            }
        };
        if learning.is_wanted && matches!(response.status, 200..=299) {
            let fields = Fields { bytes: server.buffer.bytes(), list: &response.fields };
            if let Some(content_type) = fields.known(Known::ContentType).next() {
                self.connection.worker.shared.learned.learn(&learning.host, &learning.path, content_type);
            }
        }
        let is_upload_done = upload.is_done();
        // A client that was not told to go on may never send its body: what comes next could be either.
        let is_in_doubt = request.expects_continue && !self.has_passed_continue && !is_upload_done;
        let keeps_client = self.connection.may_keep(request)
            && !is_until_close
            && (is_upload_done || (!self.is_upload_broken && response.keep_alive && !is_in_doubt));
        let connection = match (keeps_client, request.version) {
            (false, _) => ClientConnection::Close,
            (true, Version::Http10) => ClientConnection::KeepAlive,
            (true, Version::Http11) => ClientConnection::Keep,
        };
        let via = server.stream.via(self.connection.listener.config.via);
        if server.stream.is_length_ours() {
            self.connection.stream.leave_length_out();
        }
        let bytes = server.buffer.bytes();
        let head_at = download.head().len();
        push_response_head(download.head(), response, bytes, framing, connection, via, &changed.response);
        if let Some(persisting) = persisting {
            persisting.answer(self.connection, Fields { bytes, list: &response.fields }, download.head());
        }
        server.buffer.consume(response.length);
        download.start(response.body, outlet, u64::MAX);
        if self.hides_load {
            download.hide_load();
        }
        if !keeps_client && is_upload_done {
            download.end_connection();
        }
        if download.stage_early(&mut server.buffer, &mut |_| {}).is_err() {
            // It is not on its way yet, and another answer takes its place.
            download.head().truncate(head_at);
            return Err(Failure::Truncated);
        }
        Ok(Verdict { keeps_client, is_until_close })
    }

    /// Puts a 101 on its way.
    pub fn accept_upgrade(&mut self) {
        let Some(server) = &mut self.server else { return };
        let Scratch { response, download, changed, persisting, .. } = &mut *self.scratch;
        let via = server.stream.via(self.connection.listener.config.via);
        let bytes = server.buffer.bytes();
        let connection = ClientConnection::Upgrade(response.upgrade.of(bytes));
        let out = download.head();
        push_response_head(out, response, bytes, ClientFraming::AsSent, connection, via, &changed.response);
        if let Some(persisting) = persisting {
            persisting.answer(self.connection, Fields { bytes, list: &response.fields }, out);
        }
        server.buffer.consume(response.length);
    }

    /// Sends a head that no body follows.
    ///
    /// # Errors
    /// [`Failure::ClientGone`] and [`Failure::ClientTimeout`].
    pub async fn send_head(&mut self) -> Result<(), Failure> {
        let patience = self.connection.listener.config.limits.idle_timeout;
        self.connection.deadline.set(self.connection.worker.now() + patience);
        poll_fn(|context| {
            let stream = &mut self.connection.stream;
            match self.scratch.download.poll_send(context, stream, self.client_buffer) {
                Poll::Ready(sent) => Poll::Ready(sent.map_err(|_| Failure::ClientGone)),
                Poll::Pending if self.connection.deadline.poll_expired(context) => {
                    Poll::Ready(Err(Failure::ClientTimeout))
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Passes the answer on, and the rest of the upload meanwhile.
    ///
    /// # Errors
    /// [`Failure`]; the client has got the answer's head, and nothing that makes a cut body look complete.
    pub async fn transfer(&mut self, verdict: Verdict, lease: &Lease) -> Result<(), Failure> {
        poll_fn(|context| self.poll_transfer(context, verdict, lease)).await
    }

    fn poll_transfer(
        &mut self,
        context: &mut Context<'_>,
        verdict: Verdict,
        lease: &Lease,
    ) -> Poll<Result<(), Failure>> {
        let Some(server) = &mut self.server else { return Poll::Ready(Err(Failure::Truncated)) };
        let download = &mut self.scratch.download;
        let client = &mut self.connection.stream;
        let moved = download.poll_move(context, &mut server.stream, &mut server.buffer, client, &mut |_| {});
        match moved {
            Poll::Ready(Ok(())) if self.is_over(verdict) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(FlowError::Write(_))) => return Poll::Ready(Err(Failure::ClientGone)),
            Poll::Ready(Err(FlowError::Read(error))) => {
                self.connection.stream.note_reset(&error);
                let failure = H2Reset::of(&error).map_or(Failure::Truncated, Failure::CutByReset);
                return Poll::Ready(Err(failure));
            }
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Failure::Truncated)),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        if let Err(failure) = self.poll_upload(context) {
            return Poll::Ready(Err(failure));
        }
        if self.scratch.download.is_done() {
            // A server that has answered may let go of what it does not want to know (RFC 9113 8.1, RFC 9112 9.5).
            let server = self.server.as_mut().filter(|_| !self.scratch.upload.is_done());
            self.is_upload_broken |= server.is_some_and(|server| server.stream.poll_lost(context).is_ready());
            if self.is_over(verdict) {
                return Poll::Ready(Ok(()));
            }
        }
        if let Err(failure) = self.poll_client_end(context) {
            return Poll::Ready(Err(failure));
        }
        // It goes on for a while: a server that has begun to answer is not silent, however long it takes.
        lease.excuse(true);
        self.poll_deadline(context, lease).map(Err)
    }

    /// Whether nothing is left to wait for once the answer has been passed on.
    fn is_over(&self, verdict: Verdict) -> bool {
        self.scratch.upload.is_done() || self.is_upload_broken || !verdict.keeps_client
    }

    /// Whether the server's connection can take another request.
    pub fn is_reusable(&self) -> bool {
        self.scratch.response.keep_alive
            && self.scratch.upload.is_done()
            && !self.is_upload_broken
            && self.server.as_ref().is_some_and(|server| server.buffer.is_empty() && server.stream.is_reusable())
    }

    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        let Scratch { upload, kept, is_idempotent, .. } = &mut *self.scratch;
        let is_idempotent = *is_idempotent;
        let Some(server) = &mut self.server else { return Ok(()) };
        if self.is_upload_broken || upload.is_done() {
            return Ok(());
        }
        let client = &mut self.connection.stream;
        let moved = upload.poll_move(context, client, self.client_buffer, &mut server.stream, &mut |bytes| {
            kept.push(bytes);
        });
        if upload.has_moved() && !self.is_written {
            self.is_written = true;
            if !is_idempotent && !server.stream.may_refuse() {
                kept.give_up();
            }
        }
        match moved {
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
            // The server may have answered before it stopped reading.
            Poll::Ready(Err(FlowError::Write(_))) => {
                self.is_upload_broken = true;
                Ok(())
            }
            Poll::Ready(Err(FlowError::TooLarge)) => Err(Refusal::BodyTooLarge.into()),
            Poll::Ready(Err(FlowError::Framing(_))) => Err(Failure::Body),
            Poll::Ready(Err(FlowError::Read(_) | FlowError::Truncated)) => Err(Failure::ClientGone),
        }
    }

    /// Notices that the client went away while there is nothing to read for the upload; not of one that is not watched yet.
    /// What a pipelining client has sent stays in its buffer for the next exchange.
    fn poll_client_end(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        if !self.connection.stream.is_watched() {
            return Ok(());
        }
        if self.scratch.upload.is_ended() {
            return self.read_ahead(context);
        }
        // The server may take nothing for long, so that nothing is read of the client.
        if self.connection.stream.poll_lost(context).is_ready() { Err(Failure::ClientGone) } else { Ok(()) }
    }

    /// Reads what the client sends, as long as there is room for it.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> Result<(), Failure> {
        if !self.client_buffer.has_room() && self.connection.stream.poll_lost(context).is_ready() {
            return Err(Failure::ClientGone);
        }
        while self.client_buffer.has_room() && !self.has_client_ended {
            // Most of the time there is nothing, and that is cheaper to learn without a read.
            if self.connection.stream.poll_readable(context).is_pending() {
                return Ok(());
            }
            match self.connection.stream.poll_fill(context, self.client_buffer) {
                Poll::Ready(Ok(0)) if self.connection.listener.config.half_close => self.has_client_ended = true,
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Err(Failure::ClientGone),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return Ok(()),
            }
        }
        Ok(())
    }

    /// How long the wait may go on before the client is looked at.
    fn step(&self) -> Duration {
        if !self.connection.stream.is_watched() {
            UNWATCHED_MAX
        } else if self.scratch.upload.wait() == Wait::Receiver {
            LOOK_EVERY
        } else {
            Duration::MAX
        }
    }

    /// Starts the clock anew whenever bytes moved or the side that is waited for changed. The client is to blame where both
    /// are waited for: a server need not answer before it has the whole request.
    fn poll_deadline(&mut self, context: &mut Context<'_>, lease: &Lease) -> Poll<Failure> {
        let Scratch { upload, download, .. } = &mut *self.scratch;
        if self.connection.worker.is_stopping() {
            return Poll::Ready(Failure::Stopped);
        }
        let reads_slowly = download.wait() == Wait::Receiver;
        let is_client = reads_slowly || (upload.wait() == Wait::Sender && !self.is_upload_broken);
        let side = if is_client { Side::Client } else { Side::Server };
        let moved = upload.take_moved() | download.take_moved();
        let deadline = &self.connection.deadline;
        if moved || self.waits_for != side {
            let now = self.connection.worker.now();
            if self.waits_for == Side::Heard || download.take_read() {
                lease.hear(now);
            }
            self.waits_for = side;
            let patience =
                if is_client { self.connection.listener.config.limits.idle_timeout } else { self.timeouts.response };
            self.waits_until = now + patience;
            // Most clients are watched, and have sent all.
            let is_usual = self.connection.stream.is_watched() && upload.wait() != Wait::Receiver;
            deadline.set(if is_usual { self.waits_until } else { self.waits_until.min(now + self.step()) });
            self.unacknowledged = if reads_slowly { self.connection.stream.unacknowledged() } else { None };
        }
        if !deadline.poll_expired(context) {
            return Poll::Pending;
        }
        let now = self.connection.worker.now();
        if now < self.waits_until {
            let may_half_close = self.connection.listener.config.half_close;
            let stream = &mut self.connection.stream;
            let was_watched = stream.is_watched();
            if stream.watch().is_err() {
                return Poll::Ready(Failure::NoMemory);
            }
            if stream.has_gone(may_half_close) {
                return Poll::Ready(Failure::ClientGone);
            }
            self.connection.deadline.set(self.waits_until.min(now + self.step()));
            // One that is watched only now has not been waited for.
            if !was_watched || self.connection.deadline.poll_expired(context) {
                context.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        // The system says that there is room for more only when much of what it holds has gone: a client that reads slowly
        // but does read shows it in what it has acknowledged.
        let left = if reads_slowly { self.connection.stream.unacknowledged() } else { None };
        if let (Some(rest), Some(before)) = (left, self.unacknowledged)
            && rest < before
        {
            self.unacknowledged = left;
            self.waits_until = now + self.connection.listener.config.limits.idle_timeout;
            self.connection.deadline.set(self.waits_until.min(now + self.step()));
            if !self.connection.deadline.poll_expired(context) {
                return Poll::Pending;
            }
        }
        Poll::Ready(if is_client { Failure::ClientTimeout } else { Failure::ResponseTimeout })
    }
}
