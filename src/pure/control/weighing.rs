//! From reports to shares, a pool at a time: its servers' figures are rated against each other, and each share goes where
//! the rating leads, as far as [`super::influence`] lets it.

use std::time::Duration;

use super::evidence::Sign;
use super::influence::{Moved, Scale};
use super::{Control, Effect, ShareChange};
use crate::base::id::ServerSlot;
use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::feedback::report::Figures;
use crate::pure::feedback::weights::{FeedbackConfig, FeedbackMode, Largest, Rating, rate, weight};
use crate::pure::pool::{Share, Wanted};

/// Shares are made anew when a report has come, and this often without one: what is old fades.
pub(super) const WEIGH_AT_LEAST: Duration = Duration::from_secs(1);

/// The paper: a server that has said nothing for 30 to 40 seconds is asked.
const ASK_AFTER: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(40)];

/// The paper: one that does not answer in 10 to 15 seconds is excluded until it does.
const ANSWER_WITHIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(15)];

/// The share of the paper's weight of 100.
const HUNDRED: Share = Share::of(100);

/// A question to a server's agent, in the paper's way.
#[derive(Debug, Default)]
pub(super) struct Question {
    /// When it was asked last, since it was heard last.
    asked: Option<Timestamp>,
    /// When the next step comes; `None`: not decided yet.
    due: Option<Timestamp>,
    is_excluded: bool,
}

impl Question {
    /// It was heard.
    pub(super) fn heard(&mut self) {
        *self = Self::default();
    }

    /// What time brings: whether to ask now, and whether it has just been excluded.
    fn time_passes(&mut self, now: Timestamp, rng: &mut Rng) -> (bool, bool) {
        let within = |[least, most]: [Duration; 2], rng: &mut Rng| least + (most - least).mul_f64(rng.unit());
        let Some(due) = self.due else {
            self.due = Some(now + within(ASK_AFTER, rng));
            return (false, false);
        };
        if now < due {
            return (false, false);
        }
        let is_unanswered = self.asked.is_some() && !self.is_excluded;
        self.is_excluded |= is_unanswered;
        self.asked = Some(now);
        self.due = Some(now + within(ANSWER_WITHIN, rng));
        (true, is_unanswered)
    }

    /// Whether it has not answered.
    pub(super) const fn is_excluded(&self) -> bool {
        self.is_excluded
    }
}

/// What reports make of one server of a pool.
#[derive(Clone, Copy, Debug)]
struct Wish {
    slot: ServerSlot,
    target: Option<Share>,
    rating: Option<Rating>,
}

impl Control {
    /// Makes the shares of those pools anew whose servers have reported, and now and then of all.
    pub(super) fn weigh_pools(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let is_round = now.since(self.weighed) >= WEIGH_AT_LEAST;
        if is_round {
            self.weighed = now;
        }
        let dirty = std::mem::take(&mut self.reported);
        let pools: Vec<_> = self
            .pools
            .iter()
            .filter(|(name, pool)| {
                let has_voice =
                    || pool.slots.iter().any(|slot| self.servers.get(slot).is_some_and(|it| it.voices.is_any()));
                dirty.contains(*name) || is_round && (pool.feedback.is_some_and(is_classic) || has_voice())
            })
            .map(|(_, pool)| (pool.slots.clone(), pool.feedback))
            .collect();
        for (slots, feedback) in pools {
            if feedback.is_some_and(is_classic) {
                self.ask_silent_agents(now, &slots, effects);
            }
            for wish in self.wishes(now, &slots, feedback.as_ref()) {
                self.grant(now, wish, feedback.as_ref(), effects);
            }
        }
    }

    fn ask_silent_agents(&mut self, now: Timestamp, slots: &[ServerSlot], effects: &mut Vec<Effect>) {
        for slot in slots {
            let Some(watch) = self.servers.get_mut(slot) else { continue };
            let (asks, is_unanswered) = watch.question.time_passes(now, &mut self.rng);
            if is_unanswered {
                watch.note(now, Sign::Unanswered);
            }
            if asks {
                effects.push(Effect::Ask(*slot));
            }
        }
    }

    /// What reports make of the servers of a pool.
    fn wishes(&self, now: Timestamp, slots: &[ServerSlot], feedback: Option<&FeedbackConfig>) -> Vec<Wish> {
        let known: Vec<(ServerSlot, Option<(Figures, f64)>)> = slots
            .iter()
            .map(|slot| (*slot, self.servers.get(slot).and_then(|watch| watch.voices.figures(now))))
            .collect();
        let largest = Largest::among(known.iter().filter_map(|(_, figures)| figures.as_ref().map(|(it, _)| it)));
        let mut wishes: Vec<Wish> = known
            .iter()
            .filter_map(|(slot, figures)| {
                let watch = self.servers.get(slot)?;
                let rating = feedback.zip(figures.as_ref()).and_then(|(feedback, (figures, counts))| {
                    Some((rate(figures, &largest, feedback.factors)?, *counts, feedback))
                });
                let own = watch.whole();
                let target = match (rating, feedback) {
                    (_, Some(feedback)) if is_classic(*feedback) && watch.question.is_excluded() => Some(Share::ZERO),
                    (Some((rating, counts, feedback)), _) => {
                        let base = if is_classic(*feedback) { HUNDRED } else { own };
                        let full = f64::from(base.units()) * weight(rating, feedback) / 100.0;
                        // In the paper's way a weight holds until the next report, and whoever sends none is excluded.
                        let counts = if is_classic(*feedback) { 1.0 } else { counts };
                        Some(to_share(f64::from(own.units()) + (full - f64::from(own.units())) * counts))
                    }
                    (None, _) => None,
                };
                let wanted = watch.voices.wanted_share(now);
                let is_own = (wanted - 1.0).abs() < 1e-9;
                let target = match target {
                    None if is_own => None,
                    target => Some(to_share(f64::from(target.unwrap_or(own).units()) * wanted)),
                };
                Some(Wish { slot: *slot, target: target.filter(|_| !own.is_zero()), rating: rating.map(|(it, ..)| it) })
            })
            .collect();
        // Where reports leave nobody anything, the configured weights decide.
        let is_something = |wish: &Wish| {
            let Some(watch) = self.servers.get(&wish.slot) else { return false };
            watch.state().allows(Wanted::New) && !wish.target.unwrap_or(watch.whole()).is_zero()
        };
        if !wishes.iter().any(is_something) {
            for wish in &mut wishes {
                wish.target = None;
            }
        }
        wishes
    }

    fn grant(&mut self, now: Timestamp, wish: Wish, feedback: Option<&FeedbackConfig>, effects: &mut Vec<Effect>) {
        let Some(watch) = self.servers.get_mut(&wish.slot) else { return };
        let (whole, server) = (watch.whole(), watch.id().clone());
        let is_dry_run = feedback.is_some_and(|feedback| feedback.is_dry_run);
        watch.is_dry_run = is_dry_run;
        let scale = Scale { whole, unit: if feedback.is_some_and(|it| is_classic(*it)) { HUNDRED } else { whole } };
        let Moved { shares, gain_halved } = watch.influence.follow(now, scale, wish.target, wish.rating);
        if let Some((from, to)) = shares {
            let change = ShareChange { server: server.clone(), from, to, rating: wish.rating, is_dry_run };
            effects.push(Effect::TellShare(change));
        }
        if let Some(gain) = gain_halved {
            effects.push(Effect::TellOscillation(server, gain));
        }
        effects.extend(watch.new_share().map(|share| Effect::SetShare(wish.slot, share)));
    }
}

fn to_share(units: f64) -> Share {
    let units = units.clamp(0.0, f64::from(u32::MAX));
    // The smallest share is still one: only what is meant to be nothing is nothing.
    Share::from_units(if units > 0.0 { units.max(1.0) as u32 } else { 0 })
}

fn is_classic(feedback: FeedbackConfig) -> bool {
    feedback.mode == FeedbackMode::Classic
}
