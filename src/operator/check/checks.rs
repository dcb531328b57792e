//! Warnings of a `check` that is allowed and would not do what it is there for.

use std::time::Duration;

use crate::base::units::duration_text;
use crate::pure::check::{CheckConfig, CheckKind};
use crate::pure::config::source::Place;
use crate::pure::config::{Config, Problem};
use crate::pure::control::CHECKS_MAX;

/// Adds all of them.
pub(super) fn find(config: &Config, warnings: &mut Vec<Problem>) {
    let mut busy = 0.0;
    let mut last = None;
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let (Some(check), Some(place)) = (&pool.check, &places.check) else { continue };
        slow(check, place, warnings);
        never_wrong(&check.kind, place, warnings);
        let share = check.times.every.map_or(0.0, |every| part(check.times.timeout, every));
        busy += share * pool.servers.len() as f64;
        last = Some(place);
    }
    // Each of them may take its whole timeout, on the day on which it matters.
    if let Some(place) = last.filter(|_| busy > CHECKS_MAX as f64) {
        let message = format!("{busy:.0} checks would run at once if no server answered, and {CHECKS_MAX} may");
        let problem = Problem::at(place, message).as_warning().label("the others wait, and failures are found later");
        warnings.push(problem.help("let `every` be longer, or `timeout` shorter"));
    }
}

/// The part of its time that a server is under check, if it does not answer.
fn part(timeout: Duration, every: Duration) -> f64 {
    (timeout.as_secs_f64() / every.as_secs_f64()).min(1.0)
}

fn slow(check: &CheckConfig, place: &Place, warnings: &mut Vec<Problem>) {
    let timeout = check.times.timeout;
    if let Some(every) = check.times.every.filter(|every| timeout > *every) {
        let message =
            format!("a check may take longer ({}) than to the next ({})", duration_text(timeout), duration_text(every));
        let problem = Problem::at(place, message).as_warning();
        let problem = problem.label("the next one waits for its end");
        warnings.push(
            problem.help("a server that does not answer is found out later than `every` says: give `timeout` less"),
        );
    }
}

/// A check that no answer fails.
fn never_wrong(kind: &CheckKind, place: &Place, warnings: &mut Vec<Problem>) {
    let CheckKind::Http(http) = kind else { return };
    if http.statuses.is_everything() && !http.wants_body() {
        let problem = Problem::at(place, "every answer to this check is a good one").as_warning();
        let problem = problem.label("a server that answers 500 to all is well");
        warnings.push(problem.help("leave `status` out for 200 to 399, or say what is good"));
    }
}
