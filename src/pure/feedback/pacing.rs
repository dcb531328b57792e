//! When an agent speaks. Two ways of pacing stand side by side.
//!
//! **Promised**, the default: the next report comes within clamp(2 s × load, 0.1 s, 1 s), and each report promises when. The
//! load is the part of `connections-max` that is taken; without one, the largest part in use of anything. An overload and its
//! end, and a change of the service's state, are said at once.
//!
//! **Classic**, as the two papers have it. Figures are read every 15 to 20 s and told when one of processor, memory, disk and
//! network has changed by more than 5 % since it was last told, and also when the connections have changed by 15 since; what
//! was not told again stays in reports as it was. Signs of life come every `connections` ÷ `connections-max` × 2 s, and not
//! more often than every 200 ms (the paper's own formula floods when there are none); without a `connections-max` there are
//! none of these, and nothing is promised. What is abnormal or overloaded is said at once.
//!
//! It refuses to read a clock or to measure anything.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::time::Timestamp;
use crate::pure::feedback::report::{Figures, Service, Use};

/// How often an agent looks at its service.
pub const SAMPLE: Duration = Duration::from_millis(50);
/// The interval at full load, before it is clamped.
pub const INTERVAL_FULL: Duration = Duration::from_secs(2);
/// The shortest promised interval.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest promised interval.
pub const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The shortest interval of the push paper's signs of life: one of its ticks.
pub const CLASSIC_FLOOR: Duration = Duration::from_millis(200);
/// The feedback paper's time between two readings, at least and at most.
pub const CLASSIC_READ: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(20));
/// The part of a figure by which it has to change to be told again.
pub const CLASSIC_CHANGE: f64 = 0.05;
/// The connections by which their number has to change to be told again.
pub const CLASSIC_CONNECTIONS: u32 = 15;

/// How an agent paces its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Adaptive, each report promising the next.
    #[default]
    Promised,
    /// As the papers have it.
    Classic,
}

/// What an agent has just seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// How loaded the service is.
    pub figures: Figures,
    /// Whether it can't take more.
    pub is_overloaded: bool,
    /// How it is.
    pub service: Service,
}

/// Why a report is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was none before.
    First,
    /// It was promised, or is a sign of life.
    Due,
    /// The service has become overloaded, or has stopped being it.
    Overload,
    /// The service's state has changed.
    Service,
    /// A figure has changed by more than 5 %.
    Figure,
    /// Connections have changed by 15.
    Connections,
}

/// What an agent has said, and when it speaks next.
#[derive(Clone, Debug)]
pub struct Pacing {
    mode: Mode,
    rng: Rng,
    last: Option<Told>,
    /// When figures are read next in classic mode.
    next_reading: Timestamp,
}

/// What was last told.
#[derive(Clone, Copy, Debug)]
struct Told {
    sample: Sample,
    /// When the next report has to be there; `None`: none is promised.
    due: Option<Timestamp>,
}

impl Pacing {
    /// Nothing has been said. `seed` spreads the readings of classic mode.
    pub const fn new(mode: Mode, seed: u64) -> Self {
        Self { mode, rng: Rng::new(seed), last: None, next_reading: Timestamp::ZERO }
    }

    /// Whether a report is to be sent, after a look at the service. What is sent is [`Pacing::told`].
    pub fn look(&mut self, now: Timestamp, sample: &Sample) -> Option<Reason> {
        let Some(last) = self.last else { return Some(Reason::First) };
        if sample.service != last.sample.service {
            return Some(Reason::Service);
        }
        if sample.is_overloaded != last.sample.is_overloaded {
            return Some(Reason::Overload);
        }
        let changed = match self.mode {
            Mode::Promised => None,
            Mode::Classic => self.changed(now, &last.sample.figures, &sample.figures),
        };
        // Half a look early is nearer to the promise than half a look late, and within it.
        changed.or_else(|| last.due.filter(|due| now + SAMPLE / 2 >= *due).map(|_| Reason::Due))
    }

    /// Notes that a report is sent, and gives back what it says of this sample and within what time the next comes. `why`
    /// `None` is the answer to a question: it says everything as it is.
    pub fn told(&mut self, now: Timestamp, why: Option<Reason>, sample: &Sample) -> (Sample, Option<Duration>) {
        let mut said = *sample;
        if let (Mode::Classic, Some(last), Some(Reason::Due)) = (self.mode, self.last, why) {
            said.figures = last.sample.figures;
        } else if self.mode == Mode::Classic && why != Some(Reason::Connections) {
            self.next_reading = now + self.until_reading();
        }
        let promise = self.interval(&sample.figures);
        self.last = Some(Told { sample: said, due: promise.map(|promise| now + promise) });
        (said, promise)
    }

    /// Whether figures are wanted at all: in classic mode they are read only every 15 to 20 s, connections apart.
    pub fn wants_figures(&self, now: Timestamp) -> bool {
        match self.mode {
            Mode::Promised => true,
            Mode::Classic => self.last.is_none() || now >= self.next_reading,
        }
    }

    /// What has changed enough to be told, in classic mode. A reading whose figures have not is over with this.
    fn changed(&mut self, now: Timestamp, told: &Figures, seen: &Figures) -> Option<Reason> {
        let moved = |(told, seen): (Option<u32>, Option<u32>)| told.unwrap_or(0).abs_diff(seen.unwrap_or(0));
        if moved((told.connections, seen.connections)) >= CLASSIC_CONNECTIONS {
            return Some(Reason::Connections);
        }
        if now < self.next_reading {
            return None;
        }
        self.next_reading = now + self.until_reading();
        let pairs =
            [(told.cpu, seen.cpu), (told.memory, seen.memory), (told.disk, seen.disk), (told.network, seen.network)];
        pairs.into_iter().any(has_changed).then_some(Reason::Figure)
    }

    fn until_reading(&mut self) -> Duration {
        let (least, most) = CLASSIC_READ;
        least + (most - least).mul_f64(self.rng.unit())
    }

    fn interval(&self, figures: &Figures) -> Option<Duration> {
        match self.mode {
            Mode::Promised => Some(INTERVAL_FULL.mul_f64(load(figures)).clamp(INTERVAL_MIN, INTERVAL_MAX)),
            Mode::Classic => connections_part(figures).map(|part| INTERVAL_FULL.mul_f64(part).max(CLASSIC_FLOOR)),
        }
    }
}

/// The part of its connections that a service has; above 1 where it has more than it should.
fn connections_part(figures: &Figures) -> Option<f64> {
    let max = figures.connections_max.filter(|max| *max > 0)?;
    Some(f64::from(figures.connections?) / f64::from(max))
}

/// How loaded a service is, 0 to 1 and more.
fn load(figures: &Figures) -> f64 {
    connections_part(figures).unwrap_or_else(|| {
        let parts = [figures.cpu, figures.disk, figures.network, figures.memory];
        parts.into_iter().filter_map(|value| value.and_then(Use::part)).fold(0.0, f64::max)
    })
}

/// Whether a figure has changed by more than a twentieth of what was told.
fn has_changed((told, seen): (Option<Use>, Option<Use>)) -> bool {
    match (told, seen) {
        (Some(told), Some(seen)) => (seen.amount - told.amount).abs() > CLASSIC_CHANGE * told.amount,
        (told, seen) => told.is_some() != seen.is_some(),
    }
}

#[cfg(test)]
mod tests;
