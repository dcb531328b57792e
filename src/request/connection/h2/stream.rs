//! A stream of an HTTP/2 connection as the exchange sees it: an HTTP/1.1 request to read, an HTTP/1.1 answer to write.
//!
//! Bodies are not framed on the way out: the exchange says where a message ends. Nothing is read of a body before the
//! exchange has room for it, and only then does the client get room to send more; of an answer no more is taken than the
//! client and the connection have room for. That is the backpressure, both ways.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::base::h2_reset::H2Reset;
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{HeadLimits, Parsed, RequestHeadError};
use crate::pure::h1::response::{ResponseHead, parse_response_head};
use crate::pure::h2::answer::push_answer;
use crate::pure::h2::multiplexer::Arrival;
use crate::pure::h2::trailers::push_chunked_end;
use crate::pure::identity::ClientIdentity;
use crate::pure::persistence::SessionIdentity;
use crate::request::buffers::Buffer;
use crate::request::h2_body::{Inbound, io_error, send_end};
use crate::request::worker::ConnectionTicket;
use crate::transport::h2::Handle;
use crate::transport::tls::ClientCertificates;

/// The most of a body that is handed over at once.
const PIECE_MAX: usize = 64 * 1024;

/// Our own heads, or those that the exchange has let through: their size has been judged.
const ANSWER_HEAD: HeadLimits = HeadLimits { bytes: usize::MAX, fields: usize::MAX };

/// Fields that most heads have no more of.
const USUAL_FIELDS: usize = 16;

/// How the request's body is told to the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inlet {
    /// In chunks.
    Chunked,
    /// As it is: its length is known.
    Plain,
    /// As it is, to the end of the stream, which is the end of a tunnel's direction.
    Tunnel,
    /// It is over; what may still come is a reset.
    Over,
}

/// How far the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outlet {
    /// Its head is still to come.
    Head,
    /// Its body, of which so many bytes are to come, where that is known.
    Body(Option<u64>),
    /// It is whole.
    Over,
}

/// What a stream knows of its connection.
#[derive(Clone, Debug)]
pub struct Carrier {
    /// The TLS version.
    pub tls: Option<&'static str>,
    /// The name that the TLS client asked for.
    pub server_name: Option<Rc<str>>,
    /// Our address.
    pub local: Option<SocketAddr>,
    /// Its entry in the worker's list.
    pub ticket: Rc<ConnectionTicket>,
    /// What was demanded of the TLS client's certificate.
    pub demand: ClientCertificates,
    /// Who the TLS client has shown to be by a certificate.
    pub identity: Option<Arc<ClientIdentity>>,
    /// The identity of the TLS session.
    pub session: Option<SessionIdentity>,
}

/// A request and its answer.
#[derive(Debug)]
pub struct H2Stream {
    handle: Handle,
    /// Why the head is refused, which then is not given.
    refusal: Option<RequestHeadError>,
    /// What is to be given.
    inbound: Inbound,
    /// Whether the head is held back: it says that there is no data, with it the message is whole for a server, and until the
    /// client has ended the stream it may turn out malformed.
    is_held: bool,
    inlet: Inlet,
    failed: Option<io::Error>,
    outlet: Outlet,
    answer: ResponseHead,
    is_head_request: bool,
    leaves_length_out: bool,
    reset: Option<H2Reset>,
    carrier: Carrier,
}

/// A request that has come.
pub(super) struct Incoming {
    /// Its stream.
    pub(super) handle: Handle,
    /// Its head in HTTP/1.1, or why there is none.
    pub(super) head: Result<Vec<u8>, RequestHeadError>,
    /// Whether that is not to be given before the stream has ended.
    pub(super) is_held: bool,
    /// How its body is to be told.
    pub(super) inlet: Inlet,
    /// Whether it is a HEAD.
    pub(super) is_head_request: bool,
}

impl H2Stream {
    pub(super) fn new(incoming: Incoming, carrier: Carrier) -> Self {
        let Incoming { handle, head, is_held, inlet, is_head_request } = incoming;
        let (head, refusal) = match head {
            Ok(head) => (head, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        Self {
            handle,
            refusal,
            inbound: Inbound::starting_with(head),
            is_held: is_held && refusal.is_none(),
            inlet,
            failed: None,
            outlet: Outlet::Head,
            answer: ResponseHead::default(),
            is_head_request,
            leaves_length_out: false,
            reset: None,
            carrier,
        }
    }

    /// What it knows of its connection.
    pub fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// Why the head can't be given.
    pub fn refusal(&self) -> Option<RequestHeadError> {
        self.refusal
    }

    /// Whether it is a HEAD.
    pub const fn is_head_request(&self) -> bool {
        self.is_head_request
    }

    /// Whether its client asks for a tunnel.
    pub fn is_tunnel(&self) -> bool {
        self.inlet == Inlet::Tunnel
    }

    /// The code by which it is to be reset, should it be cut off: the one that the server used.
    pub fn note_reset(&mut self, reset: H2Reset) {
        self.reset = Some(reset);
    }

    /// The code by which its client has given it up, where it has.
    pub fn given_up(&self) -> Option<H2Reset> {
        self.handle.reset_by()
    }

    /// The length that the answer's head will say is left out.
    pub fn leave_length_out(&mut self) {
        self.leaves_length_out = true;
    }

    /// Reads into the buffer's room.
    pub fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        // Who waits needs no memory.
        if !self.has_more() && !ready!(self.poll_more(context))? {
            return Poll::Ready(Ok(0));
        }
        let count = self.read(context, buffer.room());
        buffer.filled(count);
        Poll::Ready(Ok(count))
    }

    /// Puts what there is behind the bytes of `room`, up to its capacity, which is not reached yet.
    fn read(&mut self, context: &mut Context<'_>, room: &mut Vec<u8>) -> usize {
        let mut count = 0;
        loop {
            let most = room.capacity() - room.len();
            count += self.inbound.give(room, most, |out, most| self.handle.take_data(out, most));
            // What is left over is given first the next time: nothing may be put behind it.
            if room.len() == room.capacity() {
                return count;
            }
            match self.poll_more(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Err(error)) => {
                    self.failed = Some(error);
                    return count;
                }
                Poll::Ready(Ok(false)) | Poll::Pending => return count,
            }
        }
    }

    /// Waits until there is something to read.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_more() || self.failed.is_some() {
            return Poll::Ready(Ok(()));
        }
        if let Err(error) = ready!(self.poll_more(context)) {
            self.failed = Some(error);
        }
        Poll::Ready(Ok(()))
    }

    fn has_more(&self) -> bool {
        !self.is_held && !self.inbound.is_empty()
    }

    /// Gets more to give. False: there will be none.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        if self.inlet == Inlet::Over {
            return self.poll_reset(context).map(Err);
        }
        match ready!(self.handle.poll_arrival(context)).map_err(io_error)? {
            Arrival::Data(count) => {
                self.inbound.put(count, self.inlet == Inlet::Chunked);
                Poll::Ready(Ok(true))
            }
            Arrival::End => self.poll_body_end(context),
            // The head has been taken, and a second one ends the stream.
            Arrival::Head | Arrival::Nothing => Poll::Pending,
        }
    }

    fn poll_body_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        match self.inlet {
            Inlet::Tunnel => return Poll::Ready(Ok(false)),
            Inlet::Chunked => {
                push_chunked_end(self.inbound.stage(), self.handle.take_trailers().as_ref());
                self.inlet = Inlet::Over;
            }
            Inlet::Plain | Inlet::Over => {
                self.inlet = Inlet::Over;
                if !std::mem::take(&mut self.is_held) {
                    return self.poll_reset(context).map(Err);
                }
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Waits for the client to give the stream up.
    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.outlet == Outlet::Over { Poll::Pending } else { self.handle.poll_end(context).map(io_error) }
    }

    /// Waits for the end of the stream before its time, whatever lies there to be read.
    pub fn poll_lost(&self, context: &mut Context<'_>) -> Poll<()> {
        self.handle.poll_end(context).map(drop)
    }

    /// Writes an answer's head, whole, and what there is room for of what follows it.
    pub fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut used = 0;
        if self.outlet == Outlet::Head {
            let Some(first) = slices.first() else { return Poll::Ready(Ok(0)) };
            ready!(self.handle.poll_room_for_head(context));
            used = self.write_heads(first)?;
            // The interim ones, or a head with nothing behind it.
            if used == slices.iter().map(|slice| slice.len()).sum::<usize>() {
                return Poll::Ready(Ok(used));
            }
        }
        match self.poll_data(context, slices, used) {
            Poll::Ready(Ok(count)) => Poll::Ready(Ok(used + count)),
            Poll::Pending if used > 0 => Poll::Ready(Ok(used)),
            other => other,
        }
    }

    /// Sends the heads that the bytes begin with, up to the final one.
    fn write_heads(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut used = 0;
        self.answer.fields.reserve(USUAL_FIELDS);
        while self.outlet == Outlet::Head {
            let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) else { break };
            let head = &mut self.answer;
            match parse_response_head(rest, ANSWER_HEAD, self.is_head_request, head) {
                Ok(Parsed::Complete) => {}
                Ok(Parsed::Partial) | Err(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
            used += head.length;
            let is_interim = head.status < 200 && head.status != 101;
            let is_whole = !is_interim && head.body == BodyLength::None && head.status != 101;
            let says_length = !self.leaves_length_out;
            self.handle
                .send_head(is_whole, |encoder, out| push_answer(encoder, out, head, rest, says_length))
                .map_err(io_error)?;
            if is_interim {
                continue;
            }
            self.outlet = match head.body {
                _ if is_whole => Outlet::Over,
                BodyLength::Length(length) => Outlet::Body(Some(length)),
                BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => Outlet::Body(None),
            };
        }
        Ok(used)
    }

    /// Sends of the slices, the first `skip` bytes left out, what there is room for.
    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        mut skip: usize,
    ) -> Poll<io::Result<usize>> {
        let Outlet::Body(left) = &mut self.outlet else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let total = slices.iter().map(|slice| slice.len()).sum::<usize>() - skip;
        let count = ready!(self.handle.poll_room(context, total.min(PIECE_MAX))).map_err(io_error)?;
        let mut is_last = false;
        if let Some(left) = left {
            *left = left.saturating_sub(count as u64);
            is_last = *left == 0;
        }
        let pieces = slices.iter().map(|slice| {
            let rest = slice.get(skip.min(slice.len())..).unwrap_or_default();
            skip = skip.saturating_sub(slice.len());
            rest
        });
        self.handle.send_data(pieces, count, is_last).map_err(io_error)?;
        if is_last {
            self.outlet = Outlet::Over;
        }
        Poll::Ready(Ok(count))
    }

    /// Ends the answer, whose end its head did not say, with trailers as field lines.
    pub fn end(&mut self, trailers: &[u8]) -> io::Result<()> {
        if let Outlet::Body(_) = self.outlet {
            send_end(&self.handle, trailers)?;
            self.outlet = Outlet::Over;
        }
        Ok(())
    }
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        // What was left without an end, as by a panic, must not look like one.
        let unfinished = (self.outlet != Outlet::Over).then_some(H2Reset::INTERNAL_ERROR);
        if let Some(reset) = self.reset.or(unfinished) {
            self.handle.reset(reset);
        }
    }
}
