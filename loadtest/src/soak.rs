//! A soak: one proxy between servers of both versions and clients that keep connections, close them, break off, read slowly, upload, and
//! speak HTTP/2, WebSocket and gRPC, all at once and for long. Every answer is checked.
//!
//! It shows what only time shows: an error that the client did not cause, a descriptor that stays, memory that grows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::accounting;
use crate::child::{Child, Recipe};
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::site::Site;
use crate::template;

mod clients;
mod content;
mod exchanges;
mod link;
mod origins;
mod verdict;
mod websocket;

use clients::Clients;
use link::Door;
use origins::Origins;
pub use verdict::Findings;

/// How long idle connections to servers are kept by the rule file, and some more.
const SETTLE: Duration = Duration::from_millis(2_500);
/// How long descriptors may take to come down behind the last client.
const PATIENCE: Duration = Duration::from_secs(15);
/// Clients come for so long, or less where the soak is short; then all of them have gone for a [`LULL`].
const STRETCH: Duration = Duration::from_secs(12);
const LULL: Duration = Duration::from_millis(500);
/// Samples of memory under load are this far apart, or closer where the soak is short.
const STEP: Duration = Duration::from_secs(1);
/// What no healthy proxy says.
const COMPLAINTS: [&str; 2] = ["panic", "overflow"];

/// What is done.
pub struct Plan {
    /// The binary.
    pub pointsman: PathBuf,
    /// For how long.
    pub duration: Duration,
    /// Where everything drawn by lot begins.
    pub seed: u64,
    /// Clients of each way to come in.
    pub clients: usize,
}

impl Plan {
    /// Runs it, on `cores`.
    pub fn run(&self, site: &Site, cores: &str) -> Outcome<Findings> {
        let origins = Origins::start()?;
        let proxy = Soaked::start(&self.pointsman, &origins, site, cores)?;
        let door = Door::new(proxy.ports)?;
        let clients = Arc::new(Clients { door, is_over: AtomicBool::new(false), tally: Mutex::default() });
        // Everything once, so that what is opened at the first use is open; then what goes by itself has time to go.
        self.drive(&clients, 0, Duration::from_millis(500), || Ok(()))?;
        clock::pause(SETTLE)?;
        let before = proxy.descriptors()?;
        let begin = clock::now();
        let (mut resident, mut peak) = (Vec::new(), 0.0_f64);
        // How much is in flight varies, and memory with it. What a proxy keeps shows in between, when nothing is.
        let stretch = STRETCH.min(self.duration / 4);
        for number in 1.. {
            self.drive(&clients, number, stretch, || {
                peak = peak.max(proxy.resident()?);
                Ok(())
            })?;
            clock::pause(LULL)?;
            resident.push((begin.elapsed().as_secs_f64(), proxy.resident()?));
            if begin.elapsed() >= self.duration {
                break;
            }
        }
        let behind = proxy.descriptors_down_to(before)?;
        let tally = std::mem::take(&mut *clients.tally.lock().unwrap_or_else(PoisonError::into_inner));
        let complaints = proxy.complaints(site)?;
        Ok(Findings { duration: self.duration, tally, descriptors: (before, behind), resident, peak, complaints })
    }

    /// Has the clients run for `duration`, the `number`th time, and calls `sample` again and again meanwhile.
    fn drive(
        &self,
        clients: &Arc<Clients>,
        number: u64,
        duration: Duration,
        mut sample: impl FnMut() -> Outcome<()>,
    ) -> Outcome<()> {
        clients.is_over.store(false, Ordering::Relaxed);
        let (clients_there, each, seed) = (clients.clone(), self.clients, self.seed ^ number << 48);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.doing(|| "starting a runtime".to_owned())?;
        let thread = thread::spawn(move || runtime.block_on(clients::run(&clients_there, each, seed)));
        let until = clock::now() + duration;
        let mut outcome = Ok(());
        while outcome.is_ok() && clock::now() < until && !thread.is_finished() {
            outcome = sample().and_then(|()| clock::pause(STEP.min(duration / 20)));
        }
        clients.is_over.store(true, Ordering::Relaxed);
        let ended = thread.join().map_err(|_| Failure::new("the clients' thread panicked"));
        outcome.and(ended)
    }
}

/// The proxy.
struct Soaked {
    ports: [u16; 3],
    said: String,
    child: Mutex<Child>,
    process: u32,
}

impl Soaked {
    fn start(pointsman: &Path, origins: &Origins, site: &Site, cores: &str) -> Outcome<Self> {
        let mut values = site.values();
        values.push(("ORIGIN_PORT", origins.port.to_string()));
        values.push(("ORIGIN_H2C_PORT", origins.h2c_port.to_string()));
        let rules = template::fill(include_str!("../configurations/soak.kdl"), &[], &values);
        site.write("soak.kdl", &rules.doing(|| "filling soak.kdl".to_owned())?)?;
        let said = "soak.stderr".to_owned();
        site.write(&said, "")?;
        let mut child = Recipe::new(pointsman, cores)
            .arguments(["run".into(), site.path("soak.kdl")])
            .errors(site.append(&said)?)
            .start()?;
        let ports = clock::wait_for("the ports of the proxy", Duration::from_secs(10), || {
            child.still_runs()?;
            Ok(ports_of(&text(&site.path(&said))?))
        });
        let ports = ports.doing(|| format!("starting pointsman (it said: {})", site.tail(&said)))?;
        let process = child.id();
        Ok(Self { ports, said, child: Mutex::new(child), process })
    }

    fn resident(&self) -> Outcome<f64> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).still_runs()?;
        #[allow(clippy::cast_precision_loss, reason = "memory of a process is far below 2^52")]
        accounting::resident(&[self.process]).map(|bytes| bytes as f64)
    }

    fn descriptors(&self) -> Outcome<usize> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.process));
        Ok(entries.doing(|| "counting descriptors".to_owned())?.count())
    }

    /// Waits until there are no more than `wanted`; what there are then.
    fn descriptors_down_to(&self, wanted: usize) -> Outcome<usize> {
        let down = clock::wait_for("descriptors", PATIENCE, || {
            let now = self.descriptors()?;
            Ok((now <= wanted).then_some(now))
        });
        clock::go_on()?;
        down.or_else(|_| self.descriptors())
    }

    fn complaints(&self, site: &Site) -> Outcome<Vec<String>> {
        let said = text(&site.path(&self.said))?;
        let complains = |line: &&str| COMPLAINTS.iter().any(|word| line.contains(word));
        Ok(said.lines().filter(complains).map(ToOwned::to_owned).collect())
    }
}

fn text(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).doing(|| format!("reading {}", path.display()))
}

/// The ports of the three listeners, in the order of the file, from what the proxy says at its start.
fn ports_of(said: &str) -> Option<[u16; 3]> {
    let lines = said.lines().filter_map(|line| line.split_once("listening on ")?.1.split_whitespace().next());
    let ports: Vec<u16> = lines.filter_map(|url| url.rsplit_once(':')?.1.parse().ok()).collect();
    ports.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_once_all_are_there() {
        let said = "x listening on http://127.0.0.1:81\ny\nx listening on https://127.0.0.1:82 \n";
        assert_eq!(ports_of(said), None);
        assert_eq!(ports_of(&format!("{said}listening on http://127.0.0.1:83\n")), Some([81, 82, 83]));
    }
}
