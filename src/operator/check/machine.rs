//! What the rule files want of this machine, apart from certificates and ports: a user, a secret, the key of agents, and a
//! folder for the access log.
//!
//! It opens and makes nothing: a check leaves the machine as it was.

use std::path::Path;

use super::CheckReport;
use crate::control::control_loop::read_password;
use crate::operator::agent_key::read_master;
use crate::operator::secret::{Secret, is_public};
use crate::pure::config::source::Place;
use crate::pure::config::{Config, Problem};

/// Adds an error for each that is not there.
pub(super) fn check(config: &Config, report: &mut CheckReport) {
    if let (Some(name), Some(place)) = (&config.user, &config.places.user) {
        let found = nix::unistd::User::from_name(name);
        if !matches!(found, Ok(Some(_))) {
            let problem = Problem::at(place, format!("there is no user `{name}` on this machine"));
            report
                .errors
                .push(problem.label("unknown here").help("a start would fail: make the user, or name another"));
        }
    }
    if let (Some(file), Some(place)) = (&config.secret, &config.places.secret) {
        check_secret(file, place, report);
    }
    for named in &config.places.secret_files {
        check_password(&named.file, &named.place, report);
    }
    if let (Some(feedback), Some(place)) = (&config.feedback, &config.places.feedback_key)
        && let Err(error) = read_master(&feedback.key_file)
    {
        let problem = Problem::at(place, "this master key can't be used").label("this one").help(error.to_string());
        report.errors.push(problem.help("make one: pointsman agent-key --new FILE"));
    }
    let file = config.access_log.as_ref().and_then(|log| log.file.as_deref());
    if let (Some(file), Some(place)) = (file, &config.places.access_log) {
        report.errors.extend(
            log_trouble(file)
                .map(|(message, help)| Problem::at(place, message).label("the access log can't be opened").help(help)),
        );
    }
}

fn check_secret(file: &Path, place: &Place, report: &mut CheckReport) {
    if let Err(error) = Secret::read(file) {
        let problem = Problem::at(place, "this secret can't be used").label("this one").help(error.to_string());
        report.errors.push(problem.help("make one: head -c 32 /dev/urandom > secret"));
    } else if is_public(file) {
        let problem = Problem::at(place, "everybody on this machine can read the secret").as_warning();
        let problem = problem.label("whoever knows it can make cookies and open tickets");
        report.warnings.push(problem.help(format!("chmod 600 {}", file.display())));
    }
}

fn check_password(file: &Path, place: &Place, report: &mut CheckReport) {
    if let Err(error) = read_password(file) {
        let problem = Problem::at(place, "the file of this password can't be used").label("this one");
        report.errors.push(problem.help(error.to_string()));
    } else if is_public(file) {
        let problem = Problem::at(place, "everybody on this machine can read the password").as_warning();
        report.warnings.push(problem.label("and so be us").help(format!("chmod 600 {}", file.display())));
    }
}

fn log_trouble(file: &Path) -> Option<(String, &'static str)> {
    if file.is_dir() {
        return Some((format!("{} is a folder", file.display()), "name a file in it"));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return None;
    }
    Some((format!("there is no folder {}", folder.display()), "make it before a start: only the file is made"))
}
