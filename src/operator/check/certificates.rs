//! The certificates of the listeners, and what is needed for TLS towards servers: read like at a start, and how long they
//! still hold.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::CheckReport;
use crate::pure::config::source::Place;
use crate::pure::config::{Config, Problem, UpstreamTlsPlaces};
use crate::pure::pool::{UpstreamTls, Verification};
use crate::transport::tls::{
    ClientPolicy, PolicyError, SystemAuthorities, TlsConnector, UpstreamTlsError, check_policies, load_certificate,
    validity, vouch_for_nobody,
};

/// A certificate that ends sooner than this is warned of: long enough to renew it by hand.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// Reads the certificates of all listeners; one that can't be used is an error.
pub(super) fn check(config: &Config, now: SystemTime, report: &mut CheckReport) {
    for (listener, places) in config.listeners.iter().zip(&config.places.listeners) {
        let Some(tls) = &listener.tls else { continue };
        let mut usable = Vec::new();
        for ((site, place), client_ca) in tls.certificates.iter().zip(&places.certificates).zip(&places.client_cas) {
            let key = load_certificate(&site.files).map_err(|error| {
                let problem = Problem::at(place, "this certificate can't be used").label("this one");
                report.errors.push(problem.help(error.to_string()));
            });
            let policy = ClientPolicy::load(site.clients.as_ref()).map_err(|error| {
                let place = client_ca.as_ref().unwrap_or(place);
                let problem = Problem::at(place, "these certificate authorities can't be used").label("this one");
                let problem = problem.help(error.to_string());
                // Several certificates may share one.
                if !report.errors.iter().any(|other| other.position() == problem.position()) {
                    report.errors.push(problem);
                }
            });
            if let Some(valid) = key.as_ref().ok().and_then(|key| validity(key)) {
                let file = site.files.certificate.display().to_string();
                report.warnings.extend(judge(&valid, now, place, &file, "clients"));
            }
            if let (Some(authorities), Some(place)) = (&site.clients, client_ca)
                && let Some(warning) = judge_authorities(&authorities.file, place)
                && !report.warnings.iter().any(|other| other.position() == warning.position())
            {
                report.warnings.push(warning);
            }
            usable.extend(key.ok().zip(policy.ok()));
        }
        // One that is missing has been told of.
        if usable.len() == tls.certificates.len()
            && let Err(error @ PolicyError::Conflict(_)) = check_policies(&usable, listener.address.stand_in().ip())
        {
            let problem = Problem::at(&places.node, "these certificates can't be those of one listener");
            report.errors.push(problem.label("in here").help(error.to_string()));
        }
    }
    let mut system = SystemAuthorities::default();
    for (pool, places) in config.pools.iter().zip(&config.places.pools) {
        let (Some(tls), Some(places)) = (&pool.upstream.tls, &places.tls) else { continue };
        match TlsConnector::of_pool(pool, &mut system) {
            Err(error) => report.errors.push(unusable(&error, places)),
            Ok(_) => judge_upstream(tls, places, now, report),
        }
    }
}

/// Why TLS towards the servers of a pool can't be set up.
fn unusable(error: &UpstreamTlsError, places: &UpstreamTlsPlaces) -> Problem {
    let (place, message) = match error {
        UpstreamTlsError::Authorities(_) => (places.ca.as_ref(), "these certificate authorities can't be used"),
        UpstreamTlsError::Certificate(_) => (places.certificate.as_ref(), "this certificate can't be used"),
        UpstreamTlsError::NoSystemAuthorities(_) | UpstreamTlsError::Name(_) | UpstreamTlsError::Rustls(_) => {
            (None, "the servers' certificates can't be verified")
        }
    };
    Problem::at(place.unwrap_or(&places.node), message).label("this one").help(error.to_string())
}

/// What is allowed, and to be known.
fn judge_upstream(tls: &UpstreamTls, places: &UpstreamTlsPlaces, now: SystemTime, report: &mut CheckReport) {
    if tls.verification == Verification::Insecure {
        let place = places.insecure.as_ref().unwrap_or(&places.node);
        let problem = Problem::at(place, "the servers' certificates are not verified").as_warning();
        report.warnings.push(
            problem
                .label("whoever can take the connection over reads and changes everything")
                .help("name the authority of their certificates: tls { ca \"FILE\" }"),
        );
    }
    if let (Some(files), Some(place)) = (&tls.certificate, &places.certificate)
        && let Some(valid) = load_certificate(files).ok().and_then(|key| validity(&key))
    {
        report.warnings.extend(judge(&valid, now, place, &files.certificate.display().to_string(), "servers"));
    }
    if let (Verification::Authorities(file), Some(place)) = (&tls.verification, &places.ca) {
        report.warnings.extend(judge_authorities(file, place));
    }
}

/// Authorities that are none: the certificates that they are meant to vouch for will be refused.
fn judge_authorities(file: &Path, place: &Place) -> Option<Problem> {
    let help = "name the certificate of the authority that has signed it";
    vouch_for_nobody(file).then(|| {
        let problem = Problem::at(place, format!("{} holds no authority's certificate", file.display())).as_warning();
        problem.label("it vouches for nobody, not even for itself").help(help)
    })
}

/// A certificate that `others` will refuse, or do.
fn judge(valid: &Range<SystemTime>, now: SystemTime, place: &Place, file: &str, others: &str) -> Option<Problem> {
    if let Ok(wait) = valid.start.duration_since(now)
        && !wait.is_zero()
    {
        let days = super::counted(wait.as_secs().div_ceil(86_400) as usize, "day");
        let problem = Problem::at(place, format!("{file} is not valid for {days} yet")).as_warning();
        return Some(problem.label(format!("until then {others} refuse it")));
    }
    let help = "renew it: a start with the new files takes it into use";
    match valid.end.duration_since(now) {
        Err(late) => {
            let days = late.duration().as_secs() / 86_400;
            let problem = Problem::at(place, format!("{file} expired {} ago", super::counted(days as usize, "day")));
            Some(problem.as_warning().label(format!("{others} refuse it")).help(help))
        }
        Ok(left) if left < EXPIRY_WARNING => {
            let days = left.as_secs() / 86_400;
            let problem = Problem::at(place, format!("{file} expires in {}", super::counted(days as usize, "day")));
            Some(problem.as_warning().label(format!("then {others} refuse it")).help(help))
        }
        Ok(_) => None,
    }
}
