//! What the log says of the service: how it is now and why, and whether it is overloaded. It refuses to fill the log with an
//! overload that comes and goes.

use std::time::Duration;

use tracing::{info, warn};

use crate::base::time::Timestamp;
use crate::pure::feedback::pacing::Sample;
use crate::pure::feedback::report::Service;

/// Between two lines of overload.
const SPACING: Duration = Duration::from_secs(5);

/// What was last said.
#[derive(Clone, Copy, Debug, Default)]
pub struct StateLog {
    service: Service,
    is_overloaded: bool,
    overload_said: Option<Timestamp>,
}

impl StateLog {
    /// Says what has changed; `why` is asked for only where the service has.
    pub fn note(&mut self, now: Timestamp, sample: &Sample, why: impl FnOnce() -> Option<String>) {
        let Sample { service, is_overloaded, .. } = *sample;
        if service != self.service {
            match why() {
                Some(why) => warn!("the service is {service:?}, and was {:?}: {why}", self.service),
                None => info!("the service is {service:?}, and was {:?}", self.service),
            }
            self.service = service;
        }
        if self.has_news(now, is_overloaded) {
            if is_overloaded {
                warn!("the service is overloaded: it has as many connections as it takes, or more wait than may");
            } else {
                info!("the service is not overloaded any more");
            }
        }
    }

    fn has_news(&mut self, now: Timestamp, is_overloaded: bool) -> bool {
        let is_due = self.overload_said.is_none_or(|said| now.since(said) >= SPACING);
        let has_news = is_due && is_overloaded != self.is_overloaded;
        if has_news {
            (self.is_overloaded, self.overload_said) = (is_overloaded, Some(now));
        }
        has_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overload_that_comes_and_goes_is_said_now_and_then_and_its_end_is() {
        let mut log = StateLog::default();
        let at = |look: u64| Timestamp::from_nanos((look + 1) * 50_000_000);
        let said: Vec<u64> = (0..250).filter(|look| log.has_news(at(*look), look % 2 == 0)).collect();
        assert_eq!(said, [0, 101, 202]);
        assert!(log.has_news(at(400), false) != log.has_news(at(600), false), "the end once, and no more");
    }
}
