//! The experiments as the command line names them: their sizes, long or quick, and their reports.

use std::time::Duration;

use crate::contender::Contender;
use crate::experiment::{Ground, Plan};
use crate::failure::{Failure, Outcome};
use crate::locality::{Locality, Mixed};
use crate::options::{Cache, Placing, Stand, Uneven};
use crate::proxy::Product;
use crate::uneven;

/// How long a server is dead: the hit rate of just this time is a figure.
const OUTAGE: Duration = Duration::from_secs(10);

fn say(line: String) {
    eprintln!("{line}");
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// As long as caches take to fill: what is in them by then has been asked for again a few times.
fn warm_up(keys: usize) -> Duration {
    Duration::from_millis(2_500) * u32::try_from(keys / 1_000).unwrap_or(u32::MAX)
}

/// How long the steady part is, which bounds the memory that requests take.
fn counted(placing: &Placing, default: u64) -> Duration {
    seconds(placing.seconds.unwrap_or(default))
}

fn set_up(placing: &Placing, contenders: &[Contender]) -> Outcome<Ground> {
    let products: Vec<Product> = contenders.iter().map(|contender| contender.product()).collect();
    let Stand { pointsman, proxy_core, load_cores, .. } = &placing.stand;
    Ground::set_up(&products, pointsman.clone(), (*proxy_core, load_cores.clone()))
}

/// `loadtest cache`: the report, and whether no target was missed.
pub fn cache(options: &Cache) -> Outcome<(String, bool)> {
    let placing = &options.placing;
    let contenders = contenders(placing, &Contender::CACHE)?;
    let quick = placing.quick;
    let (keys, steady, back) = if quick { (4_000, 10, 5) } else { (10_000, 25, 15) };
    let keys = options.keys.unwrap_or(keys);
    let plan = Plan { warm_up: warm_up(keys), steady: counted(placing, steady), down: OUTAGE, back: seconds(back) };
    let exponents = match options.alphas.as_slice() {
        [] if quick => vec![1.0],
        [] => vec![0.9, 1.0, 1.1],
        some => some.to_vec(),
    };
    let mut ground = set_up(placing, &contenders)?;
    let with_cbr = contenders.contains(&Contender::Cbr);
    let has_wlc = contenders.contains(&Contender::Wlc);
    let locality = Locality { contenders, exponents, keys, load: options.load, seed: placing.seed, plan };
    let tables = locality.run(&mut ground, say)?;
    let (tables, passed) = locality.report(&tables, &placing.pictures.folder())?;
    let mut text = format!("# Where requests for the same content go\n\n{}\n{tables}", ground.facts.join("\n"));
    if has_wlc {
        let plan = Plan { down: Duration::ZERO, back: Duration::ZERO, ..plan };
        let mixed = Mixed { with_cbr, keys, seed: placing.seed, plan };
        text.push_str(&mixed.run(&mut ground, say)?);
    }
    Ok((text, passed))
}

/// `loadtest uneven`: the report, and whether no target was missed.
pub fn uneven(options: &Uneven) -> Outcome<(String, bool)> {
    let placing = &options.placing;
    let contenders = contenders(placing, &Contender::UNEVEN)?;
    let (warm_up, steady) = if placing.quick { (15, 15) } else { (30, 60) };
    let steady = counted(placing, steady);
    let plan = Plan { warm_up: seconds(warm_up), steady, down: Duration::ZERO, back: Duration::ZERO };
    let mut ground = set_up(placing, &contenders)?;
    let experiment = uneven::Uneven { contenders, seed: placing.seed, plan };
    let (tables, passed) = experiment.run(&mut ground, &placing.pictures.folder(), say)?;
    Ok((format!("# Servers of unlike speeds\n\n{}\n{tables}", ground.facts.join("\n")), passed))
}

/// Those that were named, or all that the experiment compares.
fn contenders(placing: &Placing, all: &[Contender]) -> Outcome<Vec<Contender>> {
    if placing.products.is_empty() {
        return Ok(all.to_vec());
    }
    match placing.products.iter().find(|contender| !all.contains(contender)) {
        Some(stranger) => Err(Failure::new(format!("{stranger} is no part of this experiment"))),
        None => Ok(placing.products.clone()),
    }
}
