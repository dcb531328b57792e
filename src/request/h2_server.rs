//! Servers that speak HTTP/2: the connections that a worker shares among its requests, and one request's stream on them.
//!
//! Connections are opened when those there are have no room, at most [`CONNECTIONS_MAX`] to a server, and let go when they
//! have been idle for the pool's `idle-timeout`. Who comes while one is being made waits for it. It refuses to choose
//! servers, and to send anything again.

mod answer;
mod fault;
mod stream;
mod upload;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::pool::Upstream;
use crate::request::clock;
use crate::request::stream::dial_server;
use crate::shared::endpoint::Endpoint;
use crate::transport::dial::DialError;
use crate::transport::h2::{Link, STREAMS_MAX};
use crate::transport::tls::TlsConnector;

pub use fault::Fault;
pub use stream::H2ServerStream;

/// The most connections of one worker to one server.
pub const CONNECTIONS_MAX: usize = 256;

/// How often a connection is given the turn to look at what has arrived, before a request that can't be repeated is put on it.
const LOOKS_MAX: usize = 3;

/// How often a server that allows no stream at present is looked at again.
const CLOSED_PAUSE: Duration = Duration::from_millis(50);
/// How long no further connection is made to one that allowed none on a new one.
const CLOSED: Duration = Duration::from_secs(5);

/// A server, as a request that goes there knows it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Where it is.
    pub endpoint: &'a Arc<Endpoint>,
    /// How TLS is spoken to it, where it is and a connection may have to be made.
    pub connector: Option<&'a TlsConnector>,
    /// How its pool speaks to it.
    pub upstream: &'a Upstream,
    /// How long a connection may take to be made.
    pub timeout: Duration,
}

/// A place for one stream on a connection; it is free again with the end of this.
#[derive(Debug)]
pub struct Place {
    link: Rc<Link>,
    freed: Rc<Notify>,
}

impl Place {
    /// The connection.
    pub fn link(&self) -> &Link {
        &self.link
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.link.leave(clock::now());
        self.freed.notify_one();
    }
}

/// A connection that is being made.
#[derive(Debug, Default)]
struct Dial {
    /// How many wait for it.
    waiting: Cell<usize>,
    failure: RefCell<Option<DialError>>,
    is_over: Cell<bool>,
    over: Notify,
}

impl Dial {
    /// Waits until it is made.
    async fn wait(&self) -> Result<(), DialError> {
        while !self.is_over.get() {
            self.over.notified().await;
        }
        match &*self.failure.borrow() {
            Some(error) => Err(error.again()),
            None => Ok(()),
        }
    }
}

/// A connection, and where it leads.
#[derive(Debug)]
struct Open {
    link: Rc<Link>,
    peer: Option<SocketAddr>,
}

/// The connections to one server.
#[derive(Debug)]
struct Shelf {
    incarnation: u32,
    links: Vec<Open>,
    dials: Vec<Rc<Dial>>,
    /// How many streams a new connection will probably take.
    expected: usize,
    /// Told when a place may have become free.
    freed: Rc<Notify>,
    /// Until when no other is made, since the server has allowed no stream on the last one.
    closed_until: Timestamp,
    idle_max: usize,
    idle_timeout: Duration,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            incarnation: 0,
            links: Vec::new(),
            dials: Vec::new(),
            expected: STREAMS_MAX,
            freed: Rc::default(),
            closed_until: Timestamp::ZERO,
            idle_max: 0,
            idle_timeout: Duration::ZERO,
        }
    }
}

impl Shelf {
    /// A place on a connection that has room: the first, so that those behind it can end when there is less to do.
    fn take(&mut self, now: Timestamp, is_certain: bool) -> Option<Place> {
        let link = self.links.iter().map(|open| &open.link).find(|link| link.has_room(now) && !link.is_spent())?;
        // On one with other streams on it, what has arrived is most likely theirs.
        if is_certain && link.streams() == 0 && link.has_unread() {
            return None;
        }
        link.enter();
        Some(Place { link: Rc::clone(link), freed: Rc::clone(&self.freed) })
    }

    /// Whether the server allows no stream at present: none on the last connection that was made, and one that is there still
    /// says so. A further one would be the same.
    fn is_closed(&self, now: Timestamp) -> bool {
        now < self.closed_until && self.links.iter().any(|open| open.link.streams_max() == 0)
    }

    /// Lets go of connections to addresses that are no longer the server's; streams that are open go on. False: `endpoint` is
    /// one of the past itself.
    fn follow(&mut self, endpoint: &Endpoint) -> bool {
        if self.incarnation < endpoint.incarnation {
            self.links.retain(|open| endpoint.leads_to(open.peer));
            self.dials.clear();
            self.closed_until = Timestamp::ZERO;
            self.incarnation = endpoint.incarnation;
        }
        self.incarnation == endpoint.incarnation
    }

    /// Lets go of connections that have been idle for too long, or are more than are to be kept.
    fn sweep(&mut self, now: Timestamp) {
        let mut kept = 0;
        let (idle_max, idle_timeout) = (self.idle_max, self.idle_timeout);
        self.links.retain(|Open { link, .. }| {
            if link.streams() > 0 {
                return !link.is_spent();
            }
            kept += 1;
            kept <= idle_max && now.since(link.idle_since()) < idle_timeout && !link.is_spent()
        });
    }
}

/// What a request does that has found no room.
enum Wait {
    Dial(Rc<Dial>),
    Place(Rc<Notify>),
    /// For the server to allow streams.
    Opening,
}

/// The connections of one worker.
#[derive(Debug, Default)]
pub struct H2Connections {
    /// By server number.
    shelves: RefCell<Vec<Shelf>>,
}

impl H2Connections {
    /// A place on a connection that is there. `is_certain`: not on one that may have ended without our having seen it.
    pub fn try_place(&self, target: &Target<'_>, now: Timestamp, is_certain: bool) -> Option<Place> {
        self.with_shelf(target, |shelf| shelf.take(now, is_certain))?
    }

    /// Whether the server has said that it allows no streams at present.
    pub fn is_closed(&self, target: &Target<'_>, now: Timestamp) -> bool {
        self.with_shelf(target, |shelf| shelf.is_closed(now)) == Some(true)
    }

    /// A place on a connection, as soon as there is one. True: the connection was there before.
    ///
    /// # Errors
    /// [`DialError`] of the connection that was waited for, and [`DialError::Full`].
    pub async fn place(self: &Rc<Self>, target: Target<'_>, is_certain: bool) -> Result<(Place, bool), DialError> {
        // A wait for a connection, and one for a place on it.
        let patience = target.timeout * 2;
        timeout(patience, self.place_in_turn(target, is_certain)).await.unwrap_or(Err(DialError::Full))
    }

    async fn place_in_turn(self: &Rc<Self>, target: Target<'_>, is_certain: bool) -> Result<(Place, bool), DialError> {
        let mut has_waited = false;
        let mut opening_until = None;
        for _ in 0..LOOKS_MAX {
            if let Some(place) = self.try_place(&target, clock::now(), is_certain) {
                return Ok((place, true));
            }
            yield_now().await;
        }
        loop {
            if let Some(place) = self.try_place(&target, clock::now(), false) {
                return Ok((place, !has_waited));
            }
            match self.with_shelf(&target, |shelf| self.begin_wait(shelf, &target)) {
                Some(Wait::Dial(dial)) => dial.wait().await?,
                // Nobody is told when that changes.
                Some(Wait::Opening) => {
                    let now = clock::now();
                    if now >= *opening_until.get_or_insert(now + target.timeout) {
                        return Err(DialError::Full);
                    }
                    sleep(CLOSED_PAUSE).await;
                }
                Some(Wait::Place(freed)) => {
                    timeout(target.timeout, freed.notified()).await.map_err(|_| DialError::Full)?;
                }
                // Its exchange began before the address changed.
                None => return Err(DialError::Moved),
            }
            has_waited = true;
        }
    }

    /// Joins a connection that is being made, or begins one, or waits for a place.
    fn begin_wait(self: &Rc<Self>, shelf: &mut Shelf, target: &Target<'_>) -> Wait {
        if let Some(dial) = shelf.dials.iter().find(|dial| dial.waiting.get() < shelf.expected) {
            dial.waiting.set(dial.waiting.get() + 1);
            return Wait::Dial(Rc::clone(dial));
        }
        shelf.links.retain(|open| !open.link.is_spent());
        if shelf.is_closed(clock::now()) {
            return Wait::Opening;
        }
        if shelf.links.len() + shelf.dials.len() >= CONNECTIONS_MAX {
            return Wait::Place(Rc::clone(&shelf.freed));
        }
        let begun = Rc::<Dial>::default();
        begun.waiting.set(1);
        shelf.dials.push(Rc::clone(&begun));
        let freed = Rc::clone(&shelf.freed);
        let (endpoint, connector, patience) = (Arc::clone(target.endpoint), target.connector.cloned(), target.timeout);
        let (slot, incarnation) = (endpoint.record.slot, endpoint.incarnation);
        let mut made =
            Made { connections: Rc::downgrade(self), slot, incarnation, dial: Rc::clone(&begun), open: None };
        // A task of its own: the request that began it may go away, and others wait.
        tokio::task::spawn_local(async move {
            let connect = async {
                let stream = dial_server(&endpoint, connector.as_ref(), None, patience).await?;
                if !stream.may_speak_http2() {
                    return Err(DialError::NotHttp2);
                }
                let peer = stream.peer_address();
                let link = Link::open(stream, move || freed.notify_one()).await?;
                Ok(Open { link: Rc::new(link), peer })
            };
            made.open = Some(timeout(patience, connect).await.unwrap_or(Err(DialError::TimedOut)));
            drop(made);
        });
        Wait::Dial(begun)
    }

    /// The shelf of a server; `None`: it is for a newer address.
    fn with_shelf<T>(&self, target: &Target<'_>, look: impl FnOnce(&mut Shelf) -> T) -> Option<T> {
        let mut shelves = self.shelves.borrow_mut();
        let index = target.endpoint.record.slot.0 as usize;
        if shelves.len() <= index {
            shelves.resize_with(index + 1, Shelf::default);
        }
        let shelf = shelves.get_mut(index)?;
        if !shelf.follow(target.endpoint) {
            return None;
        }
        shelf.idle_max = target.upstream.idle_max as usize;
        shelf.idle_timeout = target.upstream.idle_timeout;
        Some(look(shelf))
    }

    /// Lets go of connections that have been idle for too long.
    pub fn sweep(&self, now: Timestamp) {
        self.shelves.borrow_mut().iter_mut().for_each(|shelf| shelf.sweep(now));
    }

    /// Lets go of what leads to addresses that are no longer those of `endpoint`.
    pub fn follow(&self, endpoint: &Endpoint) {
        if let Some(shelf) = self.shelves.borrow_mut().get_mut(endpoint.record.slot.0 as usize) {
            shelf.follow(endpoint);
        }
    }

    /// Closes the connections without a stream; whether there were any.
    pub fn clear_idle(&self) -> bool {
        let mut has_any = false;
        for shelf in self.shelves.borrow_mut().iter_mut() {
            let before = shelf.links.len();
            shelf.links.retain(|open| open.link.streams() > 0);
            has_any |= shelf.links.len() < before;
        }
        has_any
    }
}

/// The end of a dial, however it ends: those who wait are told.
struct Made {
    connections: Weak<H2Connections>,
    slot: ServerSlot,
    incarnation: u32,
    dial: Rc<Dial>,
    open: Option<Result<Open, DialError>>,
}

impl Drop for Made {
    fn drop(&mut self) {
        self.dial.is_over.set(true);
        let made = self.open.take().unwrap_or(Err(DialError::TimedOut));
        if let Some(connections) = self.connections.upgrade()
            && let Some(shelf) = connections.shelves.borrow_mut().get_mut(self.slot.0 as usize)
            && shelf.incarnation == self.incarnation
        {
            shelf.dials.retain(|dial| !Rc::ptr_eq(dial, &self.dial));
            match made {
                Ok(open) => {
                    let streams_max = open.link.streams_max();
                    shelf.expected = streams_max.max(1);
                    if streams_max == 0 {
                        shelf.closed_until = clock::now() + CLOSED;
                    }
                    shelf.links.push(open);
                }
                Err(error) => *self.dial.failure.borrow_mut() = Some(error),
            }
            shelf.freed.notify_waiters();
        }
        self.dial.over.notify_waiters();
    }
}
