//! What a server says of itself: the last report of each source, its agent's promises, and the paper's counter.

use std::time::Duration;

use super::promises::{DOUBT_OF_LIFE, Promises};
use crate::base::time::Timestamp;
use crate::pure::feedback::report::{Figures, Report, Service, Source};

/// What a source said counts for so long, or for three of its promises where that is longer.
pub const HOLDS: Duration = Duration::from_secs(60);

/// Figures are fresh for so long beyond their promise.
pub const FRESH: Duration = Duration::from_secs(3);

/// What is old counts less and less, and after so much more time nothing.
pub const FADES: Duration = Duration::from_secs(10);

/// The promise of a report that has none.
const UNPROMISED: Duration = Duration::from_secs(1);

/// The last word of a source.
#[derive(Clone, Debug)]
struct Voice {
    source: Source,
    at: Timestamp,
    boot: u64,
    service: Service,
    figures: Figures,
    promised: Option<Duration>,
}

/// What a server says of itself: one voice for each source.
#[derive(Debug, Default)]
pub(super) struct Voices {
    voices: Vec<Voice>,
    promises: Option<Promises>,
    counter: u32,
}

impl Voices {
    /// A report has come. Returns whether its sender began anew.
    pub(super) fn hear(&mut self, now: Timestamp, source: Source, report: &Report) -> bool {
        let voice = Voice {
            source,
            at: now,
            boot: report.boot,
            service: report.service,
            figures: report.figures,
            promised: report.promised_next,
        };
        let is_new_boot = match self.voices.iter_mut().find(|known| known.source == source) {
            Some(known) => std::mem::replace(known, voice).boot != report.boot,
            None => {
                self.voices.push(voice);
                false
            }
        };
        if source == Source::Agent {
            // The paper: an abnormal report does not zero the counter.
            if matches!(report.service, Service::Up | Service::Leaving | Service::Maintenance) {
                self.counter = 0;
            }
            self.promises = match (report.promised_next, self.promises.take().filter(|_| !is_new_boot)) {
                (Some(promised), Some(mut promises)) => {
                    promises.kept(now, promised);
                    Some(promises)
                }
                (Some(promised), None) => Some(Promises::new(now, promised)),
                (None, _) => None,
            };
        }
        is_new_boot
    }

    /// A source counts for nothing until it speaks again.
    pub(super) fn lose(&mut self, source: Source) {
        self.voices.retain(|voice| voice.source != source);
        if source == Source::Agent {
            self.promises = None;
        }
    }

    pub(super) const fn is_any(&self) -> bool {
        !self.voices.is_empty()
    }

    fn voice(&self, source: Source) -> Option<&Voice> {
        self.voices.iter().find(|voice| voice.source == source)
    }

    /// How a source said last that its service is.
    pub(super) fn service(&self, source: Source) -> Option<Service> {
        self.voice(source).map(|voice| voice.service)
    }

    pub(super) const fn promises(&self) -> Option<&Promises> {
        self.promises.as_ref()
    }

    /// Our own delay is not the agent's.
    pub(super) fn forgive(&mut self, delay: Duration) {
        if let Some(promises) = &mut self.promises {
            promises.forgive(delay);
        }
    }

    /// What came meanwhile may have been lost on our side: it counts from now on.
    pub(super) fn forgive_all(&mut self, now: Timestamp) {
        if let Some(promises) = &mut self.promises {
            promises.forgive(now.since(promises.heard()));
        }
    }

    /// Whether what a source said is too old to hold.
    pub(super) fn is_old(&self, now: Timestamp, source: Source) -> bool {
        self.voice(source).is_some_and(|voice| now.since(voice.at) > HOLDS.max(voice.promised.unwrap_or_default() * 3))
    }

    /// When its agent, or whoever else speaks for it, was heard last.
    pub(super) fn heard(&self) -> Option<Timestamp> {
        self.voices.iter().map(|voice| voice.at).max()
    }

    /// When a source was heard last.
    pub(super) fn heard_from(&self, source: Source) -> Option<Timestamp> {
        self.voice(source).map(|voice| voice.at)
    }

    /// Whether its agent says that it is dead, or can't be heard any more.
    pub(super) fn is_agent_a_witness(&self, now: Timestamp, stretch: f64) -> bool {
        self.service(Source::Agent) == Some(Service::Down)
            || self.promises.is_some_and(|promises| promises.doubt(now, stretch) >= DOUBT_OF_LIFE)
    }

    /// Whether its agent has just said that its service lives.
    pub(super) fn is_agent_sure_it_lives(&self, now: Timestamp, stretch: f64) -> bool {
        self.service(Source::Agent) == Some(Service::Up)
            && self.promises.is_some_and(|promises| promises.missed(now, stretch) == 0)
    }

    /// The paper's ticks have come. The counter now; `None`: no agent has spoken yet.
    pub(super) fn tick(&mut self, ticks: u32) -> Option<u32> {
        self.voice(Source::Agent)?;
        self.counter = self.counter.saturating_add(ticks);
        Some(self.counter)
    }

    /// The paper's ticks since the last report.
    pub(super) const fn counter(&self) -> u32 {
        self.counter
    }

    /// The figures of the source that knows most, and how much they count still, 1 to 0.
    pub(super) fn figures(&self, now: Timestamp) -> Option<(Figures, f64)> {
        let known = [Source::Agent, Source::Orca].into_iter().filter_map(|source| self.voice(source));
        // The agent knows more; but what is fresh counts before what is old.
        let mut best: Option<(Figures, f64)> = None;
        for voice in known {
            let counts = counts(now, voice);
            if best.is_none_or(|(_, most)| counts > most) {
                best = Some((voice.figures, counts));
            }
        }
        best
    }

    /// The part of its weight that it wants, 1 where it does not say.
    pub(super) fn wanted_share(&self, now: Timestamp) -> f64 {
        let wanted = self.voices.iter().filter_map(|voice| {
            let wanted = voice.figures.wanted_share.filter(|wanted| wanted.is_finite())?;
            Some(1.0 + (wanted.clamp(0.0, 256.0) - 1.0) * counts(now, voice))
        });
        wanted.fold(1.0, |all, one| all * one)
    }

    /// The most requests that it says it takes.
    pub(super) fn connections_max(&self) -> Option<u32> {
        // 0 is HAProxy's word for no bound.
        self.voice(Source::AgentCheck).and_then(|voice| voice.figures.connections_max).filter(|max| *max > 0)
    }
}

/// How much a word counts still.
fn counts(now: Timestamp, voice: &Voice) -> f64 {
    let fresh = voice.promised.unwrap_or(UNPROMISED) * 2 + FRESH;
    let old = now.since(voice.at).saturating_sub(fresh);
    (1.0 - old.as_secs_f64() / FADES.as_secs_f64()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn what_is_old_fades_to_nothing() {
        let mut voices = Voices::default();
        let figures = Figures { wanted_share: Some(0.5), ..Figures::default() };
        let report = Report { figures, promised_next: Some(Duration::from_millis(500)), ..Report::default() };
        voices.hear(at(0), Source::Agent, &report);
        let counts = |millis| voices.figures(at(millis)).unwrap().1;
        assert_eq!([0, 4_000, 9_000, 14_000, 99_000].map(counts), [1.0, 1.0, 0.5, 0.0, 0.0]);
        assert_eq!([0, 9_000, 99_000].map(|millis| voices.wanted_share(at(millis))), [0.5, 0.75, 1.0]);
    }

    #[test]
    fn an_agent_that_begins_anew_has_no_past() {
        let mut voices = Voices::default();
        let promised_next = Some(Duration::from_millis(100));
        let report = |boot| Report { boot, promised_next, ..Report::default() };
        assert!(!voices.hear(at(0), Source::Agent, &report(1)));
        assert!(voices.promises().unwrap().missed(at(1_000), 1.0) > 3);
        assert!(voices.hear(at(1_000), Source::Agent, &report(2)));
        assert_eq!(voices.promises().unwrap().missed(at(1_000), 1.0), 0);
    }
}
