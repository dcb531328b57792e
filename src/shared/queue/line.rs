//! Who waits in a queue, in which order, and for what: the queue's memory, under its lock.
//!
//! Tickets count arrivals. Those who take any server stand in one order, those who want a server of their own in an order of
//! that server's; a place goes to the older of the two who are first. Places that come free together are dealt out by the
//! servers' weights. A server without `max` has no places to deal: who may go there is sent back to the scheduler, which has the
//! say between it and the others. It refuses to wake anybody while it is locked: it keeps a list of whom to wake.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::task::Waker;

use super::{Turn, Waiter};
use crate::base::id::ServerSlot;
use crate::pure::control::watch::CONNECT_FAILURES_MAX;
use crate::pure::pool::{Share, Tried};
use crate::shared::endpoint::Endpoint;

/// A server of the pool, as far as the queue has to know it.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The server.
    pub endpoint: Arc<Endpoint>,
    /// Its share now, which may be rising still.
    pub share: Share,
    /// Whether it may get requests without a history.
    pub takes_new: bool,
    /// Whether it may get requests whose client belongs to it.
    pub takes_back: bool,
}

impl Seat {
    fn slot(&self) -> ServerSlot {
        self.endpoint.record.slot
    }

    /// Whether it takes as many as come.
    fn is_endless(&self) -> bool {
        self.endpoint.server.max.is_none()
    }

    /// Whether connects to it fail one after the other: control is about to suspect it.
    fn refuses(&self) -> bool {
        self.endpoint.record.connect_failures_in_a_row() >= CONNECT_FAILURES_MAX
    }
}

/// When a server's turn is to give a place: the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_backup: bool,
    /// Who can go to one that takes as many as come needs no place.
    is_bounded: bool,
    /// What it would have in flight with one more, for its weight.
    load: u64,
    position: usize,
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
        // One without bounds had places before as well: nobody waits for them.
        let Some(seat) = self.seats.get(position).filter(|seat| !seat.is_endless()) else { return false };
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

    /// Hands out the places that are free, the backups' last: in turn, as the servers' weights say.
    pub(super) fn serve(&mut self) {
        self.may_have_places = false;
        if self.count() == 0 {
            return;
        }
        let mut ranks: BinaryHeap<_> = (0..self.seats.len()).filter_map(|at| self.rank(at)).map(Reverse).collect();
        while let Some(Reverse(Rank { position, is_bounded, .. })) = ranks.pop()
            && self.count() > 0
        {
            if !is_bounded {
                self.send_back(position);
            }
            if let Some(next) = self.next_for(position)
                && self.reserve(position)
            {
                self.grant(next, position);
                ranks.extend(self.rank(position).map(Reverse));
            }
        }
    }

    /// When it is the turn of the server there; `None`: it is full.
    fn rank(&self, position: usize) -> Option<Rank> {
        let Seat { endpoint, share, .. } = self.seats.get(position)?;
        let (server, active) = (&endpoint.server, endpoint.record.load.active());
        let is_full = server.max.is_some_and(|max| active >= max);
        // In a small part of a share, so that shares of any size are told apart.
        let load = ((u64::from(active) + 1) << 28) / u64::from(share.units().max(1));
        (!is_full).then_some(Rank { is_backup: server.is_backup, is_bounded: server.max.is_some(), load, position })
    }

    /// Ends the waits of those who take any server and may go to the one there, which takes as many as come.
    fn send_back(&mut self, position: usize) {
        let Some(seat) = self.seats.get(position).filter(|seat| seat.takes_new && !self.is_shunned(seat)) else {
            return;
        };
        let (seats, slot) = (&self.seats, seat.slot());
        let sent = self.any.extract_if(.., |_, waiter| may_go(seats, &waiter.tried, slot));
        self.woken.extend(sent.filter_map(|(_, waiter)| waiter.ends(Turn::LooksAgain)));
    }

    /// Whether somebody who takes any server would be sent back to the scheduler at once.
    pub(super) fn sends_back(&self, tried: &Tried) -> bool {
        let may_go = |seat: &Seat| may_go(&self.seats, tried, seat.slot());
        self.seats.iter().any(|seat| seat.is_endless() && seat.takes_new && !self.is_shunned(seat) && may_go(seat))
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
            if self.is_shunned(seat) {
                // Its places come free as fast as it refuses: it would be the end of all who wait.
                self.may_have_places = true;
                return next;
            }
            let first =
                self.any.iter().find(|(_, waiter)| may_go(&self.seats, &waiter.tried, slot)).map(|(ticket, _)| *ticket);
            if let Some(ticket) = first.filter(|ticket| next.is_none_or(|next| *ticket < next.ticket)) {
                next = Some(Standing { own: None, ticket });
            }
        }
        next
    }

    /// Whether nobody is sent there who takes any server: it refuses connections, and another does not.
    fn is_shunned(&self, seat: &Seat) -> bool {
        seat.refuses() && self.seats.iter().any(|other| other.takes_new && !other.refuses())
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

/// Whether who has tried those can use a place there: it was there in vain only where it was everywhere in vain.
fn may_go(seats: &[Seat], tried: &Tried, slot: ServerSlot) -> bool {
    tried.is_empty()
        || !tried.contains(slot)
        || seats.iter().filter(|seat| seat.takes_new).all(|seat| tried.contains(seat.slot()))
}
