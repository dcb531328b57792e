//! A server's answer on its way back: its frames become HTTP/1.1, in the order they came and at the pace they are read.
//! The server may send more only when what it sent has been taken.

use std::task::{Context, Poll, ready};

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::Response;

use crate::pure::h2::server_answer::{AnswerBody, Circumstances, push_head, push_interim, push_switch};
use crate::pure::h2::trailers::push_chunked_end;
use crate::request::h2_body::Inbound;
use crate::request::h2_server::Fault;

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
    /// What follows what was read, once that has been taken.
    fault: Option<Fault>,
}

#[derive(Debug, Default)]
enum State {
    /// The request has not gone.
    #[default]
    Unsent,
    Head(ResponseFuture, Expected),
    Body(RecvStream, AnswerBody),
    Tunnel(RecvStream),
    Ended,
}

impl Answer {
    /// The request has gone.
    pub fn begin(&mut self, answer: ResponseFuture, expected: Expected) {
        self.state = State::Head(answer, expected);
    }

    /// Puts what there is behind the bytes of `room`, up to its capacity, which is not reached yet. 0: the answer has ended.
    ///
    /// # Errors
    /// [`Fault`], after everything that came before it was read.
    pub fn poll_read(&mut self, context: &mut Context<'_>, room: &mut Vec<u8>) -> Poll<Result<usize, Fault>> {
        let mut count = 0;
        loop {
            count += self.give(room);
            if room.len() >= room.capacity() {
                return Poll::Ready(Ok(count));
            }
            if let Some(fault) = self.fault {
                return Poll::Ready(if count > 0 { Ok(count) } else { Err(fault) });
            }
            match self.poll_next(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(count)),
                Poll::Ready(Err(fault)) => self.fault = Some(fault),
                Poll::Pending if count > 0 => return Poll::Ready(Ok(count)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Waits until a read would not.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.inbound.is_empty() && self.fault.is_none() {
            match ready!(self.poll_next(context)) {
                Ok(_) => {}
                Err(fault) => self.fault = Some(fault),
            }
        }
        Poll::Ready(())
    }

    /// Gives what is there and has room, and lets the server send as much data again.
    fn give(&mut self, room: &mut Vec<u8>) -> usize {
        let most = room.capacity() - room.len();
        self.inbound.give(room, most, |data| {
            if let State::Body(body, _) | State::Tunnel(body) = &mut self.state {
                // It fails only where more is given back than was taken.
                let _ = body.flow_control().release_capacity(data);
            }
        })
    }

    /// Makes bytes of what comes next on the stream. False: nothing comes.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Fault>> {
        loop {
            match &mut self.state {
                // The exchange writes before it reads.
                State::Unsent => return Poll::Pending,
                State::Ended => return Poll::Ready(Ok(false)),
                State::Head(answer, _) => {
                    if let Some(interim) = ready!(answer.poll_informational(context)) {
                        let interim = interim.map_err(|error| Fault::of(&error))?;
                        push_interim(self.inbound.stage(), interim.status(), interim.headers())
                            .map_err(|_| Fault::Malformed)?;
                        return Poll::Ready(Ok(true));
                    }
                    let answer = ready!(std::pin::Pin::new(answer).poll(context)).map_err(|error| Fault::of(&error))?;
                    self.begin_body(answer)?;
                    return Poll::Ready(Ok(true));
                }
                State::Body(body, framing) => {
                    let Some(data) = ready!(body.poll_data(context)) else { return self.poll_end(context) };
                    let data = data.map_err(|error| Fault::of(&error))?;
                    if data.is_empty() {
                        continue;
                    }
                    if *framing == AnswerBody::None {
                        // Such an answer has none (RFC 9110 6.4.1), whatever comes.
                        let _ = body.flow_control().release_capacity(data.len());
                        continue;
                    }
                    self.inbound.put(data, *framing == AnswerBody::Chunked);
                    return Poll::Ready(Ok(true));
                }
                State::Tunnel(body) => match ready!(body.poll_data(context)) {
                    Some(Ok(data)) if data.is_empty() => {}
                    Some(Ok(data)) => {
                        self.inbound.put(data, false);
                        return Poll::Ready(Ok(true));
                    }
                    Some(Err(error)) => return Poll::Ready(Err(Fault::of(&error))),
                    None => self.state = State::Ended,
                },
            }
        }
    }

    fn begin_body(&mut self, answer: Response<RecvStream>) -> Result<(), Fault> {
        let (parts, body) = answer.into_parts();
        let State::Head(_, expected) = std::mem::take(&mut self.state) else { return Ok(()) };
        let is_to_head = match expected {
            Expected::Answer { is_to_head } => is_to_head,
            Expected::Switch { protocol, accept } if parts.status.is_success() => {
                push_switch(self.inbound.stage(), &parts.headers, &protocol, accept.as_deref());
                self.state = State::Tunnel(body);
                return Ok(());
            }
            Expected::Switch { .. } => false,
        };
        let circumstances = Circumstances { is_to_head, is_ended: body.is_end_stream() };
        let framing = push_head(self.inbound.stage(), parts.status, &parts.headers, circumstances);
        self.state = State::Body(body, framing.map_err(|_| Fault::Malformed)?);
        Ok(())
    }

    /// The data has ended: trailers may follow.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, Fault>> {
        let State::Body(body, framing) = &mut self.state else { return Poll::Ready(Ok(false)) };
        let trailers = ready!(body.poll_trailers(context)).map_err(|error| Fault::of(&error))?;
        let is_chunked = *framing == AnswerBody::Chunked;
        if is_chunked {
            push_chunked_end(self.inbound.stage(), trailers.as_ref());
        }
        self.state = State::Ended;
        Poll::Ready(Ok(is_chunked))
    }
}
