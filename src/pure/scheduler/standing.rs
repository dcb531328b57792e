//! The slow-moving side of a view, copied where a scheduler can read it quickly: the share of every candidate that its
//! state lets take part, 0 for the others.
//!
//! It is brought up to date when the view's generation changes. It never replaces the view's own word on who is eligible:
//! a place may be taken, or this request may have been there before.

use crate::pure::pool::{PoolView, Wanted};

/// The shares of a pool's candidates in 1/256 of a weight, by position.
#[derive(Debug, Default)]
pub(super) struct Standing {
    seen: Option<(u64, Wanted)>,
    shares: Vec<u32>,
    version: u64,
}

impl Standing {
    /// Brings the shares up to date. Returns whether any has changed; the first time, always.
    pub(super) fn refresh(&mut self, view: &PoolView<'_>) -> bool {
        let now = Some((view.generation, view.wanted));
        if self.seen == now && self.shares.len() == view.candidates.len() {
            return false;
        }
        let mut has_changed = self.seen.is_none() || self.shares.len() != view.candidates.len();
        self.seen = now;
        self.shares.resize(view.candidates.len(), 0);
        for (share, candidate) in self.shares.iter_mut().zip(view.candidates) {
            let new = if view.stands(candidate) { candidate.share.units() } else { 0 };
            has_changed |= *share != new;
            *share = new;
        }
        self.version += 1;
        has_changed
    }

    /// Another number each time that the shares were brought up to date.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// The share of every candidate.
    pub(super) fn shares(&self) -> &[u32] {
        &self.shares
    }

    /// The share of one candidate.
    pub(super) fn share(&self, index: usize) -> u32 {
        self.shares.get(index).copied().unwrap_or(0)
    }

    /// The largest number that divides every share; 1 where there is no share at all.
    pub(super) fn common_divisor(&self) -> u32 {
        self.shares.iter().fold(0, |divisor, share| greatest_common_divisor(divisor, *share)).max(1)
    }

    /// The largest share.
    pub(super) fn largest(&self) -> u32 {
        self.shares.iter().copied().max().unwrap_or(0)
    }
}

const fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
