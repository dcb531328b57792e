//! What clients notice when one of three servers is killed, hangs, fails or vanishes under an open loop of GETs, how soon the proxy knows,
//! and how the server comes back.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use tokio::task::spawn_local;

use crate::alarm::Alarm;
use crate::backend::{Backend, Place};
use crate::cable::{self, Machine};
use crate::catalogue::Ask;
use crate::changes::{Change, first_after};
use crate::clock;
use crate::drawing::{self, Lines};
use crate::experiment::Ground;
use crate::failure::{Outcome, While};
use crate::figures::{self, figure, milliseconds, time};
use crate::open_loop::{self, End, Exchange};
use crate::proxy::Product;
use crate::rival::{Rival, Running, full_name};
use crate::serve::{Mood, Serve};
use crate::statistics;
use crate::target::{self, Target, at_most};

const SERVERS: usize = 3;
/// Requests that a server works on at a time, and what each takes.
const SLOTS: usize = 64;
const WORK: Duration = Duration::from_millis(2);
/// Whom it happens to.
const VICTIM: usize = 0;
/// Between the start of the proxy and the first request.
const SETTLE: Duration = Duration::from_millis(500);
/// What is so long after the fault is still under its sign.
const WAKE: Duration = Duration::from_secs(2);
/// Whoever waits longer has noticed.
const SLOW: Duration = Duration::from_secs(1);

/// What Pointsman's pools have in common: what is sent again, how a server comes back, how long a connect may take.
macro_rules! pool {
    ($more:literal) => {
        concat!(
            "    retry count=2 on=\"connect reset 500\"\n    slow-start \"10s\"\n    timeout connect=\"300ms\" response=\"60s\"\n",
            $more
        )
    };
}

/// Who is compared.
pub const RIVALS: [Rival; 5] = [
    Rival::pointsman("pointsman", "Pointsman", pool!("")).without_agents(),
    Rival::pointsman("pointsman-checked", "Pointsman, checks", pool!("    check \"http\" path=\"/ping\""))
        .without_agents(),
    Rival::pointsman(
        "pointsman-wlc",
        "Pointsman wlc, checks",
        pool!("    scheduler \"wlc\"\n    check \"http\" path=\"/ping\""),
    )
    .without_agents(),
    Rival::peer("nginx", "nginx, tuned", Product::Nginx, "tuned"),
    Rival::peer("haproxy", "HAProxy, tuned checks", Product::Haproxy, "tuned"),
];

/// What happens to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Its process is killed.
    Killed,
    /// It accepts and does not answer.
    Hanging,
    /// It answers with 500.
    Failing,
    /// Its machine is gone: packets are lost without a word.
    Vanished,
}

impl Fault {
    fn title(self) -> &'static str {
        match self {
            Self::Killed => "A server is killed with -9",
            Self::Hanging => "A server accepts and does not answer",
            Self::Failing => "A server answers with 500",
            Self::Vanished => "A server's machine vanishes",
        }
    }
}

/// When it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Everything is well for so long.
    pub well: Duration,
    /// Then the fault is there for so long.
    pub fault: Duration,
    /// And then gone for so long.
    pub back: Duration,
}

impl Timeline {
    fn mended(self) -> Duration {
        self.well + self.fault
    }

    fn end(self) -> Duration {
        self.mended() + self.back
    }
}

/// What is measured.
pub struct Kill {
    /// Who.
    pub rivals: Vec<Rival>,
    /// What happens.
    pub faults: Vec<Fault>,
    /// Requests a second.
    pub rate: u32,
    /// When it happens.
    pub timeline: Timeline,
    /// Where everything drawn by lot begins.
    pub seed: u64,
}

/// What was seen of one.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    sent: usize,
    failed: usize,
    /// Requests that the client could not send: as many as it can have were in flight.
    not_sent: usize,
    /// Requests whose answer took longer than [`SLOW`].
    slow: usize,
    /// By how much 99 % of the requests were sent too late at most: an error of the measurement.
    late: Option<Duration>,
    /// The latency that 99 % of the requests were within, before the fault and in its wake, and the longest from the fault on.
    before: Option<Duration>,
    during: Option<Duration>,
    longest: Option<Duration>,
    /// From the fault until the server was suspected, and taken for dead.
    suspect: Option<Duration>,
    down: Option<Duration>,
    /// From the mending until the server's first answer.
    back: Option<Duration>,
    /// Its part of the requests in the second from then, and in the last second: a third is its due.
    first_share: f64,
    last_share: f64,
    /// Its part of the requests by time.
    line: Vec<(f64, f64)>,
}

struct Row {
    rival: Rival,
    seen: Outcome<Seen>,
}

impl Kill {
    /// Runs everything; the report, and whether no target was missed. Pictures are written to `folder`.
    pub fn run(&self, ground: &mut Ground, folder: &Path, mut say: impl FnMut(String)) -> Outcome<(String, bool)> {
        let Timeline { well, fault, back } = self.timeline;
        let mut text = format!(
            "\n- three servers, {WORK:?} a request; {} GETs a second; {well:?} of good weather, {fault:?} of the fault, {back:?} behind it\n\
             - failed: no answer of 200 within 10 s; in its wake: requests of the first {WAKE:?} of the fault\n",
            self.rate
        );
        let mut passed = true;
        for fault in &self.faults {
            let _ = write!(text, "\n## {}\n\n", fault.title());
            if let (Fault::Vanished, Err(why)) = (fault, cable::require_root()) {
                let _ = writeln!(text, "Left out: {why}.");
                say(format!("{fault:?}: left out: {why}"));
                continue;
            }
            let mut rows = Vec::new();
            for rival in &self.rivals {
                let seen = self.measure(rival, *fault, ground);
                clock::go_on()?;
                let row = Row { rival: *rival, seen };
                say(format!("{fault:?}: {}", row.line()));
                rows.push(row);
            }
            let targets = targets(*fault, &rows);
            text.push_str(&(table(&rows) + &target::text(&targets)));
            passed &= target::none_is_missed(&targets);
            let name = format!("kill-{}.svg", format!("{fault:?}").to_lowercase());
            drawing::write(folder, &name, &self.picture(*fault, &rows))?;
        }
        Ok((text, passed))
    }

    fn measure(&self, rival: &Rival, fault: Fault, ground: &mut Ground) -> Outcome<Seen> {
        let (runtime, tasks) = Ground::runtime()?;
        tasks.block_on(&runtime, async {
            let alarm = Alarm::start()?;
            let machine = if fault == Fault::Vanished { Some(Machine::make(cable::GOOD, self.seed)?) } else { None };
            let servers = start_servers(ground, machine.as_ref(), &alarm).await?;
            let serves: Vec<Serve> = servers.iter().map(|server| server.serve.clone()).collect();
            let mut running = Running::start(rival, &serves, None, ground, &alarm).await?;
            let from = alarm.now() + SETTLE;
            let happens = spawn_local(happen(servers, machine, fault, self.timeline, from, alarm.clone()));
            let arrivals = open_loop::evenly(self.rate, self.timeline.end(), Ask::Work(WORK));
            let exchanges = open_loop::offer(running.balancer.port, &arrivals, from, &alarm).await?;
            // They run until the last answer has come.
            let (fault_at, _servers, _machine) = happens.await.doing(|| "spoiling a server".to_owned())??;
            running.balancer.still_runs()?;
            let changes = running.changes()?;
            let victim = serves.get(VICTIM).map(full_name).unwrap_or_default();
            Ok(Seen::of(&exchanges, self.timeline, &changes, &victim, fault_at))
        })
    }

    fn picture(&self, fault: Fault, rows: &[Row]) -> String {
        let line = |row: &Row| Some((row.rival.name.to_owned(), row.seen.as_ref().ok()?.line.clone()));
        let lines = Lines {
            title: format!("{}: its part of the requests", fault.title()),
            unit: "0 to 1".to_owned(),
            lines: rows.iter().filter_map(line).collect(),
            events: vec![
                (self.timeline.well.as_secs_f64(), "fault".to_owned()),
                (self.timeline.mended().as_secs_f64(), "mended".to_owned()),
            ],
            range: (0.0, 0.6),
        };
        lines.svg()
    }
}

async fn start_servers(ground: &mut Ground, machine: Option<&Machine>, alarm: &Alarm) -> Outcome<Vec<Backend>> {
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        let away = machine.filter(|_| number == VICTIM);
        let host = away.map_or(Ipv4Addr::LOCALHOST, |machine| machine.far);
        let address = SocketAddr::from((host, ground.site.free_port()?));
        let place = Place { cores: ground.cores.load.clone(), namespace: away.map(|machine| machine.name.clone()) };
        let serve = Serve { address, number, slots: SLOTS, waiting_max: 10_000, computes: false, verdict: None };
        servers.push(Backend::start(serve, place, None, alarm).await?);
    }
    Ok(servers)
}

/// Spoils a server and mends it; when it was spoilt, since the epoch, and everything that must go on running.
async fn happen(
    mut servers: Vec<Backend>,
    machine: Option<Machine>,
    fault: Fault,
    timeline: Timeline,
    from: Duration,
    alarm: Alarm,
) -> Outcome<(Duration, Vec<Backend>, Option<Machine>)> {
    alarm.until(from + timeline.well).await;
    let at = clock::wall();
    change(&mut servers, machine.as_ref(), fault, true, &alarm).await?;
    alarm.until(from + timeline.mended()).await;
    change(&mut servers, machine.as_ref(), fault, false, &alarm).await?;
    Ok((at, servers, machine))
}

async fn change(
    servers: &mut [Backend],
    machine: Option<&Machine>,
    fault: Fault,
    is_there: bool,
    alarm: &Alarm,
) -> Outcome<()> {
    let Some(victim) = servers.get_mut(VICTIM) else { return Ok(()) };
    let mood = |bad| if is_there { bad } else { Mood::Well };
    match (fault, is_there) {
        (Fault::Killed, true) => victim.kill(),
        (Fault::Killed, false) => victim.revive(alarm).await?,
        (Fault::Hanging, _) => victim.tell(mood(Mood::Hanging), alarm).await?,
        (Fault::Failing, _) => victim.tell(mood(Mood::Failing), alarm).await?,
        (Fault::Vanished, _) => {
            if let Some(machine) = machine {
                machine.set_cut(is_there);
            }
        }
    }
    Ok(())
}

/// When an answer had come, and who gave it.
fn answer(exchange: &Exchange) -> Option<(Duration, usize)> {
    match exchange.end {
        End::Answered { latency, server, .. } => Some((exchange.arrival.at + latency, server)),
        End::Failed | End::NotSent => None,
    }
}

/// The victim's part of the answers that came in a second from `begin`.
fn share(exchanges: &[Exchange], begin: Duration) -> f64 {
    let part = begin..begin + Duration::from_secs(1);
    let came = exchanges.iter().filter_map(answer).filter(|(at, _)| part.contains(at));
    let (mut own, mut all) = (0.0, 0.0);
    for (_, server) in came {
        all += 1.0;
        own += if server == VICTIM { 1.0 } else { 0.0 };
    }
    if all > 0.0 { own / all } else { 0.0 }
}

impl Seen {
    fn of(exchanges: &[Exchange], timeline: Timeline, changes: &[Change], victim: &str, fault_at: Duration) -> Self {
        let latencies = |part: std::ops::Range<Duration>| {
            figures::latencies(exchanges.iter().filter(|one| part.contains(&one.arrival.at)))
        };
        let p99 = |part| statistics::percentile(&latencies(part), 0.99).flatten();
        let (well, mended, end) = (timeline.well, timeline.mended(), timeline.end());
        let back = exchanges.iter().filter_map(answer).filter(|(at, server)| *server == VICTIM && *at >= mended);
        // What was asked before the mending and hung until then is no sign of a return.
        let back = back.map(|(at, _)| at).filter(|at| *at >= mended + 2 * WORK).min();
        let is = |end: End| exchanges.iter().filter(move |one| one.end == end).count();
        let second = Duration::from_secs(1);
        let seconds = u32::try_from(end.as_secs()).unwrap_or(u32::MAX);
        let line = (0..seconds).map(|number| (f64::from(number) + 0.5, share(exchanges, second * number))).collect();
        Self {
            sent: exchanges.len(),
            failed: is(End::Failed),
            not_sent: is(End::NotSent),
            slow: exchanges.iter().filter_map(Exchange::latency).filter(|latency| *latency > SLOW).count(),
            late: figures::late(exchanges),
            before: p99(Duration::ZERO..well),
            during: p99(well..well + WAKE.min(timeline.fault)),
            longest: latencies(well..end).last().copied().flatten(),
            suspect: first_after(changes, victim, fault_at, Change::is_suspicion),
            down: first_after(changes, victim, fault_at, Change::is_death),
            back: back.map(|back| back - mended),
            first_share: back.map(|back| share(exchanges, back)).unwrap_or_default(),
            last_share: share(exchanges, end.saturating_sub(second)),
            line,
        }
    }
}

impl Row {
    fn line(&self) -> String {
        let name = self.rival.name;
        let seen = match &self.seen {
            Ok(seen) => seen,
            Err(failure) => return format!("| {name} | not measured: {} | | | | | | | | | | |", failure.brief()),
        };
        let known = |time: Option<Duration>| match (time, self.rival.product) {
            (Some(time), _) => format!("{:.0}", milliseconds(time)),
            (None, Product::Pointsman) => "never".to_owned(),
            (None, Product::Nginx | Product::Haproxy) => "–".to_owned(),
        };
        format!(
            "| {name} | {} of {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2}, {:.2} | {} |",
            seen.failed,
            seen.sent,
            seen.not_sent,
            time(seen.before),
            time(seen.during),
            time(seen.longest),
            seen.slow,
            known(seen.suspect),
            known(seen.down),
            seen.back.map_or("never".to_owned(), |back| format!("{:.0}", milliseconds(back))),
            seen.first_share,
            seen.last_share,
            time(seen.late),
        )
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = "| | failed | not sent | p99 ms before | in its wake | longest | above 1 s | Suspect after ms | Down after ms | back after ms | \
                    its share in the first second, in the last | sent late, p99 ms |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in rows {
        let _ = writeln!(text, "{}", row.line());
    }
    text
}

fn targets(fault: Fault, rows: &[Row]) -> Vec<Target> {
    let own = rows.iter().filter(|row| row.rival.product == Product::Pointsman);
    let judge = |row: &Row| {
        let (name, seen) = (row.rival.name, row.seen.as_ref().ok());
        let what = |what: &str| format!("{name}: {what}");
        // What never happened took longer than anything.
        let after = |time: fn(&Seen) -> Option<Duration>| {
            seen.map(|seen| time(seen).map_or(f64::INFINITY, |time| time.as_secs_f64()))
        };
        let mut targets = vec![
            at_most(
                &what("GETs that failed or were not sent"),
                seen.map(|seen| figure(seen.failed + seen.not_sent)),
                Some(0.0),
            ),
            at_most(&what("Suspect after, s"), after(|seen| seen.suspect), Some(1.0)),
        ];
        if fault == Fault::Killed {
            targets.push(at_most(&what("Down after, s"), after(|seen| seen.down), Some(1.2)));
        }
        // To wlc servers without a request are equal whatever their weights, and with few in flight most are.
        if !row.rival.lines.contains("wlc") {
            // Half of its due is a sixth.
            let share = seen.filter(|seen| seen.back.is_some()).map(|seen| seen.first_share);
            targets.push(at_most(&what("its share in the first second"), share, Some(0.5 / 3.0)));
        }
        targets
    };
    own.flat_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Source;
    use crate::open_loop::Arrival;

    const TIMELINE: Timeline =
        Timeline { well: Duration::from_secs(3), fault: Duration::from_secs(4), back: Duration::from_secs(5) };

    fn ended(at: u64, end: End) -> Exchange {
        Exchange { arrival: Arrival { at: Duration::from_millis(at), ask: Ask::Work(WORK) }, end }
    }

    fn answered(at: u64, latency: u64, server: usize) -> Exchange {
        let latency = Duration::from_millis(latency);
        ended(at, End::Answered { latency, late: Duration::ZERO, server, source: Source::Made })
    }

    fn change(at: u64, to: &str) -> Change {
        let (server, from) = ("all/s1".to_owned(), "up".to_owned());
        Change { at: Duration::from_millis(at), server, from, to: to.to_owned(), because: String::new() }
    }

    #[test]
    fn a_fault_is_told_by_latencies_states_and_shares() {
        let exchanges = [
            answered(1_000, 3, VICTIM),
            answered(1_001, 4, 1),
            answered(3_100, 300, 1),
            ended(4_000, End::Failed),
            answered(6_000, 1_000, VICTIM),
            answered(8_000, 3, VICTIM),
            answered(8_001, 3, 1),
            answered(8_002, 3, 1),
            answered(8_003, 3, 2),
            answered(11_500, 3, VICTIM),
            answered(11_501, 3, 2),
        ];
        let changes = [change(10_500, "suspect"), change(11_100, "down"), change(19_000, "recovering")];
        let seen = Seen::of(&exchanges, TIMELINE, &changes, "all/s1", Duration::from_millis(10_000));
        assert_eq!((seen.sent, seen.failed), (11, 1));
        assert_eq!(seen.before, Some(Duration::from_millis(4)));
        assert_eq!((seen.during, seen.longest), (None, None), "what failed was slower than anything");
        assert_eq!((seen.suspect, seen.down), (Some(Duration::from_millis(500)), Some(Duration::from_millis(1_100))));
        assert_eq!(seen.back, Some(Duration::from_millis(1_003)), "what hung until the mending does not count");
        assert!((seen.first_share - 0.25).abs() < 1e-9 && (seen.last_share - 0.5).abs() < 1e-9);
        assert_eq!(seen.line.len(), 12);
    }

    #[test]
    fn what_never_happened_took_too_long_and_only_the_killed_must_be_down_soon() {
        let seen =
            Seen { suspect: Some(Duration::from_millis(900)), back: Some(WORK), first_share: 0.05, ..Seen::default() };
        let row = |seen| Row { rival: RIVALS[0], seen: Ok(seen) };
        let met = |fault, rows: &[Row]| targets(fault, rows).iter().map(|one| one.met).collect::<Vec<_>>();
        assert_eq!(met(Fault::Killed, &[row(seen.clone())]), [Some(true), Some(true), Some(false), Some(true)]);
        assert_eq!(met(Fault::Vanished, &[row(seen)]), [Some(true); 3]);
        assert_eq!(
            met(Fault::Hanging, &[row(Seen { failed: 1, ..Seen::default() })]),
            [Some(false), Some(false), None]
        );
        assert!(
            met(Fault::Hanging, &[Row { rival: RIVALS[3], seen: Ok(Seen::default()) }]).is_empty(),
            "peers have no targets"
        );
        let unsent = met(Fault::Hanging, &[row(Seen { not_sent: 1, ..Seen::default() })]);
        assert_eq!(unsent[0], Some(false), "what was not sent has not been answered");
    }
}
