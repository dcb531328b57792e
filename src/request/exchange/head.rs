//! Reading a request's head: as little as possible while it is not whole, and never for longer or larger than allowed.

use std::future::poll_fn;
use std::task::Poll;

use crate::pure::h1::request::{HeadLimits, Parsed, RequestHead, parse_request_head};
use crate::request::buffers::Buffer;
use crate::request::connection::Connection;
use crate::request::exchange::failure::Failure;
use crate::request::stream::{ClientStream, Stream as _};

/// How the wait for a head ended.
#[derive(Debug)]
pub enum HeadRead {
    /// It is whole and well formed.
    Whole,
    /// Nothing came: the connection is as idle as before.
    Nothing,
    /// The client ended the connection between two requests.
    End,
}

/// Reads until the buffer begins with a whole head.
///
/// # Errors
/// [`Failure`] where the head is malformed, too large or too slow, or the client went away in the middle of it.
pub async fn read(
    connection: &mut Connection,
    buffer: &mut Buffer,
    head: &mut RequestHead,
) -> Result<HeadRead, Failure> {
    if let ClientStream::H2(stream) = &connection.stream
        && let Some(refusal) = stream.refusal()
    {
        return Err(refusal.into());
    }
    let limits = connection.listener.config.limits;
    let head_limits = limits.of_heads();
    // A stream begins with its head, which may be held back all the same.
    let mut has_begun = !buffer.is_empty() || connection.is_stream();
    if !buffer.is_empty() && parse(buffer, head_limits, head)? {
        return Ok(HeadRead::Whole);
    }
    let mut is_timed = false;
    poll_fn(|context| {
        loop {
            if !buffer.has_room() && !buffer.grow_for_head(head_limits.bytes) {
                return Poll::Ready(Err(Failure::NoMemory));
            }
            match connection.stream.poll_fill(context, buffer) {
                Poll::Ready(Ok(0) | Err(_)) if !has_begun => return Poll::Ready(Ok(HeadRead::End)),
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Poll::Ready(Err(Failure::ClientGone)),
                Poll::Ready(Ok(_)) => {
                    has_begun = true;
                    match parse(buffer, head_limits, head) {
                        Ok(true) => return Poll::Ready(Ok(HeadRead::Whole)),
                        Ok(false) => {}
                        Err(failure) => return Poll::Ready(Err(failure)),
                    }
                }
                Poll::Pending if !has_begun => return Poll::Ready(Ok(HeadRead::Nothing)),
                Poll::Pending => {
                    if !is_timed {
                        is_timed = true;
                        connection.deadline.set(connection.worker.now() + limits.header_timeout);
                    }
                    if connection.deadline.poll_expired(context) {
                        return Poll::Ready(Err(Failure::HeadTimeout));
                    }
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

fn parse(buffer: &Buffer, limits: HeadLimits, head: &mut RequestHead) -> Result<bool, Failure> {
    Ok(parse_request_head(buffer.bytes(), limits, head)? == Parsed::Complete)
}
