//! A socket with no layer above it: reads and writes that cost less than the runtime's own.
//!
//! They go to the system without the C library, whose calls are points of cancellation in a process of several threads, and
//! they cost a task none of its turn. What comes or goes in large pieces takes the runtime's way, which makes a task give way to
//! the others after a while. It refuses to buffer, and to wait.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::libc;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::io::poll_read_buf;

/// Up to this size a write costs a task none of its turn.
const TRY_MAX: usize = 16 * 1024;

/// A stream socket of the runtime.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Calls `call` where the runtime does not know that it would have to wait, and takes note where it would.
    ///
    /// # Errors
    /// `WouldBlock`, and what `call` says.
    fn try_io<T>(&self, interest: Interest, call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T>;

    /// Waits until a read would not have to wait.
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until a write would not have to wait.
    fn poll_write_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

macro_rules! impl_socket {
    ($($socket:ty),*) => {$(
        impl Socket for $socket {
            #[inline]
            fn try_io<T>(
                &self,
                interest: Interest,
                call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
            ) -> io::Result<T> {
                Self::try_io(self, interest, || call(self.as_fd()))
            }

            #[inline]
            fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_read_ready(self, context)
            }

            #[inline]
            fn poll_write_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                Self::poll_write_ready(self, context)
            }
        }
    )*};
}

impl_socket!(TcpStream, UnixStream);

/// Whether the system holds something, or the end, that was not read.
pub fn has_arrived(socket: &SockRef<'_>) -> bool {
    let seen = socket.peek(&mut [MaybeUninit::uninit()]);
    !matches!(seen, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Has a listening socket keep connections of which nothing has come to itself, for so many seconds (tcp(7),
/// `TCP_DEFER_ACCEPT`).
///
/// # Errors
/// What the system says.
pub fn defer_accept(socket: &impl AsFd, seconds: i32) -> io::Result<()> {
    const SIZE: libc::socklen_t = size_of::<i32>() as libc::socklen_t;
    let (descriptor, value) = (socket.as_fd().as_raw_fd(), &raw const seconds);
    // SAFETY: the descriptor is open as long as `socket` is, and the system reads one number from where `seconds` is.
    match unsafe { libc::setsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value.cast(), SIZE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the other side has ended the connection, whatever it has sent before; `by_both`: only where it takes nothing either.
pub fn has_ended(socket: &SockRef<'_>, by_both: bool) -> bool {
    let wanted = if by_both { PollFlags::empty() } else { PollFlags::RDHUP };
    let mut polled = [PollFd::new(&**socket, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Of an end of both sides, and of an error, the system tells unasked.
    let is_told = poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0);
    is_told && polled.iter().any(|polled| !polled.revents().is_empty())
}

/// Reads into `room`. `is_streaming`: reads fill their room, one after the other, and others must get a turn in between.
/// `Ok(0)` is the end.
///
/// # Errors
/// What the system says.
pub fn poll_read<S: Socket>(
    socket: &mut S,
    context: &mut Context<'_>,
    room: &mut [u8],
    is_streaming: bool,
) -> Poll<io::Result<usize>> {
    if is_streaming {
        let mut room = ReadBuf::new(room);
        ready!(Pin::new(socket).poll_read(context, &mut room))?;
        return Poll::Ready(Ok(room.filled().len()));
    }
    let size = room.len();
    poll_try_read(socket, context, size, |socket| rustix::net::recv(socket, &mut *room, RecvFlags::empty()))
}

/// The same behind the bytes of `memory`, up to its capacity.
///
/// # Errors
/// What the system says.
pub fn poll_read_behind<S: Socket>(
    socket: &mut S,
    context: &mut Context<'_>,
    memory: &mut Vec<u8>,
    is_streaming: bool,
) -> Poll<io::Result<usize>> {
    if is_streaming {
        return poll_read_buf(Pin::new(socket), context, memory);
    }
    let size = memory.capacity() - memory.len();
    poll_try_read(socket, context, size, |socket| rustix::net::recv(socket, spare_capacity(memory), RecvFlags::empty()))
}

/// Reads, at most `size` bytes, without a look at how much of its turn the task has had.
fn poll_try_read<S: Socket>(
    socket: &mut S,
    context: &mut Context<'_>,
    size: usize,
    mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut count = 0;
        let tried = socket.try_io(Interest::READABLE, |socket| {
            count = read(socket)?.0;
            // After a short read nothing is left: the runtime is told so, which saves the read that would find it out.
            if 0 < count && count < size { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match tried {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
            Err(_) if count == 0 => ready!(socket.poll_read_ready(context))?,
            Ok(()) | Err(_) => return Poll::Ready(Ok(count)),
        }
    }
}

/// Writes what it can of the slices.
///
/// # Errors
/// What the system says.
#[inline]
pub fn poll_write<S: Socket>(
    socket: &mut S,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    poll_send(socket, context, slices, SendFlags::NOSIGNAL)
}

/// The same of the last bytes before our end, which has to follow at once: the system keeps what fills no packet, so that it
/// goes in one with the end. Only of what is small and in one piece; the rest goes as usual.
///
/// # Errors
/// What the system says.
#[inline]
pub fn poll_write_last<S: Socket>(
    socket: &mut S,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    poll_send(socket, context, slices, SendFlags::NOSIGNAL | SendFlags::MORE)
}

fn poll_send<S: Socket>(
    socket: &mut S,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
    flags: SendFlags,
) -> Poll<io::Result<usize>> {
    let length = match slices {
        [only] => only.len(),
        _ => slices.iter().map(|slice| slice.len()).sum(),
    };
    if length > TRY_MAX {
        return match slices {
            [only] => Pin::new(socket).poll_write(context, only),
            _ => Pin::new(socket).poll_write_vectored(context, slices),
        };
    }
    loop {
        let written = socket.try_io(Interest::WRITABLE, |socket| {
            Ok(match slices {
                [only] => rustix::net::send(socket, only, flags)?,
                _ => rustix::io::writev(socket, slices)?,
            })
        });
        match written {
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(socket.poll_write_ready(context))?,
            written => return Poll::Ready(written),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn read(socket: &mut UnixStream, size: usize, is_streaming: bool) -> Vec<u8> {
        let mut memory = Vec::with_capacity(size);
        let count = poll_fn(|context| poll_read_behind(socket, context, &mut memory, is_streaming)).await.unwrap();
        assert_eq!(memory.len(), count);
        memory
    }

    #[tokio::test]
    async fn an_end_is_seen_past_what_was_not_read() {
        for by_both in [false, true] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"unread").await.unwrap();
            assert!(!has_ended(&SockRef::from(&ours), by_both));
            theirs.shutdown().await.unwrap();
            assert_eq!(has_ended(&SockRef::from(&ours), by_both), !by_both);
            drop(theirs);
            assert!(has_ended(&SockRef::from(&ours), by_both));
        }
    }

    #[tokio::test]
    async fn what_comes_after_a_short_read_is_read() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        for is_streaming in [false, true] {
            for text in [&b"some"[..], b"more"] {
                theirs.write_all(text).await.unwrap();
                assert_eq!(read(&mut ours, 64, is_streaming).await, text);
                theirs.write_all(text).await.unwrap();
                let mut room = [0; 64];
                let count = poll_fn(|context| poll_read(&mut ours, context, &mut room, is_streaming)).await.unwrap();
                assert_eq!(&room[..count], text);
            }
            theirs.write_all(b"in three").await.unwrap();
            assert_eq!(read(&mut ours, 3, is_streaming).await, b"in ");
            assert_eq!(read(&mut ours, 3, is_streaming).await, b"thr");
            assert_eq!(read(&mut ours, 3, is_streaming).await, b"ee");
            let mut context = Context::from_waker(Waker::noop());
            assert!(poll_read(&mut ours, &mut context, &mut [0; 3], is_streaming).is_pending());
        }
        theirs.write_all(b"last").await.unwrap();
        drop(theirs);
        assert_eq!(read(&mut ours, 64, false).await, b"last", "the end came with it");
        assert_eq!(read(&mut ours, 3, false).await, b"");
        assert_eq!(read(&mut ours, 3, true).await, b"");
    }

    #[tokio::test]
    async fn a_write_stops_where_nobody_reads_and_goes_on_where_somebody_does() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        for size in [1000, TRY_MAX, 3 * TRY_MAX] {
            let bytes = vec![7; size];
            let slices = [IoSlice::new(&bytes), IoSlice::new(b"end")];
            for slices in [&slices[..], &slices[..1]] {
                let mut written = 0;
                let mut context = Context::from_waker(Waker::noop());
                while let Poll::Ready(count) = poll_write(&mut ours, &mut context, slices) {
                    written += count.unwrap();
                }
                let mut seen = 0;
                while seen < written {
                    seen += read(&mut theirs, 100_000, false).await.len();
                }
                assert_eq!(seen, written);
                written = poll_fn(|context| poll_write(&mut ours, context, slices)).await.unwrap();
                while written > 0 {
                    written -= read(&mut theirs, 100_000, false).await.len();
                }
            }
        }
    }

    #[tokio::test]
    async fn a_write_to_one_that_is_gone_is_an_error_and_no_signal() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        for slices in [&[IoSlice::new(b"a")][..], &[IoSlice::new(b"a"), IoSlice::new(b"b")][..]] {
            let error = poll_fn(|context| poll_write(&mut ours, context, slices)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    }
}
