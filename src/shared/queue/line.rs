//! Who waits in a queue, in which order, and for what: the queue's memory, under its lock.
//!
//! Tickets count arrivals. Those who take any server stand in one order, those who want a server of their own in an order of
//! that server's; a place goes to the older of the two who are first. It refuses to wake anybody while it is locked: it keeps
//! a list of whom to wake.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;

use super::{Turn, Waiter};
use crate::base::id::ServerSlot;
use crate::pure::control::watch::CONNECT_FAILURES_MAX;
use crate::shared::endpoint::Endpoint;

/// A server of the pool, as far as the queue has to know it.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The server.
    pub endpoint: Arc<Endpoint>,
    /// Whether it may get requests without a history.
    pub takes_new: bool,
    /// Whether it may get requests whose client belongs to it.
    pub takes_back: bool,
}

impl Seat {
    fn slot(&self) -> ServerSlot {
        self.endpoint.record.slot
    }

    /// Whether connects to it fail one after the other: control is about to suspect it.
    fn refuses(&self) -> bool {
        self.endpoint.record.connect_failures_in_a_row() >= CONNECT_FAILURES_MAX
    }
}

/// Where a waiter stands.
#[derive(Clone, Copy)]
struct Standing {
    own: Option<ServerSlot>,
    ticket: u64,
}

/// The line and the servers that it waits for.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Whether the pool has a queue.
    pub(super) is_open: bool,
    /// Whether there may be free places although somebody waits who could use them.
    pub(super) may_have_places: bool,
    /// Whom to wake.
    pub(super) woken: Vec<Waker>,
    seats: Vec<Seat>,
    positions: HashMap<ServerSlot, usize>,
    next_ticket: u64,
    any: BTreeMap<u64, Arc<Waiter>>,
    own: BTreeMap<(ServerSlot, u64), Arc<Waiter>>,
}

impl Line {
    /// How many wait.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.any.len() + self.own.len()).unwrap_or(u32::MAX)
    }

    /// Whether nobody waits who takes any server.
    pub(super) fn has_none_for_any(&self) -> bool {
        self.any.is_empty()
    }

    /// Takes a waiter in, behind all others. Gives back its ticket.
    pub(super) fn push(&mut self, own: Option<ServerSlot>, waiter: Arc<Waiter>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        match own.filter(|slot| self.takes_back(*slot)) {
            Some(slot) => self.own.insert((slot, ticket), waiter),
            None => self.any.insert(ticket, waiter),
        };
        ticket
    }

    /// Takes a waiter out, where it still waits.
    pub(super) fn remove(&mut self, own: Option<ServerSlot>, ticket: u64) {
        // One whose own server was lost waits for any.
        if self.any.remove(&ticket).is_none()
            && let Some(slot) = own
        {
            self.own.remove(&(slot, ticket));
        }
    }

    /// Hands a place over that is counted among those in flight at its server. False: nobody gets it.
    pub(super) fn pass_on(&mut self, slot: ServerSlot) -> bool {
        let Some(position) = self.positions.get(&slot).copied() else { return false };
        let Some(seat) = self.seats.get(position) else { return false };
        // The server may have been given fewer places since.
        let is_one_too_many = seat.endpoint.server.max.is_some_and(|max| seat.endpoint.record.load.active() > max);
        match self.next_for(position).filter(|_| !is_one_too_many) {
            Some(next) => {
                self.grant(next, position);
                true
            }
            None => false,
        }
    }

    /// Hands out the places that are free, the backups' last.
    pub(super) fn serve(&mut self) {
        self.may_have_places = false;
        for position in 0..self.seats.len() {
            if self.count() == 0 {
                return;
            }
            while let Some(next) = self.next_for(position)
                && self.reserve(position)
            {
                self.grant(next, position);
            }
        }
    }

    /// Learns the servers. Those who wait for one that they may not get any more wait for any.
    pub(super) fn follow(&mut self, seats: impl Iterator<Item = Seat>) {
        self.is_open = true;
        self.may_have_places = true;
        self.seats = seats.collect();
        self.positions = self.seats.iter().enumerate().map(|(position, seat)| (seat.slot(), position)).collect();
        let (seats, positions) = (&self.seats, &self.positions);
        let is_lost = |slot: &ServerSlot| {
            !positions.get(slot).and_then(|position| seats.get(*position)).is_some_and(|seat| seat.takes_back)
        };
        for ((_, ticket), waiter) in self.own.extract_if(.., |(slot, _), _| is_lost(slot)) {
            self.any.insert(ticket, waiter);
        }
    }

    /// Ends every wait.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.seats = Vec::new();
        self.positions = HashMap::new();
        let any = std::mem::take(&mut self.any).into_values();
        let own = std::mem::take(&mut self.own).into_values();
        self.woken.extend(any.chain(own).filter_map(|waiter| waiter.ends(Turn::LooksAgain)));
    }

    fn takes_back(&self, slot: ServerSlot) -> bool {
        self.positions.get(&slot).and_then(|position| self.seats.get(*position)).is_some_and(|seat| seat.takes_back)
    }

    /// Takes a free place.
    fn reserve(&self, position: usize) -> bool {
        self.seats.get(position).is_some_and(|seat| seat.endpoint.record.load.try_reserve(seat.endpoint.server.max))
    }

    /// Who gets the next place there.
    fn next_for(&mut self, position: usize) -> Option<Standing> {
        let seat = self.seats.get(position)?;
        let slot = seat.slot();
        let mut next = None;
        if seat.takes_back && !self.own.is_empty() {
            let mut waiters = self.own.range((slot, 0)..=(slot, u64::MAX));
            next = waiters.next().map(|((slot, ticket), _)| Standing { own: Some(*slot), ticket: *ticket });
        }
        if seat.takes_new && !self.any.is_empty() {
            if seat.refuses() && self.seats.iter().any(|other| other.takes_new && !other.refuses()) {
                // Its places come free as fast as it refuses: it would be the end of all who wait.
                self.may_have_places = true;
                return next;
            }
            let first = self.any.iter().find(|(_, waiter)| self.may_go(waiter, slot)).map(|(ticket, _)| *ticket);
            if let Some(ticket) = first.filter(|ticket| next.is_none_or(|next| *ticket < next.ticket)) {
                next = Some(Standing { own: None, ticket });
            }
        }
        next
    }

    /// Whether a waiter can use a place there: it was there in vain only where it was everywhere in vain.
    fn may_go(&self, waiter: &Waiter, slot: ServerSlot) -> bool {
        let tried = &waiter.tried;
        tried.is_empty()
            || !tried.contains(slot)
            || self.seats.iter().filter(|seat| seat.takes_new).all(|seat| tried.contains(seat.slot()))
    }

    /// Gives a place that is counted already.
    fn grant(&mut self, next: Standing, position: usize) {
        let waiter = match next.own {
            Some(slot) => self.own.remove(&(slot, next.ticket)),
            None => self.any.remove(&next.ticket),
        };
        if let (Some(waiter), Some(seat)) = (waiter, self.seats.get(position)) {
            self.woken.extend(waiter.ends(Turn::Place(Arc::clone(&seat.endpoint))));
        }
    }
}
