//! Who leads among many whose credit grows at a steady pace, each at its own: a kinetic tournament.
//!
//! Runner i has the credit `base_i + pace_i · step`. A tree of pairs remembers who leads each pair and until which step
//! that is certain, so that a step looks again only at pairs whose certainty has run out, and a change of one runner at the
//! pairs above it: O(log n) each, over time, where looking at everybody would be O(n). The first in order wins a tie.
//! Source: J. Basch, L. Guibas, J. Hershberger, Data structures for mobile data, 1997.

/// Marks the place of nobody.
const NOBODY: u32 = u32::MAX;

/// After so many steps credits are counted anew from step 0, long before `pace · step` leaves 64 bits.
const STEPS_MAX: i64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
struct Runner {
    base: i64,
    /// 0: takes no part.
    pace: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    leader: u32,
    /// The first step at which the leader of this pair, or of one below it, may be another.
    valid_until: i64,
}

/// The runners and the tournament among them.
#[derive(Debug, Default)]
pub(super) struct Race {
    step: i64,
    runners: Vec<Runner>,
    /// A heap-shaped tree: pair i has below it 2i and 2i + 1; from `leaves` on, the numbers mean runners.
    pairs: Vec<Pair>,
    leaves: usize,
}

impl Race {
    /// Begins anew at step 0 with these credits and paces (at most 24 bits; 0 takes no part).
    pub(super) fn restart(&mut self, runners: impl Iterator<Item = (i64, u32)>) {
        self.step = 0;
        self.runners.clear();
        self.runners.extend(runners.map(|(base, pace)| Runner { base, pace }));
        self.leaves = self.runners.len().next_power_of_two().max(2);
        self.pairs.clear();
        self.pairs.resize(self.leaves, Pair { leader: NOBODY, valid_until: i64::MAX });
        self.judge_all();
    }

    /// One step on. Returns who leads then.
    pub(super) fn advance(&mut self) -> Option<usize> {
        if self.step >= STEPS_MAX {
            self.count_anew();
        }
        self.step += 1;
        self.renew(1);
        let leader = self.pairs.get(1)?.leader;
        (leader != NOBODY).then_some(leader as usize)
    }

    /// The credit of a runner now.
    pub(super) fn credit(&self, index: usize) -> i64 {
        self.runners.get(index).map_or(0, |runner| runner.base + i64::from(runner.pace) * self.step)
    }

    /// Whether a runner takes part.
    pub(super) fn runs(&self, index: usize) -> bool {
        self.runners.get(index).is_some_and(|runner| runner.pace > 0)
    }

    /// Takes credit from a runner.
    pub(super) fn charge(&mut self, index: usize, amount: i64) {
        let Some(runner) = self.runners.get_mut(index) else { return };
        runner.base -= amount;
        let mut pair = (self.leaves + index) / 2;
        while pair > 0 {
            self.judge(pair);
            pair /= 2;
        }
    }

    /// Takes credit from several runners at once, `amounts` giving position and amount.
    pub(super) fn charge_many(&mut self, amounts: impl Iterator<Item = (usize, i64)>) {
        for (index, amount) in amounts {
            if let Some(runner) = self.runners.get_mut(index) {
                runner.base -= amount;
            }
        }
        self.judge_all();
    }

    fn count_anew(&mut self) {
        for runner in &mut self.runners {
            runner.base += i64::from(runner.pace) * self.step;
        }
        self.step = 0;
        self.judge_all();
    }

    fn judge_all(&mut self) {
        for pair in (1..self.leaves).rev() {
            self.judge(pair);
        }
    }

    /// Judges again what may have changed at or below a pair.
    fn renew(&mut self, pair: usize) {
        if self.pairs.get(pair).is_none_or(|pair| pair.valid_until > self.step) {
            return;
        }
        self.renew(2 * pair);
        self.renew(2 * pair + 1);
        self.judge(pair);
    }

    /// Who leads below `place`, and until when that is certain.
    fn leader_below(&self, place: usize) -> Pair {
        if let Some(pair) = self.pairs.get(place) {
            return *pair;
        }
        let index = place - self.leaves;
        let leader = if self.runs(index) { u32::try_from(index).unwrap_or(NOBODY) } else { NOBODY };
        Pair { leader, valid_until: i64::MAX }
    }

    fn judge(&mut self, place: usize) {
        let (left, right) = (self.leader_below(2 * place), self.leader_below(2 * place + 1));
        let (leader, until) = self.compare(left.leader, right.leader);
        if let Some(pair) = self.pairs.get_mut(place) {
            *pair = Pair { leader, valid_until: until.min(left.valid_until).min(right.valid_until) };
        }
    }

    /// The leader of two, of whom `first` stands before `second`, and the step at which the other overtakes.
    fn compare(&self, first: u32, second: u32) -> (u32, i64) {
        let (Some(a), Some(b)) = (self.runners.get(first as usize), self.runners.get(second as usize)) else {
            return (if first == NOBODY { second } else { first }, i64::MAX);
        };
        let pace = i64::from(b.pace) - i64::from(a.pace);
        // How far the second is ahead.
        let lead = b.base - a.base + pace * self.step;
        let (leader, gap, catching_up) = if lead > 0 { (second, lead, -pace) } else { (first, 1 - lead, pace) };
        if catching_up <= 0 {
            return (leader, i64::MAX);
        }
        // The first wins ties: it overtakes where it draws level, the second where it is one ahead.
        (leader, self.step + steps_until(gap, catching_up))
    }
}

/// Below this a quotient of whole numbers, whose divisor has at most 24 bits, lies further from the next whole number than
/// its rounding reaches.
const EXACT_BELOW: f64 = (1u64 << 28) as f64;

/// How many steps it takes, at least one, to make up for `gap` (at least 1) at this pace: rounded up, or for very many steps
/// somewhat too few. To look again too early costs little; a division of 64-bit integers costs more, each time.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the bound above, and a margin beyond it"
)]
fn steps_until(gap: i64, pace: i64) -> i64 {
    let quotient = (gap + pace - 1) as f64 / pace as f64;
    if quotient < EXACT_BELOW { quotient as i64 } else { (quotient * (1.0 - 1e-9)) as i64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against looking at everybody at every step, with random charges.
        #[test]
        fn the_leader_is_who_a_linear_scan_finds(
            paces in prop::collection::vec(prop_oneof![0u32..50, 0u32..1 << 24], 1..40),
            charges in prop::collection::vec((0usize..40, prop_oneof![0i64..400, 0i64..1 << 28]), 0..60),
        ) {
            let mut race = Race::default();
            race.restart(paces.iter().map(|pace| (0, *pace)));
            let mut credits = vec![0i64; paces.len()];
            for (index, amount) in charges {
                for (credit, pace) in credits.iter_mut().zip(&paces) {
                    *credit += i64::from(*pace);
                }
                let expected = (0..paces.len()).filter(|index| paces[*index] > 0).rev().max_by_key(|index| credits[*index]);
                prop_assert_eq!(race.advance(), expected);
                if let Some(credit) = credits.get_mut(index) {
                    *credit -= amount;
                    race.charge(index, amount);
                    prop_assert_eq!(race.credit(index), *credit);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn steps_are_never_too_many_and_exact_where_they_are_few(
            gap in prop_oneof![1i64..1_000, 1i64..1 << 53, 1i64..1 << 61],
            pace in prop_oneof![1i64..1_000, 1i64..1 << 24],
        ) {
            let exact = (gap + pace - 1) / pace;
            let steps = steps_until(gap, pace);
            prop_assert!((1..=exact).contains(&steps));
            prop_assert!(exact >= 1 << 28 || steps == exact);
        }
    }

    #[test]
    fn counting_anew_changes_no_credit() {
        let mut race = Race::default();
        race.restart([(5, 3), (0, 7), (1, 0)].into_iter());
        race.step = STEPS_MAX;
        race.judge_all();
        let before: Vec<i64> = (0..2).map(|index| race.credit(index)).collect();
        assert_eq!(race.advance(), Some(1));
        assert_eq!(race.step, 1);
        assert_eq!([race.credit(0), race.credit(1)], [before[0] + 3, before[1] + 7]);
    }

    #[test]
    fn nobody_leads_an_empty_race() {
        let mut race = Race::default();
        assert_eq!(race.advance(), None);
        race.restart(std::iter::empty());
        assert_eq!(race.advance(), None);
        race.restart([(9, 0)].into_iter());
        assert_eq!(race.advance(), None);
        race.restart([(0, 1)].into_iter());
        assert_eq!(race.advance(), Some(0));
    }
}
