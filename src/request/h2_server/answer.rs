//! A server's answer on its way back: its frames become HTTP/1.1, in the order they came and at the pace they are read.
//! The server may send more only when what it sent has been taken.

use std::task::{Context, Poll, ready};

use crate::pure::h2::hpack::FieldBlock;
use crate::pure::h2::multiplexer::Arrival;
use crate::pure::h2::server_answer::{AnswerBody, Circumstances, push_head, push_interim, push_switch, status_of};
use crate::pure::h2::trailers::push_chunked_end;
use crate::request::h2_body::Inbound;
use crate::request::h2_server::Fault;
use crate::transport::h2::Handle;

/// What a head is larger in HTTP/1.1 by than its fields are, at most: the start line and the framing.
const MORE: usize = 128;

/// What the request asked for.
#[derive(Debug)]
pub enum Expected {
    /// An answer.
    Answer {
        /// Whether to HEAD.
        is_to_head: bool,
    },
    /// A tunnel, or an answer where the server does not want it.
    Switch {
        /// Its protocol.
        protocol: String,
        /// What answers a WebSocket's key.
        accept: Option<String>,
    },
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    state: State,
    /// What is to be read.
    inbound: Inbound,
    /// Whether the head is held back: it says that there is no data, with it the answer is whole for a client, and until the
    /// server has ended the stream it may turn out malformed.
    is_held: bool,
    /// Whether its length is said by us alone.
    is_length_ours: bool,
    /// What follows what was read, once that has been taken.
    fault: Option<Fault>,
}

#[derive(Debug, Default)]
enum State {
    /// The request has not gone.
    #[default]
    Unsent,
    Head(Expected),
    Body(AnswerBody),
    Tunnel,
    Ended,
}

impl Answer {
    /// The request has gone.
    pub fn begin(&mut self, expected: Expected) {
        self.state = State::Head(expected);
    }

    /// Puts what there is behind the bytes of `room`, up to its capacity, which is not reached yet. 0: the answer has ended.
    ///
    /// # Errors
    /// [`Fault`], after everything that came before it was read.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        stream: &Handle,
        room: &mut Vec<u8>,
    ) -> Poll<Result<usize, Fault>> {
        let mut count = 0;
        loop {
            let most = room.capacity() - room.len();
            if !self.is_held {
                count += self.inbound.give(room, most, |out, most| stream.take_data(out, most));
            }
            if room.len() >= room.capacity() {
                return Poll::Ready(Ok(count));
            }
            if let Some(fault) = self.fault {
                return Poll::Ready(if count > 0 { Ok(count) } else { Err(fault) });
            }
            match self.poll_next(context, stream) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(count)),
                Poll::Ready(Err(fault)) => self.fail(fault),
                Poll::Pending if count > 0 => return Poll::Ready(Ok(count)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Waits until a read would not.
    pub fn poll_readable(&mut self, context: &mut Context<'_>, stream: &Handle) -> Poll<()> {
        while (self.is_held || self.inbound.is_empty()) && self.fault.is_none() {
            match ready!(self.poll_next(context, stream)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => self.fail(fault),
            }
        }
        Poll::Ready(())
    }

    /// Whether the final head has come, given or not.
    pub const fn has_head(&self) -> bool {
        !matches!(self.state, State::Unsent | State::Head(_))
    }

    /// Whether the answer did not say its length, and its head in HTTP/1.1 does.
    pub const fn is_length_ours(&self) -> bool {
        self.is_length_ours
    }

    fn fail(&mut self, fault: Fault) {
        self.fault = Some(fault);
        if std::mem::take(&mut self.is_held) {
            self.inbound = Inbound::default();
        }
    }

    /// Makes bytes of what comes next on the stream. False: nothing comes.
    fn poll_next(&mut self, context: &mut Context<'_>, stream: &Handle) -> Poll<Result<bool, Fault>> {
        match &self.state {
            // The exchange writes before it reads.
            State::Unsent => return Poll::Pending,
            State::Ended => return Poll::Ready(Ok(false)),
            State::Head(_) | State::Body(_) | State::Tunnel => {}
        }
        loop {
            match (ready!(stream.poll_arrival(context))?, &mut self.state) {
                (Arrival::Head, State::Head(_)) => {
                    let Some(fields) = stream.take_head() else { return Poll::Ready(Err(Fault::Malformed)) };
                    self.take_head(&fields, stream)?;
                    return Poll::Ready(Ok(true));
                }
                (Arrival::Data(_), State::Body(AnswerBody::None)) => {
                    // Such an answer has none (RFC 9110 6.4.1), whatever comes.
                    stream.discard();
                }
                (Arrival::Data(count), State::Body(body)) => {
                    self.inbound.put(count, *body == AnswerBody::Chunked);
                    return Poll::Ready(Ok(true));
                }
                (Arrival::Data(count), State::Tunnel) => {
                    self.inbound.put(count, false);
                    return Poll::Ready(Ok(true));
                }
                (Arrival::End, State::Body(body)) => {
                    let is_chunked = *body == AnswerBody::Chunked;
                    let was_held = std::mem::take(&mut self.is_held);
                    self.state = State::Ended;
                    if is_chunked {
                        push_chunked_end(self.inbound.stage(), stream.take_trailers().as_ref());
                    }
                    return Poll::Ready(Ok(is_chunked || was_held));
                }
                (Arrival::End, State::Tunnel) => {
                    self.state = State::Ended;
                    return Poll::Ready(Ok(false));
                }
                (Arrival::Nothing, _) => return Poll::Pending,
                // Data before the head, an end without one, a head in a body.
                (_, _) => return Poll::Ready(Err(Fault::Malformed)),
            }
        }
    }

    fn take_head(&mut self, fields: &FieldBlock, stream: &Handle) -> Result<(), Fault> {
        let status = status_of(fields)?;
        self.inbound.stage().reserve(fields.size() + MORE);
        if status < 200 {
            return Ok(push_interim(self.inbound.stage(), status, fields)?);
        }
        let State::Head(expected) = std::mem::take(&mut self.state) else { return Ok(()) };
        let is_to_head = match expected {
            Expected::Answer { is_to_head } => is_to_head,
            Expected::Switch { protocol, accept } if status < 300 => {
                push_switch(self.inbound.stage(), fields, &protocol, accept.as_deref());
                self.state = State::Tunnel;
                return Ok(());
            }
            Expected::Switch { .. } => false,
        };
        let is_ended = stream.is_received();
        let circumstances = Circumstances { is_to_head, is_ended };
        let body = push_head(self.inbound.stage(), status, fields, circumstances)?;
        if let Some(length) = body.length
            && let Err(malformed) = stream.expect(length)
        {
            // Nothing of it has gone yet, and nothing will.
            self.inbound = Inbound::default();
            return Err(malformed.into());
        }
        self.is_held = body.length == Some(0) && !is_ended;
        self.is_length_ours = body.is_length_ours;
        self.state = State::Body(body.framing);
        Ok(())
    }
}
