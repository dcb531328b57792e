//! The certificates of the listeners: read like at a start, and how long they still hold.

use std::time::{Duration, SystemTime};

use super::CheckReport;
use crate::pure::config::source::Place;
use crate::pure::config::{Config, Problem};
use crate::transport::tls::{expiry, load_certificate};

/// A certificate that ends sooner than this is warned of: long enough to renew it by hand.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// Reads the certificates of all listeners; one that can't be used is an error.
pub(super) fn check(config: &Config, now: SystemTime, report: &mut CheckReport) {
    for (listener, places) in config.listeners.iter().zip(&config.places.listeners) {
        let Some(tls) = &listener.tls else { continue };
        for (files, place) in tls.certificates.iter().zip(&places.certificates) {
            match load_certificate(files) {
                Err(error) => {
                    report.errors.push(
                        Problem::at(place, "this certificate can't be used").label("this one").help(error.to_string()),
                    );
                }
                Ok(key) => {
                    let file = files.certificate.display();
                    if let Some(end) = expiry(&key) {
                        report.warnings.extend(judge(end, now, place, &file.to_string()));
                    }
                }
            }
        }
    }
}

fn judge(end: SystemTime, now: SystemTime, place: &Place, file: &str) -> Option<Problem> {
    let help = "renew it: a start with the new files takes it into use";
    match end.duration_since(now) {
        Err(late) => {
            let days = late.duration().as_secs() / 86_400;
            let problem = Problem::at(place, format!("{file} expired {} ago", super::counted(days as usize, "day")));
            Some(problem.as_warning().label("clients refuse it").help(help))
        }
        Ok(left) if left < EXPIRY_WARNING => {
            let days = left.as_secs() / 86_400;
            let problem = Problem::at(place, format!("{file} expires in {}", super::counted(days as usize, "day")));
            Some(problem.as_warning().label("then clients refuse it").help(help))
        }
        Ok(_) => None,
    }
}
