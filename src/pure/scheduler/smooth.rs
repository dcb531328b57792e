//! `wrr`: smooth weighted round robin. Weights 5, 1, 1 give A A B A C A A.
//!
//! At each step every server gains its weight in credit; the one with the most (the first of equals) is taken and pays the
//! sum of all weights. The rule is that of nginx's upstream module; here a [`Race`] finds the leader in O(log n) and not by
//! looking at everybody.
//!
//! A server whose state bars it takes no part. Where the leader can't take this request (full, tried before), a small
//! pool does that step with the eligible alone, so that their shares stay exact; in a large one the leader's turn is lost,
//! and only after many lost turns are all looked at.

use std::cell::RefCell;

use super::race::Race;
use super::standing::Standing;
use super::{Phase, Pick, Scheduler, describe};
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::pool::PoolView;
use crate::pure::trace::Trace;

/// The largest pool in which a leader that can't take a request costs a look at everybody.
const EXACT_MAX: usize = 64;

/// In larger pools, how many turns may be lost before everybody is looked at.
const LOST_TURNS_MAX: usize = 32;

/// Smooth weighted round robin.
#[derive(Debug)]
pub(super) struct Smooth {
    phase: Phase,
    turns: RefCell<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    standing: Standing,
    race: Race,
    /// What a pace of 1 stands for, in units of a share.
    unit: u32,
    /// The sum of all paces: the price of a turn.
    price: i64,
    is_started: bool,
}

impl Smooth {
    pub(super) fn new(phase: Phase) -> Self {
        Self { phase, turns: RefCell::default() }
    }
}

impl Scheduler for Smooth {
    fn pick(&self, view: &PoolView<'_>, _: Option<u64>, _: Timestamp, _: &mut Rng, trace: &mut Trace) -> Pick {
        let mut turns = self.turns.borrow_mut();
        turns.refresh(view, self.phase);
        let Some(index) = turns.take(view) else { return Pick::NoneEligible };
        trace.note("scheduler", || format!("wrr: {} is next in turn", describe(view, index)));
        Pick::Server(index)
    }
}

impl Turns {
    fn refresh(&mut self, view: &PoolView<'_>, phase: Phase) {
        if !self.standing.refresh(view) {
            return;
        }
        let unit = self.standing.common_divisor();
        let price: i64 = self.standing.shares().iter().map(|share| i64::from(share / unit)).sum();
        let carried = |index: usize, pace: u32| {
            // Who comes new, or comes back, has no claims; and no claim outlives the prices that it was made at.
            if pace == 0 || !self.race.runs(index) {
                return 0;
            }
            let credit = i128::from(self.race.credit(index)) * i128::from(self.unit) / i128::from(unit);
            i64::try_from(credit.clamp(i128::from(-price), i128::from(price))).unwrap_or(0)
        };
        let paces = self.standing.shares().iter().map(|share| share / unit).enumerate();
        let runners: Vec<(i64, u32)> = paces.map(|(index, pace)| (carried(index, pace), pace)).collect();
        self.race.restart(runners.into_iter());
        self.unit = unit;
        self.price = price;
        if !self.is_started {
            self.is_started = true;
            // Some way into the order, so that the workers do not all begin with the same servers.
            let period = u64::try_from(price).unwrap_or(0);
            for _ in 0..phase.below(period.min(view.candidates.len().max(1024) as u64)) {
                if let Some(leader) = self.race.advance() {
                    self.race.charge(leader, self.price);
                }
            }
        }
    }

    fn take(&mut self, view: &PoolView<'_>) -> Option<usize> {
        let patience = if view.candidates.len() <= EXACT_MAX { 0 } else { LOST_TURNS_MAX };
        for lost in 0..=patience {
            let leader = self.race.advance();
            if let Some(leader) = leader.filter(|leader| view.is_eligible(*leader)) {
                self.race.charge(leader, self.price);
                return Some(leader);
            }
            match leader {
                Some(leader) if lost < patience => self.race.charge(leader, self.price),
                _ => return self.take_among_eligible(view),
            }
        }
        None
    }

    /// Ends a step with the eligible alone: they keep what they gained and the one with the most pays for all of them, the
    /// others gain nothing.
    fn take_among_eligible(&mut self, view: &PoolView<'_>) -> Option<usize> {
        let mut best: Option<(usize, i64)> = None;
        let mut price = 0;
        let mut barred = Vec::new();
        for index in 0..view.candidates.len() {
            let pace = i64::from(self.standing.share(index) / self.unit);
            if !view.is_eligible(index) {
                barred.push((index, pace));
                continue;
            }
            price += pace;
            let credit = self.race.credit(index);
            if best.is_none_or(|(_, most)| credit > most) {
                best = Some((index, credit));
            }
        }
        let taken = best.map(|(index, _)| index);
        self.race.charge_many(barred.into_iter().chain(taken.map(|index| (index, price))));
        taken
    }
}
