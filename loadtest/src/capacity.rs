//! How much a server can take at a time: its `max`, and its agent's `--connections-max`.
//!
//! So many clients ask without a pause, for ever more of them. As long as a server has room, each client more brings more answers in the same
//! time; beyond, it only makes all others wait. The knee between the two is where throughput ÷ latency is greatest (Kleinrock 1979).

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinSet;

use crate::alarm::Alarm;
use crate::backend::{Backend, Place};
use crate::catalogue::Ask;
use crate::clock;
use crate::experiment::Ground;
use crate::failure::{Failure, Outcome, While};
use crate::figures::{self, figure, milliseconds, time};
use crate::machine;
use crate::open_loop::Client;
use crate::serve::Serve;
use crate::site::Site;
use crate::statistics;
use crate::target::{self, at_least, at_most};

/// A step that brings less than this more than the best before it brings nothing.
const GAIN: f64 = 1.05;
/// So many steps that bring nothing are the end.
const IN_VAIN: usize = 2;
/// A refused client waits for so long.
const PAUSE: Duration = Duration::from_millis(10);
/// A slower answer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// What our own server can take, and what a request takes there.
const OWN_SLOTS: usize = 24;
const OWN_WORK: Duration = Duration::from_millis(10);
/// By how much its capacity may be missed.
const DOUBT: f64 = 0.1;

/// What is measured.
pub struct Capacity {
    /// Whom; `None`: a server of our own.
    pub address: Option<SocketAddr>,
    /// What is asked for.
    pub path: String,
    /// How long a step takes.
    pub step: Duration,
    /// The most requests at a time.
    pub most: usize,
}

/// What was seen with so many clients.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    clients: usize,
    /// Answers a second.
    throughput: f64,
    mean: Duration,
    p99: Duration,
    failed: usize,
}

impl Step {
    /// Throughput ÷ latency.
    fn power(&self) -> f64 {
        self.throughput / self.mean.as_secs_f64().max(1e-9)
    }
}

impl Capacity {
    /// Runs it; the report, and whether our own server's capacity was found, if it was that.
    pub fn run(&self, mut say: impl FnMut(String)) -> Outcome<(String, bool)> {
        let (runtime, tasks) = Ground::runtime()?;
        let (steps, address) = tasks.block_on(&runtime, async {
            let alarm = Alarm::start()?;
            let (server, path) = match self.address {
                Some(_) => (None, self.path.clone()),
                None => (Some(own_server(&alarm).await?), Ask::Work(OWN_WORK).path()),
            };
            let own = server.as_ref().map(|server| server.serve.address);
            let address = self.address.or(own).unwrap_or((Ipv4Addr::LOCALHOST, 80).into());
            let steps = self.steps(address, &path, &alarm, &mut say).await?;
            Ok::<_, Failure>((steps, address))
        })?;
        let Some(knee) = knee(&steps) else { return Err(Failure::new(format!("{address} answers nothing with 200"))) };
        let mut text = table(&steps, address, knee.clients);
        if self.address.is_some() {
            return Ok((text, true));
        }
        let (found, own) = (figure(knee.clients), figure(OWN_SLOTS));
        let targets = [
            at_least("a server of 24 slots can take, at least", Some(found), Some(own * (1.0 - DOUBT))),
            at_most("a server of 24 slots can take, at most", Some(found), Some(own * (1.0 + DOUBT))),
        ];
        text.push_str(&target::text(&targets));
        Ok((text, target::none_is_missed(&targets)))
    }

    /// Doubles the clients until that brings nothing, then looks closer around the best.
    async fn steps(
        &self,
        address: SocketAddr,
        path: &str,
        alarm: &Alarm,
        say: &mut impl FnMut(String),
    ) -> Outcome<Vec<Step>> {
        let mut steps = Vec::new();
        let (mut best, mut in_vain, mut clients) = (0.0, 0, 1);
        while clients <= self.most && in_vain < IN_VAIN {
            let step = ask(address, path, clients, self.step, alarm).await?;
            say(line(&step));
            in_vain = if step.throughput > best * GAIN { 0 } else { in_vain + 1 };
            best = step.throughput.max(best);
            steps.push(step);
            clients *= 2;
        }
        let Some(around) = knee(&steps).map(|knee| knee.clients) else { return Ok(steps) };
        let (mut low, mut high) = ((around / 2).max(1), (around * 2).min(self.most));
        // The power rises up to the knee and falls behind it: a third is cut off at a time.
        while high - low > (around / 16).max(2) {
            let third = ((high - low) / 3).max(1);
            let (left, right) = (low + third, high - third);
            let mut powers = [0.0; 2];
            for (power, clients) in powers.iter_mut().zip([left, right]) {
                let step = ask(address, path, clients, self.step, alarm).await?;
                say(line(&step));
                *power = step.power();
                steps.push(step);
            }
            if powers[0] < powers[1] { low = left } else { high = right }
        }
        steps.sort_by_key(|step| step.clients);
        Ok(steps)
    }
}

/// The step with the most answers for their latency.
fn knee(steps: &[Step]) -> Option<Step> {
    let answered = steps.iter().filter(|step| step.throughput > 0.0);
    answered.max_by(|one, other| one.power().total_cmp(&other.power())).copied()
}

async fn own_server(alarm: &Alarm) -> Outcome<Backend> {
    let address = (Ipv4Addr::LOCALHOST, Site::new()?.free_port()?).into();
    let serve = Serve { address, number: 0, slots: OWN_SLOTS, waiting_max: 10_000, computes: false, verdict: None };
    Backend::start(serve, Place { cores: machine::own_cores()?, namespace: None }, None, alarm).await
}

/// Has `clients` clients ask without a pause for `duration`.
async fn ask(address: SocketAddr, path: &str, clients: usize, duration: Duration, alarm: &Alarm) -> Outcome<Step> {
    let client = Rc::new(Client::new(address, Duration::ZERO, alarm));
    let until = alarm.now() + duration;
    let mut running = JoinSet::new();
    for _ in 0..clients {
        running.spawn_local(one(client.clone(), path.to_owned(), until, alarm.clone()));
    }
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while let Some(ended) = running.join_next().await {
        let (some, more) = ended.doing(|| "a client".to_owned())?;
        latencies.extend(some);
        failed += more;
    }
    clock::go_on()?;
    latencies.sort_unstable();
    Ok(Step {
        clients,
        throughput: figure(latencies.len()) / duration.as_secs_f64(),
        mean: figures::mean(&latencies).unwrap_or_default(),
        p99: statistics::percentile(&latencies, 0.99).unwrap_or_default(),
        failed,
    })
}

async fn one(client: Rc<Client>, path: String, until: Duration, alarm: Alarm) -> (Vec<Duration>, usize) {
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while alarm.now() < until && !clock::is_interrupted() {
        let begin = alarm.now();
        match tokio::time::timeout(PATIENCE, client.fetch(&path)).await {
            Ok(Ok((StatusCode::OK, _))) => latencies.push(alarm.now() - begin),
            Ok(Ok(_) | Err(_)) | Err(_) => {
                failed += 1;
                alarm.sleep(PAUSE).await;
            }
        }
    }
    (latencies, failed)
}

fn line(step: &Step) -> String {
    let Step { clients, throughput, mean, p99, failed } = step;
    let power = step.power() / 1e3;
    format!("| {clients} | {throughput:.0} | {} | {} | {failed} | {power:.1} |", time(Some(*mean)), time(Some(*p99)))
}

fn table(steps: &[Step], address: SocketAddr, knee: usize) -> String {
    let mut text = format!(
        "# What {address} can take\n\n\
         | at a time | answers a second | mean ms | p99 ms | failed | answers a second ÷ mean, thousands |\n\
         | --- | --- | --- | --- | --- | --- |\n"
    );
    for step in steps {
        let _ = writeln!(text, "{}", line(step));
    }
    let alone = steps.first().map_or(0.0, |step| milliseconds(step.mean));
    let _ = writeln!(
        text,
        "\nAlone a request takes {alone:.1} ms. The server can take {knee} at a time: `max={knee}`, and `--connections-max {knee}` of \
         its agent."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of `slots` slots, by the law of Little.
    fn step(clients: usize, slots: usize) -> Step {
        let mean = OWN_WORK.mul_f64(figure(clients.max(slots)) / figure(slots));
        let throughput = figure(clients) / mean.as_secs_f64();
        Step { clients, throughput, mean, p99: mean, failed: 0 }
    }

    #[test]
    fn the_knee_of_a_server_with_slots_is_their_number() {
        for slots in [1, 5, 24, 100] {
            let steps: Vec<Step> = (1..=200).map(|clients| step(clients, slots)).collect();
            assert_eq!(knee(&steps).map(|knee| knee.clients), Some(slots));
        }
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[Step { throughput: 0.0, ..step(1, 1) }]), None);
    }

    #[test]
    fn the_report_says_where_the_figure_goes() {
        let text = table(&[step(1, 24), step(24, 24)], (Ipv4Addr::LOCALHOST, 81).into(), 24);
        assert!(text.contains("| 24 | 2400 | 10.0 | 10.0 | 0 | 240.0 |"), "{text}");
        assert!(text.contains("Alone a request takes 10.0 ms") && text.contains("`max=24`"), "{text}");
    }
}
