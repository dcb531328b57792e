//! Connections of HTTP/2 and their streams, both roles: the multiplexer of [`crate::pure::h2::multiplexer`] on a socket, with
//! those who wait.
//!
//! A [`Driver`] moves a connection's bytes and is polled by the task that the connection lives in; a [`Handle`] is one stream,
//! used by whatever task it is in on the same thread. What streams want to send goes out together when the driver's turn comes.
//! It refuses to know what streams carry, and to measure time.

mod link;

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

pub use self::link::{Link, STREAM_WINDOW, STREAMS_MAX};
use crate::base::h2_reset::H2Reset;
use crate::base::time::{self, Timestamp};
use crate::pure::h2::field_rules::Malformed;
use crate::pure::h2::hpack::{Encoder, FieldBlock};
use crate::pure::h2::multiplexer::{Arrival, Multiplexer, News, OwnSettings, StreamEnd, StreamKey};

/// What is read at once.
const READ: usize = 64 * 1024;
/// After so many reads others get a turn.
const READS_MAX: usize = 4;

thread_local! {
    /// Memory to read into, the same for all connections of a thread: what came is looked at, at once.
    static MEMORY: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(READ));
}

/// What a connection's bytes pass through.
pub trait Below {
    /// Reads behind the bytes of `memory`, up to its capacity. `Ok(0)` is the end.
    ///
    /// # Errors
    /// What the system or TLS says.
    fn poll_fill(&mut self, context: &mut Context<'_>, memory: &mut Vec<u8>) -> Poll<io::Result<usize>>;

    /// Writes what it can.
    ///
    /// # Errors
    /// What the system or TLS says.
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends what a layer keeps back.
    ///
    /// # Errors
    /// What the system or TLS says.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Whether the system holds something, or the end, that was not read.
    fn has_arrived(&self) -> bool;
}

/// Who waits for a stream.
#[derive(Debug, Default)]
struct Waiting {
    reads: Option<Waker>,
    writes: Option<Waker>,
}

/// A connection, as its driver and its streams share it.
#[derive(Debug)]
struct Shared {
    multiplexer: RefCell<Multiplexer>,
    /// By a stream's index.
    waiting: RefCell<Vec<Waiting>>,
    news: RefCell<Vec<News>>,
    driver: RefCell<Option<Waker>>,
    /// Whether the driver has been woken and has not had its turn.
    is_driver_due: Cell<bool>,
    heard: Cell<Timestamp>,
    blocked_since: Cell<Option<Timestamp>>,
}

impl Shared {
    /// For streams and others beside the driver, which has its turn then.
    fn with<T>(&self, call: impl FnOnce(&mut Multiplexer) -> T) -> T {
        let result = self.by_driver(call);
        if self.multiplexer.borrow().has_output() {
            self.wake_driver();
        }
        result
    }

    /// For the driver itself, which looks at what there is to send.
    fn by_driver<T>(&self, call: impl FnOnce(&mut Multiplexer) -> T) -> T {
        let mut multiplexer = self.multiplexer.borrow_mut();
        let result = call(&mut multiplexer);
        let has_news = multiplexer.has_news();
        drop(multiplexer);
        if has_news {
            self.tell();
        }
        result
    }

    fn wake_driver(&self) {
        // One that waits for the socket is woken by that.
        if self.blocked_since.get().is_none()
            && !self.is_driver_due.replace(true)
            && let Some(driver) = &*self.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    /// Wakes those whose streams have something to look at.
    fn tell(&self) {
        let mut news = self.news.take();
        self.multiplexer.borrow_mut().take_news(&mut news);
        for news in news.drain(..) {
            match self.waiting_for(news) {
                (Some(one), Some(other)) if one.will_wake(&other) => one.wake(),
                (one, other) => one.into_iter().chain(other).for_each(Waker::wake),
            }
        }
        self.news.replace(news);
    }

    /// Those who wait for that, who wait no more.
    fn waiting_for(&self, News { key, reads, writes }: News) -> (Option<Waker>, Option<Waker>) {
        let mut waiting = self.waiting.borrow_mut();
        let Some(waiting) = waiting.get_mut(key.index()) else { return (None, None) };
        (waiting.reads.take_if(|_| reads), waiting.writes.take_if(|_| writes))
    }

    fn wait(&self, key: StreamKey, context: &Context<'_>, slot: impl FnOnce(&mut Waiting) -> &mut Option<Waker>) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() <= key.index() {
            waiting.resize_with(key.index() + 1, Waiting::default);
        }
        if let Some(waiting) = waiting.get_mut(key.index()) {
            let waker = slot(waiting);
            if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        }
    }

    fn release(&self, key: StreamKey) {
        self.with(|multiplexer| multiplexer.release(key));
        let mut waiting = self.waiting.borrow_mut();
        let gone = waiting.get_mut(key.index()).map(std::mem::take);
        if self.multiplexer.borrow().is_idle() {
            // An idle connection holds nothing.
            *waiting = Vec::new();
            self.news.take();
        }
        drop(waiting);
        drop(gone);
    }
}

/// What moves a connection's bytes.
#[derive(Debug)]
pub struct Driver<B> {
    shared: Owned,
    below: B,
    /// By what it broke.
    error: Option<io::Error>,
}

/// The driver's hold on its connection, which is lost with it.
#[derive(Debug)]
struct Owned(Rc<Shared>);

impl Deref for Owned {
    type Target = Rc<Shared>;

    fn deref(&self) -> &Rc<Shared> {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.by_driver(Multiplexer::lose);
    }
}

impl<B: Below> Driver<B> {
    /// A connection on `below`, of which nothing has been read.
    pub fn new(below: B, own: OwnSettings) -> Self {
        let now = time::now();
        let shared = Shared {
            multiplexer: RefCell::new(Multiplexer::new(own, now)),
            waiting: RefCell::default(),
            news: RefCell::default(),
            driver: RefCell::default(),
            is_driver_due: Cell::new(false),
            heard: Cell::new(now),
            blocked_since: Cell::new(None),
        };
        Self { shared: Owned(Rc::new(shared)), below, error: None }
    }

    /// Looks at the multiplexer.
    pub fn look<T>(&self, call: impl FnOnce(&Multiplexer) -> T) -> T {
        call(&self.shared.multiplexer.borrow())
    }

    /// Gives the multiplexer an order.
    pub fn with<T>(&self, call: impl FnOnce(&mut Multiplexer) -> T) -> T {
        self.shared.with(call)
    }

    /// The next stream that the client has opened.
    pub fn next_opened(&self) -> Option<Handle> {
        let key = self.shared.with(Multiplexer::next_opened)?;
        Some(Handle { shared: Rc::clone(&self.shared), key })
    }

    /// Since when the other side takes nothing of what is to be sent.
    pub fn blocked_since(&self) -> Option<Timestamp> {
        self.shared.blocked_since.get()
    }

    /// The error by which it broke, where it did.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// What is below it, which is nobody else's any more.
    pub fn into_below(self) -> B {
        self.below
    }

    /// Moves bytes both ways as long as it need not wait. Ready: the connection is over, or broken.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.listen(context);
        for _ in 0..READS_MAX {
            self.shared.by_driver(Multiplexer::end_if_faulty);
            if let Err(error) = self.poll_send(context) {
                // What the other side has said before it went is still looked at; it may be why.
                for _ in 0..READS_MAX {
                    match self.poll_receive(context) {
                        Poll::Ready(Ok(1..)) => {}
                        Poll::Ready(Err(cause)) => return self.break_off(Some(cause)),
                        Poll::Ready(Ok(0)) | Poll::Pending => break,
                    }
                }
                return self.break_off(Some(error));
            }
            let (is_over, reads) = self.look(|multiplexer| {
                (multiplexer.is_over(), multiplexer.fault().is_none() && !multiplexer.is_clogged())
            });
            if is_over && self.shared.blocked_since.get().is_none() {
                return Poll::Ready(());
            }
            if is_over || !reads {
                return Poll::Pending;
            }
            match self.poll_receive(context) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) => return self.break_off(None),
                Poll::Ready(Err(error)) => return self.break_off(Some(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn listen(&self, context: &Context<'_>) {
        self.shared.is_driver_due.set(false);
        let mut driver = self.shared.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *driver = Some(context.waker().clone());
        }
    }

    fn break_off(&mut self, error: Option<io::Error>) -> Poll<()> {
        self.error = error;
        self.shared.by_driver(Multiplexer::lose);
        Poll::Ready(())
    }

    /// Sends what lies ready, as far as the other side takes it.
    fn poll_send(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Self { shared, below, .. } = self;
        let mut is_blocked = false;
        let mut multiplexer = shared.multiplexer.borrow_mut();
        let has_output = multiplexer.has_output();
        while multiplexer.has_output() {
            match below.poll_write(context, multiplexer.output()) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => multiplexer.advance(count),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    is_blocked = true;
                    break;
                }
            }
        }
        let has_news = multiplexer.has_news();
        drop(multiplexer);
        if has_news {
            shared.tell();
        }
        if (has_output || shared.blocked_since.get().is_some()) && !is_blocked {
            is_blocked = match below.poll_flush(context) {
                Poll::Ready(flushed) => flushed.map(|()| false)?,
                Poll::Pending => true,
            };
        }
        let since = shared.blocked_since.get();
        shared.blocked_since.set(is_blocked.then(|| since.unwrap_or_else(time::now)));
        Ok(())
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Self { shared, below, .. } = self;
        MEMORY.with_borrow_mut(|memory| {
            memory.clear();
            let count = ready!(below.poll_fill(context, memory))?;
            let now = time::now();
            shared.heard.set(now);
            shared.by_driver(|multiplexer| multiplexer.receive(memory, now));
            Poll::Ready(Ok(count))
        })
    }
}

/// A stream.
#[derive(Debug)]
pub struct Handle {
    shared: Rc<Shared>,
    key: StreamKey,
}

impl Handle {
    /// What is next.
    ///
    /// # Errors
    /// Why nothing will come.
    pub fn poll_arrival(&self, context: &mut Context<'_>) -> Poll<Result<Arrival, StreamEnd>> {
        match self.shared.multiplexer.borrow().arrival(self.key) {
            Ok(Arrival::Nothing) => {}
            arrival => return Poll::Ready(arrival),
        }
        self.shared.wait(self.key, context, |waiting| &mut waiting.reads);
        Poll::Pending
    }

    /// Whether the other side has ended the stream, and neither data nor trailers are left to be taken.
    pub fn is_received(&self) -> bool {
        self.shared.multiplexer.borrow().is_received(self.key)
    }

    /// Takes the head that is next.
    pub fn take_head(&self) -> Option<FieldBlock> {
        self.shared.multiplexer.borrow_mut().take_head(self.key)
    }

    /// So many bytes of data are to come in all, as the stream's head says.
    ///
    /// # Errors
    /// [`Malformed`] where it is known already that they are not so many.
    pub fn expect(&self, length: u64) -> Result<(), Malformed> {
        self.shared.multiplexer.borrow_mut().expect(self.key, length)
    }

    /// Takes the trailers, where all else has been taken.
    pub fn take_trailers(&self) -> Option<FieldBlock> {
        self.shared.multiplexer.borrow_mut().take_trailers(self.key)
    }

    /// Takes data: at most `most` bytes go behind those of `out`, and the other side may send as much again.
    pub fn take_data(&self, out: &mut Vec<u8>, most: usize) -> usize {
        self.shared.with(|multiplexer| multiplexer.take_data(self.key, out, most))
    }

    /// Throws away the data that has come.
    pub fn discard(&self) {
        self.shared.with(|multiplexer| multiplexer.discard(self.key));
    }

    /// Waits for room for some of `wanted` bytes of data, and says for how many there is.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn poll_room(&self, context: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, StreamEnd>> {
        // Who has no use for its turn hands it on.
        let room = self.shared.by_driver(|multiplexer| multiplexer.room(self.key, wanted));
        if room == Ok(0) && wanted > 0 {
            self.shared.wait(self.key, context, |waiting| &mut waiting.writes);
            return Poll::Pending;
        }
        Poll::Ready(room)
    }

    /// Waits until a head may be sent.
    pub fn poll_room_for_head(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.multiplexer.borrow_mut().has_room_for_head(self.key) {
            return Poll::Ready(());
        }
        self.shared.wait(self.key, context, |waiting| &mut waiting.writes);
        Poll::Pending
    }

    /// Sends a head, or trailers, whose fields `write` writes; `is_last`: our side ends with it.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn send_head(&self, is_last: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) -> Result<(), StreamEnd> {
        self.shared.with(|multiplexer| multiplexer.send_head(self.key, is_last, write))
    }

    /// Sends the first `count` bytes of pieces that lie one behind the other, for which there is room.
    ///
    /// # Errors
    /// Where the stream takes nothing more.
    pub fn send_data<'p>(
        &self,
        pieces: impl IntoIterator<Item = &'p [u8]>,
        count: usize,
        is_last: bool,
    ) -> Result<(), StreamEnd> {
        self.shared.with(|multiplexer| multiplexer.send_data(self.key, pieces, count, is_last))
    }

    /// Resets the stream, where it has not ended.
    pub fn reset(&self, code: H2Reset) {
        self.shared.with(|multiplexer| multiplexer.reset(self.key, code));
    }

    /// The code by which the stream was reset, where it was.
    pub fn reset_by(&self) -> Option<H2Reset> {
        match self.shared.multiplexer.borrow().end_of(self.key) {
            Some(StreamEnd::Reset(code)) => Some(code),
            Some(StreamEnd::Refused | StreamEnd::Malformed | StreamEnd::Lost) | None => None,
        }
    }

    /// Waits for the stream's end before both sides have ended it.
    pub fn poll_end(&self, context: &mut Context<'_>) -> Poll<StreamEnd> {
        match self.shared.multiplexer.borrow().end_of(self.key) {
            Some(end) => Poll::Ready(end),
            None => {
                self.shared.wait(self.key, context, |waiting| &mut waiting.reads);
                Poll::Pending
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.release(self.key);
    }
}
