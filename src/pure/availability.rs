//! How available a server or a pool is: from when it stood how, the mean time between failures, the mean time to repair, and
//! the uptime MTBF/(MTBF + MTTR).
//!
//! A failure is counted once it is known to be one, and its repair is counted from the first doubt, for so long nobody was
//! served: a doubt that proves wrong counts for nothing. Time out of service by an operator's wish counts neither way. It
//! refuses to say why something failed.

use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::pool::State;

/// How somebody stands towards those who want to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// In service, if only with a part of its share or with more to do than it can.
    InService,
    /// Something is wrong, and it may be nothing.
    Doubted,
    /// Dead.
    Failed,
    /// Out by an operator's wish, or its own.
    Away,
}

impl Standing {
    /// How a server in that state stands. One that `is_dead` and is kept only because its pool has no other has failed.
    pub const fn of(state: State, is_dead: bool) -> Self {
        match state {
            State::Up | State::Recovering | State::Suspect { by_overload: true } => Self::InService,
            State::Suspect { by_overload: false } if is_dead => Self::Failed,
            State::Suspect { by_overload: false } => Self::Doubted,
            State::Down => Self::Failed,
            State::Drained | State::Maintenance => Self::Away,
        }
    }

    /// How a pool of such servers stands: in service while one of them is, away while all are.
    pub fn of_pool(servers: impl IntoIterator<Item = Self>) -> Self {
        servers.into_iter().fold(Self::Away, |pool, server| match (pool, server) {
            (Self::InService, _) | (_, Self::InService) => Self::InService,
            (Self::Doubted, _) | (_, Self::Doubted) => Self::Doubted,
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (Self::Away, Self::Away) => Self::Away,
        })
    }
}

/// What has been counted of one server or pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    standing: Standing,
    since: Timestamp,
    up: Duration,
    down: Duration,
    /// Doubted for so long until `since`, and not known yet whether rightly.
    doubted: Duration,
    failures: u64,
}

/// The figures of a [`Tally`] at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// How often it has failed.
    pub failures: u64,
    /// The mean time between failures; `None`: there was none.
    pub mtbf: Option<Duration>,
    /// The mean time to repair, what is not repaired yet included; `None`: there was nothing to repair.
    pub mttr: Option<Duration>,
    /// The part of the time in which it was in service, 0 to 1; `None`: it was never wanted.
    pub uptime: Option<f64>,
}

impl Tally {
    /// Nothing counted yet.
    pub const fn new(now: Timestamp, standing: Standing) -> Self {
        let failures = matches!(standing, Standing::Failed) as u64;
        let (up, down, doubted) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        Self { standing, since: now, up, down, doubted, failures }
    }

    /// How it stands.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// It stands like this from now on.
    pub fn stands(&mut self, now: Timestamp, standing: Standing) {
        if standing == self.standing {
            return;
        }
        self.count(now);
        match (self.standing, standing) {
            // It has failed, and doubt is no recovery.
            (Standing::Failed, Standing::Doubted) => return,
            (Standing::Doubted, Standing::Failed) => self.down += std::mem::take(&mut self.doubted),
            (Standing::Doubted, Standing::InService) => self.up += std::mem::take(&mut self.doubted),
            // Nobody will ever know.
            (Standing::Doubted, Standing::Away) => self.doubted = Duration::ZERO,
            (Standing::InService | Standing::Away | Standing::Failed | Standing::Doubted, _) => {}
        }
        self.failures += u64::from(standing == Standing::Failed);
        self.standing = standing;
    }

    /// The figures at that time.
    pub fn figures(&self, now: Timestamp) -> Figures {
        let mut counted = *self;
        counted.count(now);
        // What may be a failure is none yet.
        let (up, down, failures) = (counted.up + counted.doubted, counted.down, counted.failures);
        let mean = |sum: Duration| {
            let nanos = u128::checked_div(sum.as_nanos(), u128::from(failures))?;
            u64::try_from(nanos).ok().map(Duration::from_nanos)
        };
        let all = (up + down).as_secs_f64();
        let uptime = (all > 0.0).then(|| up.as_secs_f64() / all);
        Figures { failures, mtbf: mean(up), mttr: mean(down), uptime }
    }

    /// Counts the time until now to what it was.
    fn count(&mut self, now: Timestamp) {
        let elapsed = now.since(self.since);
        match self.standing {
            Standing::InService => self.up += elapsed,
            Standing::Doubted => self.doubted += elapsed,
            Standing::Failed => self.down += elapsed,
            Standing::Away => {}
        }
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Standing::{Away, Doubted, Failed, InService};
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    fn tally(turns: &[(u64, Standing)]) -> Tally {
        let mut tally = Tally::new(at(0), InService);
        for (second, standing) in turns {
            tally.stands(at(*second), *standing);
        }
        tally
    }

    const fn seconds(count: u64) -> Option<Duration> {
        Some(Duration::from_secs(count))
    }

    #[test]
    fn the_figures_of_two_failures_are_their_means() {
        // In service for 100 and 80 seconds, out for 10 and 20, the first two of them in doubt.
        let tally = tally(&[(100, Doubted), (102, Failed), (110, InService), (190, Failed), (210, InService)]);
        let figures = tally.figures(at(210));
        let expected = Figures { failures: 2, mtbf: seconds(90), mttr: seconds(15), uptime: Some(180.0 / 210.0) };
        assert_eq!(figures, expected);
        let (mtbf, mttr) = (90.0, 15.0);
        assert!((figures.uptime.unwrap() - mtbf / (mtbf + mttr)).abs() < 1e-12);
    }

    #[test]
    fn a_doubt_that_proves_wrong_is_no_failure() {
        let figures = tally(&[(100, Doubted), (102, InService)]).figures(at(200));
        assert_eq!(figures, Figures { failures: 0, mtbf: None, mttr: None, uptime: Some(1.0) });
    }

    #[test]
    fn what_an_operator_takes_out_is_neither_up_nor_down() {
        let figures = tally(&[(10, Away), (1_000, InService), (1_010, Failed), (1_020, Away)]).figures(at(9_000));
        assert_eq!(figures, Figures { failures: 1, mtbf: seconds(20), mttr: seconds(10), uptime: Some(20.0 / 30.0) });
        assert_eq!(Tally::new(at(0), Away).figures(at(9)).uptime, None);
    }

    #[test]
    fn a_repair_that_goes_on_counts_so_far() {
        let tally = tally(&[(60, Failed), (70, Doubted)]);
        assert_eq!((tally.standing(), tally.figures(at(90)).mttr), (Failed, seconds(30)));
        assert_eq!(Tally::new(at(0), Failed).figures(at(5)).failures, 1, "dead from the beginning");
    }

    #[test]
    fn a_pool_stands_as_the_best_of_its_servers() {
        for (servers, pool) in [
            (&[Failed, InService, Away][..], InService),
            (&[Failed, Doubted], Doubted),
            (&[Failed, Away], Failed),
            (&[Away, Away], Away),
            (&[], Away),
        ] {
            assert_eq!(Standing::of_pool(servers.iter().copied()), pool, "{servers:?}");
        }
    }

    proptest! {
        #[test]
        fn all_time_is_counted_once(turns in prop::collection::vec((0u64..100, 0usize..4), 0..40)) {
            let (mut now, mut away) = (0, 0);
            let mut tally = Tally::new(at(0), InService);
            for (wait, kind) in turns {
                now += wait;
                away += if tally.standing() == Away { wait } else { 0 };
                // Doubts that lead nowhere are left out, and have their own test.
                let standing = [InService, InService, Failed, Away][kind];
                tally.stands(at(now), standing);
            }
            let figures = tally.figures(at(now));
            let failures = u32::try_from(figures.failures).unwrap();
            tally.count(at(now));
            let counted = tally.up + tally.down;
            prop_assert_eq!(counted, Duration::from_secs(now - away));
            if failures > 0 {
                let (mtbf, mttr) = (figures.mtbf.unwrap().as_secs_f64(), figures.mttr.unwrap().as_secs_f64());
                let uptime = figures.uptime.unwrap_or(0.0);
                prop_assert!(mtbf + mttr == 0.0 || (uptime - mtbf / (mtbf + mttr)).abs() < 1e-6);
            }
        }
    }
}
