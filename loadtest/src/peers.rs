//! The measurements as the command line names them: gets everything ready, runs, and puts the report together.

use std::path::PathBuf;
use std::time::Duration;

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::idle;
use crate::instructions;
use crate::load::Protocol;
use crate::machine::{self, Cores};
use crate::options::{Idle, Instructions, Logs, Peers, Shared, Soak};
use crate::origin::Origin;
use crate::proxy::{Product, Setting};
use crate::report;
use crate::rounds;
use crate::row::Row;
use crate::site::Site;
use crate::soak;

/// Everything that a measurement stands on. Fields drop in order: the origin ends before its folder goes.
struct Bench {
    setting: Setting,
    cores: Cores,
    facts: Vec<String>,
    _origin: Origin,
    site: Site,
}

impl Bench {
    fn set_up(shared: &Shared, tools: &[&str]) -> Outcome<Self> {
        let mut needed = vec!["taskset", "setpriv", "nginx"];
        if shared.products.contains(&Product::Haproxy) {
            needed.push("haproxy");
        }
        needed.extend(tools);
        machine::require(&needed)?;
        let with_pointsman = shared.products.contains(&Product::Pointsman);
        let pointsman =
            if with_pointsman { machine::pointsman(shared.stand.pointsman.clone())? } else { PathBuf::new() };
        let descriptors = machine::raise_descriptors()?;
        let cores = Cores::share(shared.stand.proxy_core, shared.stand.load_cores.clone())?;
        let facts = machine::facts(&cores, descriptors, with_pointsman.then_some(pointsman.as_path()));
        let mut site = Site::new()?;
        let origin = Origin::start(&mut site, &cores.load)?;
        let setting = Setting {
            pointsman,
            core: cores.proxy,
            origin_port: origin.port,
            origin_h2c_port: origin.h2c_port,
            origin_grpc_port: origin.grpc_port,
            logged: false,
            under: Vec::new(),
        };
        Ok(Self { setting, cores, facts, _origin: origin, site })
    }

    fn heading(&self, title: &str) -> String {
        format!("# {title}\n\n{}\n", self.facts.join("\n"))
    }
}

fn say(line: String) {
    eprintln!("{line}");
}

/// `loadtest peers`.
pub fn compare(options: &Peers) -> Outcome<String> {
    if !options.shared.products.contains(&options.subject) {
        return Err(Failure::new(format!("{} is the subject and must be among the products", options.subject.name())));
    }
    let mut bench = Bench::set_up(&options.shared, &["wrk", "h2load"])?;
    let chosen = |row: &Row| options.rows.is_empty() || options.rows.contains(row);
    let rows: Vec<Row> = Row::LOADS.into_iter().filter(chosen).collect();
    bench.facts.push(machine::quiet(&bench.cores)?);
    let mut text = bench.heading("Pointsman beside its peers");
    text.push_str(&format!(
        "- {} rounds of {} s a load; a ratio is the peer's processor time a request over {}'s, and its lower bound counts\n",
        options.rounds,
        options.seconds,
        options.subject.name()
    ));
    let plan = rounds::Plan {
        rows,
        offers: options.offers.clone(),
        products: options.shared.products.clone(),
        rounds: options.rounds,
        duration: Duration::from_secs(options.seconds.max(1)),
    };
    for (logged, name) in [(false, "without access logs"), (true, "with access logs")] {
        let wanted = options.logs == Logs::Both || (options.logs == Logs::On) == logged;
        if !wanted || plan.rows.is_empty() {
            continue;
        }
        say(format!("table {name}"));
        let setting = Setting { logged, ..bench.setting.clone() };
        let series = plan.run(&setting, &mut bench.site, &bench.cores.load, say)?;
        text.push_str(&format!(
            "\n## Processor time a request, {name}\n\n{}\n",
            report::table(&series, options.subject)
        ));
    }
    let rows: Vec<Row> = Row::IDLE.into_iter().filter(chosen).collect();
    let products = options.shared.products.clone();
    let plan = idle::Plan { clients: options.clients, rounds: options.idle_rounds, products };
    text.push_str(&memory(&plan, &rows, &mut bench)?);
    Ok(text)
}

/// `loadtest idle`.
pub fn idle(options: &Idle) -> Outcome<String> {
    let mut bench = Bench::set_up(&options.shared, &["wrk", "h2load"])?;
    let products = options.shared.products.clone();
    let plan = idle::Plan { clients: options.clients, rounds: options.rounds, products };
    let text = memory(&plan, &options.rows, &mut bench)?;
    Ok(bench.heading("Idle clients") + &text)
}

fn memory(plan: &idle::Plan, rows: &[Row], bench: &mut Bench) -> Outcome<String> {
    let mut text = String::new();
    for row in rows {
        if !Row::IDLE.contains(row) {
            return Err(Failure::new(format!("{} is not about memory", row.title())));
        }
        let measured = plan.run(*row, &bench.setting, &mut bench.site, &bench.cores, say)?;
        text.push_str(&format!("\n{}", idle::table(*row, plan.clients, &measured)));
    }
    Ok(text)
}

/// `loadtest instructions`: the report, and whether every gate was met.
pub fn instructions(options: &Instructions) -> Outcome<(String, bool)> {
    let mut bench = Bench::set_up(&options.shared, &["valgrind", "h2load"])?;
    let plan = instructions::Plan {
        products: options.shared.products.clone(),
        protocol: options.protocol,
        few: options.few,
        many: options.many,
        rounds: options.rounds,
        keep: options.keep.clone(),
    };
    let counted = plan.run(&bench.setting, &mut bench.site, &bench.cores.load, say)?;
    let passed = counted.iter().all(instructions::Counted::passes);
    let title = match options.protocol {
        Protocol::H1 => "User instructions a request",
        Protocol::H2 => "User instructions a request over HTTP/2",
    };
    Ok((format!("{}\n{}", bench.heading(title), instructions::table(&counted)), passed))
}

/// `loadtest soak`: the report, and whether every bound was kept.
pub fn soak(options: &Soak) -> Outcome<(String, bool)> {
    machine::require(&["taskset", "setpriv"])?;
    let pointsman = machine::pointsman(options.pointsman.clone())?;
    machine::raise_descriptors()?;
    let duration = Duration::try_from_secs_f64(options.minutes * 60.0).doing(|| "reading --minutes".to_owned())?;
    let seed = options.seed.unwrap_or_else(clock::seed);
    say(format!("seed {seed}, {duration:?}"));
    let version = machine::version(&pointsman.to_string_lossy(), "--version").unwrap_or_default();
    let plan = soak::Plan { pointsman, duration, seed, clients: options.clients };
    let findings = plan.run(&Site::new()?, &machine::own_cores()?)?;
    let heading = format!("# A soak\n\n- {version}, {duration:?}, seed {seed}, {} clients a way\n\n", options.clients);
    Ok((heading + &findings.text(), findings.passes()))
}
