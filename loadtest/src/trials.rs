//! The experiments about failure and feedback as the command line names them: their sizes, long or quick, and their reports.

use std::time::Duration;

use clap::ValueEnum;

use crate::cable::Quality;
use crate::experiment::Ground;
use crate::failure::Outcome;
use crate::kill::{self, Fault};
use crate::mttr::{self, Timeline};
use crate::options::{Capacity, Feedback, Kill, Mttr, Namespaces, Stand, Trial};
use crate::proxy::Product;
use crate::rival::{self, Rival};
use crate::{capacity, feedback, namespaces};

fn say(line: String) {
    eprintln!("{line}");
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn set_up(trial: &Trial, all: &[Rival]) -> Outcome<(Vec<Rival>, Ground)> {
    let rivals = rival::chosen(all, &trial.products)?;
    let products: Vec<Product> = rivals.iter().map(|rival| rival.product).collect();
    let Stand { pointsman, proxy_core, load_cores, .. } = &trial.stand;
    Ok((rivals, Ground::set_up(&products, pointsman.clone(), (*proxy_core, load_cores.clone()))?))
}

fn titled(title: &str, ground: &Ground, text: &str) -> String {
    format!("# {title}\n\n{}\n{text}", ground.facts.join("\n"))
}

/// `loadtest mttr`: the report, and whether no target was missed.
pub fn mttr(options: &Mttr) -> Outcome<(String, bool)> {
    let trial = &options.trial;
    let (rounds, overload, quiet, healthy) = match (options.full, trial.quick) {
        (true, _) => (12, 10, 290, 60),
        (false, false) => (12, 10, 20, 60),
        (false, true) => (2, 10, 10, 15),
    };
    let rounds = options.rounds.unwrap_or(rounds);
    let timeline = Timeline { rounds, overload: seconds(overload), quiet: seconds(quiet) };
    let healthy = seconds(options.healthy.unwrap_or(healthy));
    let (rivals, mut ground) = set_up(trial, &mttr::RIVALS)?;
    let experiment = mttr::Mttr { rivals, timeline, healthy, seed: trial.seed };
    let (text, passed) = experiment.run(&mut ground, say)?;
    Ok((titled("What overloads cost", &ground, &text), passed))
}

/// `loadtest kill`: the report, and whether no target was missed.
pub fn kill(options: &Kill) -> Outcome<(String, bool)> {
    let trial = &options.trial;
    let (well, fault, back) = if trial.quick { (2, 4, 8) } else { (5, 8, 16) };
    let timeline = kill::Timeline { well: seconds(well), fault: seconds(fault), back: seconds(back) };
    let faults = if options.faults.is_empty() { Fault::value_variants() } else { &options.faults };
    let (rivals, mut ground) = set_up(trial, &kill::RIVALS)?;
    let experiment = kill::Kill { rivals, faults: faults.to_vec(), rate: options.rate, timeline, seed: trial.seed };
    let (text, passed) = experiment.run(&mut ground, &options.pictures.folder(), say)?;
    Ok((titled("What clients notice of a failure", &ground, &text), passed))
}

/// `loadtest feedback`: the report, and whether no target was missed.
pub fn feedback(options: &Feedback) -> Outcome<(String, bool)> {
    let trial = &options.trial;
    let (duration, bursts, repeats) =
        if trial.quick { (12, vec![50, 400], 1) } else { (36, vec![50, 100, 200, 400, 800], 3) };
    let duration = seconds(options.seconds.unwrap_or(duration));
    let (rivals, mut ground) = set_up(trial, &feedback::RIVALS)?;
    let experiment = feedback::Feedback { rivals, duration, bursts, repeats, seed: trial.seed };
    let (text, passed) = experiment.run(&mut ground, &options.pictures.folder(), say)?;
    Ok((titled("Whether feedback keeps servers even", &ground, &text), passed))
}

/// `loadtest namespaces`: the report, and whether no target was missed.
pub fn namespaces(options: &Namespaces) -> Outcome<(String, bool)> {
    let trial = &options.trial;
    crate::cable::require_root()?;
    let minutes = options.minutes.unwrap_or(if trial.quick { 0.25 } else { 5.0 });
    let duration = Duration::from_secs_f64(minutes * 60.0);
    let quality = Quality { loss: options.loss / 100.0, jitter: Duration::from_millis(options.jitter) };
    let (_, mut ground) = set_up(trial, &namespaces::RIVALS)?;
    let experiment = namespaces::Namespaces { duration, quality, seed: trial.seed };
    let (text, passed) = experiment.run(&mut ground)?;
    Ok((titled("Behind a cable that loses packets", &ground, &text), passed))
}

/// `loadtest capacity`: the report, and whether our own server's capacity was found, if it was that.
pub fn capacity(options: &Capacity) -> Outcome<(String, bool)> {
    crate::machine::require(&["taskset", "setpriv"])?;
    crate::machine::raise_descriptors()?;
    let experiment = capacity::Capacity {
        address: options.address,
        path: options.path.clone(),
        step: Duration::from_secs_f64(options.seconds),
        most: options.most,
    };
    experiment.run(say)
}
