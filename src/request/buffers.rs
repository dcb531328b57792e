//! Buffers of one worker: borrowed for as long as bytes are in them, never owned by an idle connection.
//!
//! A buffer is 20 KiB: a head and a body of 16 KiB, which servers like to send, come with one read and leave with one write; one that two reads in a row have filled grows to 256 KiB where memory allows, and shrinks when its
//! stream stalls. All of a worker's buffers together stay under `buffer-memory`: a [`Grant`] is taken before a head is
//! read and covers one buffer in each direction, so that an admitted exchange never waits for memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::base::units::Bytes;
use crate::request::spares::Spares;

/// The size of a buffer.
pub const SMALL: usize = 20 * 1024;
/// The size of a buffer that its stream keeps filling.
pub const LARGE: usize = 256 * 1024;
/// What an exchange is granted.
const GRANT: usize = 2 * SMALL;
/// Free small buffers that a worker keeps though nobody has needed them lately: 320 KiB of them.
const SPARE: usize = 16;
/// Free large buffers that a worker keeps for a while: 4 MiB of them.
const FREE_LARGE_MAX: usize = 16;

/// A worker's buffer memory.
#[derive(Debug)]
pub struct BufferPool {
    small: RefCell<Spares<Vec<u8>>>,
    large: RefCell<Spares<Vec<u8>>>,
    granted: Cell<usize>,
    limit: usize,
    /// Those who wait for memory, by the number of their turn; each until it has some or gives up.
    waiting: RefCell<BTreeMap<u64, Waker>>,
    next_waiter: Cell<u64>,
}

impl BufferPool {
    /// A pool that hands out at most `memory` at a time; at least one exchange always fits.
    pub fn new(memory: Bytes) -> Rc<Self> {
        Rc::new(Self {
            small: RefCell::default(),
            large: RefCell::default(),
            granted: Cell::new(0),
            limit: memory.as_usize().max(GRANT),
            waiting: RefCell::default(),
            next_waiter: Cell::default(),
        })
    }

    /// Memory for an exchange, one buffer in each direction, where there is enough and nobody waits for it.
    pub fn try_grant(self: &Rc<Self>) -> Option<Grant> {
        (!self.is_waited_for() && self.try_take(GRANT))
            .then(|| Grant { pool: Rc::clone(self), bytes: Cell::new(GRANT) })
    }

    /// Waits until there is memory for an exchange.
    pub async fn grant(self: &Rc<Self>) -> Grant {
        let grant = Grant { pool: Rc::clone(self), bytes: Cell::new(0) };
        grant.resume().await;
        grant
    }

    /// An empty buffer for somebody who has no grant, and only writes.
    pub fn empty_buffer(self: &Rc<Self>) -> Buffer {
        Buffer { memory: Vec::new(), start: 0, full_reads: 0, last_read: 0, pool: Rc::clone(self) }
    }

    /// Bytes handed out now.
    pub fn granted(&self) -> usize {
        self.granted.get()
    }

    /// Whether less than half is handed out.
    pub fn is_plentiful(&self) -> bool {
        self.granted.get() <= self.limit / 2
    }

    fn is_waited_for(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    fn try_take(&self, bytes: usize) -> bool {
        let granted = self.granted.get() + bytes;
        if granted > self.limit {
            return false;
        }
        self.granted.set(granted);
        true
    }

    fn give_back(&self, bytes: usize) {
        self.granted.set(self.granted.get().saturating_sub(bytes));
        self.wake_next();
    }

    fn wake_next(&self) {
        if let Some((_, first)) = self.waiting.borrow().first_key_value() {
            first.wake_by_ref();
        }
    }

    /// Lets go of some of the free memory that nobody has needed since the last time.
    pub fn trim(&self) {
        self.small.borrow_mut().trim(SPARE);
        self.large.borrow_mut().trim(0);
    }

    /// Empty memory of that size. What was used before comes first: the system need not find it anew, page by page.
    fn take(&self, size: usize) -> Vec<u8> {
        let free = match size {
            SMALL => self.small.borrow_mut().take(),
            LARGE => self.large.borrow_mut().take(),
            _ => None,
        };
        free.unwrap_or_else(|| {
            self.make_way();
            Vec::with_capacity(size)
        })
    }

    /// Lets go of free memory where that and what is handed out, the piece that is to be made included, are more than the limit.
    fn make_way(&self) {
        let (mut small, mut large) = (self.small.borrow_mut(), self.large.borrow_mut());
        while self.granted.get() + small.len() * SMALL + large.len() * LARGE > self.limit
            && (small.take().is_some() || large.take().is_some())
        {}
    }

    fn put(&self, mut memory: Vec<u8>) {
        let (spares, max) = match memory.capacity() {
            SMALL => (&self.small, self.limit / SMALL),
            LARGE => (&self.large, FREE_LARGE_MAX),
            _ => return,
        };
        memory.clear();
        spares.borrow_mut().put(memory, max);
    }
}

/// A waiter's place in the queue. Who leaves it, with memory or without, hands the wake-up on.
struct Turn<'p> {
    pool: &'p BufferPool,
    number: u64,
}

impl<'p> Turn<'p> {
    fn new(pool: &'p BufferPool) -> Self {
        let number = pool.next_waiter.get();
        pool.next_waiter.set(number + 1);
        Self { pool, number }
    }

    /// Whether nobody came before.
    fn is_first(&self) -> bool {
        self.pool.waiting.borrow().first_key_value().is_none_or(|(first, _)| *first >= self.number)
    }

    fn wait(&self, waker: &Waker) {
        let mut waiting = self.pool.waiting.borrow_mut();
        waiting.entry(self.number).and_modify(|known| known.clone_from(waker)).or_insert_with(|| waker.clone());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.pool.waiting.borrow_mut().remove(&self.number);
        self.pool.wake_next();
    }
}

/// Memory for one exchange.
#[derive(Debug)]
pub struct Grant {
    pool: Rc<BufferPool>,
    bytes: Cell<usize>,
}

impl Grant {
    /// An empty buffer out of this grant; an exchange takes at most two at a time.
    pub fn buffer(&self) -> Buffer {
        self.pool.empty_buffer()
    }

    /// Gives the memory back for a pause; the buffers must have been released.
    pub fn suspend(&self) {
        let bytes = self.bytes.take();
        if bytes > 0 {
            self.pool.give_back(bytes);
        }
    }

    /// Waits until the memory is there again.
    pub async fn resume(&self) {
        if self.bytes.get() > 0 {
            return;
        }
        if self.pool.is_waited_for() || !self.pool.try_take(GRANT) {
            let turn = Turn::new(&self.pool);
            poll_fn(|context| {
                if turn.is_first() && self.pool.try_take(GRANT) {
                    return Poll::Ready(());
                }
                turn.wait(context.waker());
                Poll::Pending
            })
            .await;
            drop(turn);
        }
        self.bytes.set(GRANT);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.suspend();
    }
}

/// Bytes read and not yet used, in memory that is borrowed from the worker.
#[derive(Debug)]
pub struct Buffer {
    /// What was read, with room for more behind it. Nothing is ever cleared to be read into.
    memory: Vec<u8>,
    /// How many bytes at the front are used up.
    start: usize,
    full_reads: u8,
    last_read: usize,
    pool: Rc<BufferPool>,
}

impl Buffer {
    /// The unused bytes.
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..).unwrap_or(&[])
    }

    /// The unused bytes, to be decoded in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..).unwrap_or(&mut [])
    }

    /// How many bytes are unused.
    pub fn len(&self) -> usize {
        self.memory.len() - self.start
    }

    /// Whether all bytes are used.
    pub fn is_empty(&self) -> bool {
        self.start == self.memory.len()
    }

    /// Uses up `count` bytes at the front.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.memory.len());
        if self.is_empty() {
            self.memory.clear();
            self.start = 0;
        }
    }

    /// The memory for a read: what is put behind its bytes joins the unused ones. It is never more than its capacity, beyond
    /// which it would grow unaccounted. Where less than half is left, the unused bytes are moved to the front. [`Self::filled`]
    /// has to be told.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.memory.capacity() == 0 {
            self.memory = self.pool.take(SMALL);
        }
        if self.start > 0 && self.memory.capacity() - self.memory.len() < self.memory.capacity() / 2 {
            self.memory.drain(..self.start);
            self.start = 0;
        }
        &mut self.memory
    }

    /// Whether a read has room.
    pub fn has_room(&self) -> bool {
        self.start > 0 || self.memory.len() < self.memory.capacity() || self.memory.capacity() == 0
    }

    /// Gives the memory of an empty buffer back; the next read takes some again.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.shrink();
            self.pool.put(std::mem::take(&mut self.memory));
            self.start = 0;
            self.full_reads = 0;
        }
    }

    /// Takes note of `count` bytes read into [`Self::room`].
    pub fn filled(&mut self, count: usize) {
        let is_full = self.memory.len() == self.memory.capacity();
        self.full_reads = if is_full { self.full_reads.saturating_add(1) } else { 0 };
        self.last_read = count;
    }

    /// Whether the last read took all the room there was.
    pub fn is_filled_by_reads(&self) -> bool {
        self.full_reads > 0
    }

    /// Grows an empty buffer whose last two reads were full; one is enough where `expected` bytes are still to come and
    /// would fill it many times over.
    pub fn grow_if_busy(&mut self, expected: u64) {
        let enough = if expected >= LARGE as u64 { 1 } else { 2 };
        if self.full_reads >= enough && self.is_empty() && self.memory.capacity() == SMALL {
            self.full_reads = 0;
            self.resize(LARGE);
        }
    }

    /// Gives the memory beyond [`SMALL`] back where the last read would have fitted without it: the stream stalls, or is
    /// slow.
    pub fn shrink_if_slow(&mut self) {
        if self.last_read < SMALL {
            self.shrink();
        }
    }

    /// Gives the memory beyond [`SMALL`] back, where the bytes fit.
    pub fn shrink(&mut self) {
        if self.memory.capacity() > SMALL && self.len() <= SMALL {
            self.resize(SMALL);
        }
    }

    /// Doubles the room for a head that does not fit and may have `head_max` bytes. False: there is no memory for it.
    pub fn grow_for_head(&mut self, head_max: usize) -> bool {
        let size = self.memory.capacity();
        // Empty lines before a head do not count as parts of it.
        size <= head_max + SMALL && self.resize(2 * size)
    }

    fn resize(&mut self, size: usize) -> bool {
        let before = self.memory.capacity();
        if size > before && !self.pool.try_take(size - before) {
            return false;
        }
        let mut memory = self.pool.take(size);
        memory.extend_from_slice(self.bytes());
        self.start = 0;
        self.pool.put(std::mem::replace(&mut self.memory, memory));
        self.pool.make_way();
        if size < before {
            self.pool.give_back(before - size);
        }
        true
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.capacity() > SMALL {
            self.pool.give_back(memory.capacity() - SMALL);
        }
        self.pool.put(memory);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    fn grant(pool: &Rc<BufferPool>) -> Option<Grant> {
        let mut future = std::pin::pin!(pool.grant());
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(grant) => Some(grant),
            Poll::Pending => None,
        }
    }

    #[test]
    fn memory_beyond_the_limit_is_waited_for_and_an_admitted_exchange_has_both_its_buffers() {
        let pool = BufferPool::new(Bytes(4 * SMALL as u64));
        let first = grant(&pool).unwrap();
        let second = grant(&pool).unwrap();
        let _both = (first.buffer(), first.buffer());
        assert!(grant(&pool).is_none());
        drop(second);
        assert!(grant(&pool).is_some());
    }

    #[test]
    fn memory_that_was_needed_lately_is_kept_and_the_rest_goes_little_by_little() {
        let pool = BufferPool::new(Bytes::mib(64));
        let crowd = |size: usize| {
            (0..size).map(|_| pool.empty_buffer()).map(|mut buffer| {
                buffer.room();
                buffer
            })
        };
        drop(crowd(600).collect::<Vec<_>>());
        assert_eq!(pool.small.borrow().len(), 600);
        pool.trim();
        for _ in 0..40 {
            drop(crowd(100).collect::<Vec<_>>());
            pool.trim();
        }
        assert_eq!(pool.small.borrow().len(), 100 + SPARE);
        (0..40).for_each(|_| pool.trim());
        assert_eq!(pool.small.borrow().len(), SPARE);
    }

    #[test]
    fn free_memory_makes_way_where_it_and_what_is_handed_out_would_be_too_much() {
        let pool = BufferPool::new(Bytes::mib(1));
        let grants: Vec<Grant> = std::iter::from_fn(|| pool.try_grant()).collect();
        let mut buffers: Vec<Buffer> = grants.iter().flat_map(|grant| [grant.buffer(), grant.buffer()]).collect();
        let filled: usize = buffers.iter_mut().map(fill).sum();
        drop((buffers, grants));
        let free = || pool.small.borrow().len() * SMALL + pool.large.borrow().len() * LARGE;
        assert_eq!(free(), filled);
        let grant = grant(&pool).unwrap();
        let mut buffer = grant.buffer();
        grow(&mut buffer);
        assert_eq!(buffer.room().capacity(), LARGE);
        assert!(pool.granted() + free() <= pool.limit, "{} and {} of {}", pool.granted(), free(), pool.limit);
    }

    #[test]
    fn who_comes_later_does_not_overtake_who_waits() {
        let pool = BufferPool::new(Bytes(GRANT as u64));
        let held = grant(&pool).unwrap();
        let (mut first, mut second) = (std::pin::pin!(pool.grant()), std::pin::pin!(pool.grant()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        drop(held);
        assert!(pool.try_grant().is_none());
        assert!(grant(&pool).is_none());
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(first.as_mut().poll(&mut context).is_ready());
        assert!(second.as_mut().poll(&mut context).is_ready(), "the first's grant was dropped");
        assert!(pool.try_grant().is_some());
    }

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    type Waiting = (Arc<Flag>, std::pin::Pin<Box<dyn Future<Output = Grant>>>);

    /// Polls those who were woken until nobody is.
    fn run(waiting: &mut Vec<Waiting>, held: &mut Vec<Grant>) {
        while let Some(at) = waiting.iter().position(|(flag, _)| flag.0.swap(false, Ordering::Relaxed)) {
            let (flag, future) = &mut waiting[at];
            let waker = Waker::from(Arc::clone(flag));
            if let Poll::Ready(grant) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                drop(waiting.remove(at));
                held.push(grant);
            }
        }
    }

    proptest::proptest! {
        /// Whoever waits, comes, gives up or is woken for nothing: nobody sleeps while there is memory.
        #[test]
        fn no_wake_up_is_lost(steps in proptest::collection::vec((0..4_u8, 0..8_usize), 0..60)) {
            let pool = BufferPool::new(Bytes(3 * GRANT as u64));
            let (mut waiting, mut held): (Vec<Waiting>, Vec<Grant>) = (Vec::new(), Vec::new());
            for (step, at) in steps {
                match step {
                    0 => {
                        let pool = Rc::clone(&pool);
                        let flag = Arc::new(Flag(true.into()));
                        waiting.push((flag, Box::pin(async move { pool.grant().await })));
                    }
                    1 if at < held.len() => drop(held.remove(at)),
                    2 if at < waiting.len() => drop(waiting.remove(at)),
                    3 if at < waiting.len() => waiting[at].0.0.store(true, Ordering::Relaxed),
                    _ => {}
                }
                run(&mut waiting, &mut held);
                proptest::prop_assert!(waiting.is_empty() || held.len() == 3, "{} wait, {} hold", waiting.len(), held.len());
                proptest::prop_assert_eq!(pool.waiting.borrow().len(), waiting.len());
            }
        }
    }

    /// Fills the room, as a read does that finds enough.
    fn fill(buffer: &mut Buffer) -> usize {
        let room = buffer.room();
        let count = room.capacity() - room.len();
        room.resize(room.capacity(), 7);
        buffer.filled(count);
        count
    }

    /// Two full reads, of which all is used.
    fn grow(buffer: &mut Buffer) {
        for _ in 0..2 {
            let count = fill(buffer);
            buffer.consume(count);
        }
        buffer.grow_if_busy(0);
    }

    #[test]
    fn a_buffer_grows_after_two_full_reads_and_gives_back_what_it_took() {
        let pool = BufferPool::new(Bytes::mib(1));
        let grant = grant(&pool).unwrap();
        let mut buffer = grant.buffer();
        grow(&mut buffer);
        assert_eq!(buffer.room().capacity(), LARGE);
        assert_eq!(pool.granted(), 2 * SMALL + LARGE - SMALL);
        buffer.shrink();
        assert_eq!(buffer.room().capacity(), SMALL);
        drop((buffer, grant));
        assert_eq!(pool.granted(), 0);
        assert_eq!((pool.small.borrow().len(), pool.large.borrow().len()), (1, 1));
    }

    #[test]
    fn growing_for_a_head_keeps_its_bytes() {
        let pool = BufferPool::new(Bytes::mib(1));
        let grant = grant(&pool).unwrap();
        let mut buffer = grant.buffer();
        buffer.room().extend_from_slice(b"..GET");
        buffer.filled(5);
        buffer.consume(2);
        assert!(buffer.grow_for_head(SMALL));
        assert_eq!(buffer.bytes(), b"GET");
        assert_eq!(fill(&mut buffer), 2 * SMALL - 3);
    }

    #[test]
    fn what_is_unused_moves_to_the_front_where_little_room_is_left_behind_it() {
        let pool = BufferPool::new(Bytes::mib(1));
        let mut buffer = pool.empty_buffer();
        fill(&mut buffer);
        assert!(!buffer.has_room() && buffer.is_filled_by_reads());
        buffer.consume(SMALL - 2);
        assert!(buffer.has_room());
        assert_eq!(fill(&mut buffer), SMALL - 2);
        assert_eq!(buffer.bytes(), [7; SMALL]);
        buffer.consume(SMALL + 9);
        assert!(buffer.is_empty() && buffer.bytes().is_empty());
    }
}
