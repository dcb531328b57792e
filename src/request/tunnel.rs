//! A tunnel: after a 101 both sides' bytes pass as they are, each direction ends by itself, and a pause costs no buffer.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::h1::body::BodyLength;
use crate::request::buffers::Grant;
use crate::request::connection::{Connection, Next};
use crate::request::exchange::channel::{Channel, LOOK_EVERY, ServerEnd};
use crate::request::exchange::flow::{FlowError, Framing, Wait};
use crate::request::exchange::scratch::Scratch;
use crate::request::stream::Stream as _;

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// Both directions ended.
    Ended,
    /// One side broke.
    Broken,
    /// One side took nothing any more behind the end of its own direction.
    Left,
    /// No byte moved for too long.
    TimedOut,
    /// The process ends, and waits no longer.
    Stopped,
}

impl TunnelEnd {
    /// The token in the access log, where it is not the usual end.
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Ended => None,
            Self::Broken | Self::Left => Some("tunnel-broken"),
            Self::TimedOut => Some("tunnel-timeout"),
            Self::Stopped => Some("stopped"),
        }
    }

    /// What becomes of the client's connection.
    pub const fn next(self) -> Next {
        match self {
            Self::Ended => Next::Drop,
            // What was sent is whole, and may still be on its way.
            Self::Left => Next::Linger,
            Self::Broken | Self::TimedOut | Self::Stopped => Next::Abort,
        }
    }
}

/// Which directions have ended, and told the receiving side so.
#[derive(Clone, Copy, Debug, Default)]
struct Shut {
    to_server: bool,
    to_client: bool,
}

impl Shut {
    /// Whether one has.
    const fn is_half(self) -> bool {
        self.to_server != self.to_client
    }
}

/// Carries bytes between the two sides of a channel until both directions have ended.
pub async fn carry(channel: &mut Channel<'_>, grant: &Grant, patience: Duration) -> TunnelEnd {
    let Some(server) = &mut channel.server else { return TunnelEnd::Broken };
    let mut tunnel = Tunnel {
        connection: channel.connection,
        client_buffer: channel.client_buffer,
        server,
        scratch: channel.scratch,
        shut: Shut::default(),
        patience,
        until: Timestamp::NEVER,
    };
    tunnel.scratch.upload.start(BodyLength::UntilClose, Framing::Bare, u64::MAX);
    tunnel.scratch.download.start(BodyLength::UntilClose, Framing::Bare, u64::MAX);
    tunnel.restart_clock();
    loop {
        match poll_fn(|context| tunnel.poll_busy(context)).await {
            Ok(true) => break TunnelEnd::Ended,
            Ok(false) => {}
            Err(error) => break end_by(&error),
        }
        tunnel.client_buffer.release();
        tunnel.server.buffer.release();
        grant.suspend();
        if let Err(error) = poll_fn(|context| tunnel.poll_pause(context)).await {
            break end_by(&error);
        }
        let mut resume = pin!(grant.resume());
        let resumed = poll_fn(|context| match resume.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => tunnel.poll_deadline(context),
        });
        if let Err(error) = resumed.await {
            break end_by(&error);
        }
    }
}

fn end_by(error: &io::Error) -> TunnelEnd {
    match error.kind() {
        io::ErrorKind::TimedOut => TunnelEnd::TimedOut,
        io::ErrorKind::Interrupted => TunnelEnd::Stopped,
        io::ErrorKind::ConnectionAborted => TunnelEnd::Left,
        _ => TunnelEnd::Broken,
    }
}

struct Tunnel<'c> {
    connection: &'c mut Connection,
    client_buffer: &'c mut crate::request::buffers::Buffer,
    server: &'c mut ServerEnd,
    scratch: &'c mut Scratch,
    shut: Shut,
    patience: Duration,
    /// When the wait for a byte is over; the sides may be looked at before.
    until: Timestamp,
}

impl Tunnel<'_> {
    fn restart_clock(&mut self) {
        self.until = self.connection.worker.now() + self.patience;
        self.arm();
    }

    fn arm(&self) {
        let look = if self.shut.is_half() { self.connection.worker.now() + LOOK_EVERY } else { Timestamp::NEVER };
        self.connection.deadline.set(self.until.min(look));
    }

    /// Times out where no byte has moved for too long.
    fn poll_deadline(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.connection.worker.is_stopping() {
            return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
        }
        while self.connection.deadline.poll_expired(context) {
            if self.connection.worker.now() >= self.until {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if self.has_gone() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            self.arm();
        }
        Poll::Pending
    }

    /// Whether a side that has ended its own direction takes nothing either. One of HTTP/2 tells by [`Self::poll_lost`].
    fn has_gone(&self) -> bool {
        (self.shut.to_server && self.connection.stream.has_gone(true))
            || (self.shut.to_client && self.server.stream.has_gone())
    }

    /// Moves bytes until there are none. True: both directions have ended.
    fn poll_busy(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let was_half = self.shut.is_half();
        if self.poll_carry(context)? {
            return Poll::Ready(Ok(true));
        }
        if self.scratch.upload.take_moved() | self.scratch.download.take_moved() {
            self.restart_clock();
        } else if self.shut.is_half() != was_half {
            self.arm();
        }
        // Also before a pause: what only wakes the tunnel up, as a part of a record does, is no reason to wait longer.
        if let Poll::Ready(timed_out) = self.poll_deadline(context) {
            timed_out?;
        }
        if self.is_busy() { Poll::Pending } else { Poll::Ready(Ok(false)) }
    }

    /// Whether bytes, or the end of a direction, are on their way. What a side has not taken may lie in a layer below, where
    /// only the flow that waits for it knows.
    fn is_busy(&self) -> bool {
        let Scratch { upload, download, .. } = &*self.scratch;
        !(self.client_buffer.is_empty() && self.server.buffer.is_empty() && upload.is_empty() && download.is_empty())
            || upload.wait() == Wait::Receiver
            || download.wait() == Wait::Receiver
            || (upload.is_ended() && !self.shut.to_server)
            || (download.is_ended() && !self.shut.to_client)
    }

    /// Moves what can be moved now. True: both directions have ended.
    fn poll_carry(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let client = &mut self.connection.stream;
        let ServerEnd { stream: server, buffer: server_buffer } = &mut *self.server;
        let Scratch { upload, download, .. } = &mut *self.scratch;
        if !self.shut.to_server
            && let Poll::Ready(moved) = upload.poll_move(context, client, self.client_buffer, server, &mut |_| {})
        {
            moved.map_err(|_| broken())?;
            self.shut.to_server = is_shut(server.poll_shutdown(context))?;
        }
        if !self.shut.to_client
            && let Poll::Ready(moved) = download.poll_move(context, server, server_buffer, client, &mut |_| {})
        {
            moved.map_err(|error| {
                if let FlowError::Read(error) = &error {
                    client.note_reset(error);
                }
                broken()
            })?;
            self.shut.to_client = is_shut(client.poll_shutdown(context))?;
        }
        if self.shut.to_server && self.shut.to_client {
            return Ok(true);
        }
        if self.poll_lost(context).is_ready() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(false) }
    }

    /// Notices that a side which has ended its own direction, and is not read any more, has given up the other one too.
    fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.shut.to_server && self.connection.stream.poll_lost(context).is_ready() {
            return Poll::Ready(());
        }
        if !self.shut.to_client {
            return Poll::Pending;
        }
        self.server.stream.poll_reset(context).map(|reset| self.connection.stream.note_reset(&reset))
    }

    /// Waits, with no buffer in hand, until either side has something to read.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut.to_server && self.connection.stream.poll_readable(context)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !self.shut.to_client && self.server.stream.poll_readable(context)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.poll_lost(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        self.poll_deadline(context)
    }
}

/// A side that is gone already has been told enough.
fn is_shut(shut: Poll<io::Result<()>>) -> io::Result<bool> {
    match shut {
        Poll::Ready(Ok(())) => Ok(true),
        Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(true),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(false),
    }
}
