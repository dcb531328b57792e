//! How loaded the service is: its cgroup, or its process and descendants, or else the whole machine; the network namespace
//! that it is in; and the connections to its port.
//!
//! What costs much is read less often ([`thrift`]), so that a look every 50 ms stays cheap on any machine. It refuses to guess:
//! a figure whose capacity nobody knows is left out.

mod cgroup;
mod host;
mod proc_file;
mod process_tree;
mod rate;
mod sockets;
mod thrift;

use std::io;
use std::time::Duration;

use crate::base::time::Timestamp;
use crate::pure::feedback::report::{Figures, Use};

pub use cgroup::{Cgroup, NoCgroup};
use host::{Host, Machine};
pub use proc_file::{ProcFile, read_once};
use process_tree::{ProcessTree, run_queue};
pub use process_tree::{Stat, processes};
use rate::Rate;
pub use sockets::Sockets;
use sockets::Turnover;
pub use thrift::Thrift;

/// Figures may take one part in so many of a core's time, and so may counting connections while nothing presses.
const AT_REST: u32 = 1000;
/// Counting, while connections come and go.
const MOVING: u32 = 200;
/// Counting, while the service may be overloaded.
const PRESSED: u32 = 20;
/// Figures younger than this are not read again, unless a question asks for them.
const FRESH: Duration = Duration::from_millis(90);
/// The listener is asked for as often.
const LISTENER: Duration = FRESH;
/// While no connection comes or goes, they are counted this often.
const RECOUNT: Duration = Duration::from_secs(10);
/// So many sockets more or fewer, and the connections are counted again.
const MOVED: u32 = 15;

/// What an agent is told of its service.
#[derive(Clone, Debug, Default)]
pub struct MeasureOptions {
    /// The service's port.
    pub port: u16,
    /// The most connections that it takes.
    pub connections_max: Option<u32>,
    /// What its disks can do, bytes a second.
    pub disk_rate: Option<f64>,
    /// What its network can do each way, bytes a second.
    pub network_rate: Option<f64>,
}

/// What is measured.
#[derive(Debug)]
pub enum Scope {
    /// The whole machine.
    Host,
    /// A cgroup.
    Cgroup(Box<Cgroup>),
    /// The service's process and its descendants.
    Processes,
}

/// The figures of a service.
#[derive(Debug)]
pub struct Measure {
    options: MeasureOptions,
    machine: Machine,
    host: Host,
    scope: Scope,
    tree: Option<ProcessTree>,
    sockets: Sockets,
    network: Option<ProcFile>,
    rates: Rates,
    figures: Figures,
    /// What connections and figures have cost.
    counting: Thrift,
    reading: Thrift,
    read_at: Option<Timestamp>,
    bound: u32,
    /// How connections had come and gone when they were last counted, and when that was.
    counted: Option<(Turnover, Timestamp)>,
    listened_at: Option<Timestamp>,
    is_listening: bool,
    is_full: bool,
    /// Whether there is a process in its cgroup.
    has_members: bool,
}

/// Counters whose rise is a figure.
#[derive(Debug, Default)]
struct Rates {
    processor: Rate,
    disk: Rate,
    received: Rate,
    sent: Rate,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// How loaded the service is.
    pub figures: Figures,
    /// Whether it can't take more.
    pub is_overloaded: bool,
    /// Whether somebody listens on its port.
    pub is_listening: bool,
    /// Whether a process is in its cgroup, where it is told which.
    pub has_members: bool,
}

impl Measure {
    /// Opens what is to be read.
    ///
    /// # Errors
    /// Where /proc can't be read.
    pub fn open(mut options: MeasureOptions, scope: Scope) -> io::Result<Self> {
        options.network_rate = options.network_rate.or_else(network_rate);
        let sockets = Sockets::of(None);
        Ok(Self {
            machine: Machine::here(),
            host: Host::open()?,
            scope,
            tree: None,
            network: ProcFile::open_list(sockets.folder().join("dev")).ok(),
            sockets,
            rates: Rates::default(),
            figures: Figures { connections_max: options.connections_max, ..Figures::default() },
            counting: Thrift::default(),
            reading: Thrift::default(),
            read_at: None,
            bound: 0,
            counted: None,
            listened_at: None,
            is_listening: false,
            is_full: false,
            has_members: true,
            options,
        })
    }

    /// From now on the service is this process: its namespace is the one that is looked at.
    pub fn follow(&mut self, process: Option<i32>) {
        let Some(process) = process else { return };
        if self.tree.as_ref().is_some_and(|tree| tree.root() == process) {
            return;
        }
        self.tree = Some(ProcessTree::of(process));
        self.enter_namespace_of(process);
    }

    /// Looks at the network namespace of that process from now on. What rose in another is forgotten.
    fn enter_namespace_of(&mut self, process: i32) {
        (self.listened_at, self.counted) = (None, None);
        self.sockets = Sockets::of(Some(process));
        self.network = ProcFile::open_list(self.sockets.folder().join("dev")).ok();
        self.rates = Rates { disk: std::mem::take(&mut self.rates.disk), ..Rates::default() };
    }

    /// Looks at the service. Figures are as old as [`FRESH`] where `wants_figures`, and new where `is_asked`.
    pub fn look(&mut self, now: Timestamp, wants_figures: bool, is_asked: bool) -> Look {
        self.look_at_port(now, is_asked);
        let is_fresh = self.read_at.is_some_and(|at| now.since(at) < FRESH);
        if is_asked || (wants_figures && !is_fresh && self.reading.allows(now, AT_REST)) {
            let mut reading = self.reading;
            reading.spend(now, || self.read(now));
            self.reading = reading;
            self.read_at = Some(now);
        }
        let has_all = match (self.figures.connections, self.options.connections_max) {
            (Some(connections), Some(max)) => connections >= max,
            _ => false,
        };
        let Self { figures, is_listening, has_members, .. } = *self;
        Look { figures, is_overloaded: has_all || self.is_full, is_listening, has_members }
    }

    fn look_at_port(&mut self, now: Timestamp, is_asked: bool) {
        let port = self.options.port;
        if is_asked || self.listened_at.is_none_or(|at| now.since(at) >= LISTENER) {
            if !self.is_listening
                && let Some(process) = self.tree.as_ref().map(ProcessTree::root)
                && self.sockets.have_been_left()
            {
                self.enter_namespace_of(process);
            }
            self.listened_at = Some(now);
            if let Ok(listening) = self.sockets.listening(port) {
                self.is_listening = listening.is_some();
                self.is_full = listening.is_some_and(|listening| listening.is_full);
            }
        }
        let bound = self.sockets.bound().unwrap_or(u32::MAX);
        let last = self.figures.connections.unwrap_or(0);
        // Other ports' sockets are in the bound too: what counts is by how much it has risen since ours were counted.
        let possible = last.saturating_add(bound.saturating_sub(self.bound));
        let is_near = |max: u32| possible >= max || last >= max - max / 4;
        let parts = if self.options.connections_max.is_some_and(is_near) {
            PRESSED
        } else if bound.abs_diff(self.bound) >= MOVED {
            MOVING
        } else {
            AT_REST
        };
        if !is_asked && !self.counting.allows(now, parts) {
            return;
        }
        let turnover = self.sockets.turnover();
        let is_same = |(last, at): (Turnover, Timestamp)| Some(last) == turnover && now.since(at) < RECOUNT;
        if !is_asked && parts == AT_REST && self.counted.is_some_and(is_same) {
            self.counting.spare(now);
        } else {
            let sockets = &mut self.sockets;
            self.figures.connections = self.counting.spend(now, || sockets.connections(port));
            self.bound = bound;
            self.counted = turnover.map(|turnover| (turnover, now));
        }
    }

    /// A cgroup's namespace is that of its processes, of the first that is still in it. Gives back who they are.
    fn follow_members(&mut self) -> Vec<i32> {
        let Scope::Cgroup(cgroup) = &mut self.scope else { return Vec::new() };
        let members = cgroup.members();
        self.has_members = !members.is_empty();
        let is_followed = self.tree.as_ref().is_some_and(|tree| members.contains(&tree.root()));
        if !is_followed {
            let processor = std::mem::take(&mut self.rates.processor);
            self.follow(members.first().copied());
            self.rates.processor = processor;
        }
        members
    }

    fn read(&mut self, now: Timestamp) {
        let members = self.follow_members();
        let cores = match &mut self.scope {
            Scope::Cgroup(cgroup) => cgroup.cores(&self.machine),
            Scope::Host | Scope::Processes => self.machine.cores,
        };
        let whole = self.host.memory();
        let (seconds, memory) = match (&mut self.scope, &mut self.tree) {
            (Scope::Cgroup(cgroup), _) => {
                (cgroup.processor_seconds(), whole.and_then(|whole| cgroup.memory(whole.capacity)))
            }
            (Scope::Processes, Some(tree)) => {
                let used = tree.read(now, self.machine.page);
                let memory = whole.map(|whole| Use { amount: used.memory, capacity: whole.capacity });
                (Some(used.processor_seconds), memory)
            }
            (Scope::Processes, None) => (None, None),
            (Scope::Host, _) => (self.host.processor_seconds(), whole),
        };
        let rate = self.machine.rate;
        let busy = seconds.and_then(|seconds| self.rates.processor.add(now, seconds));
        self.figures.cpu = busy.map(|busy| Use { amount: busy.min(cores) * rate, capacity: cores * rate });
        self.figures.memory = memory;
        self.figures.run_queue = self.run_queue(&members);
        self.figures.disk = self.disk(now);
        self.figures.network = self.network(now);
    }

    fn run_queue(&mut self, of_cgroup: &[i32]) -> Option<u32> {
        match (&mut self.scope, &self.tree) {
            (Scope::Host, _) => self.host.run_queue(),
            (Scope::Cgroup(_), _) => run_queue(of_cgroup.iter().copied()),
            (Scope::Processes, Some(tree)) => tree.run_queue(),
            (Scope::Processes, None) => None,
        }
    }

    /// The disks' use. Processes share those of the machine.
    fn disk(&mut self, now: Timestamp) -> Option<Use> {
        let capacity = self.options.disk_rate?;
        let bytes = match &mut self.scope {
            Scope::Cgroup(cgroup) => cgroup.disk_bytes(),
            Scope::Host | Scope::Processes => self.host.disk_bytes(),
        };
        let amount = self.rates.disk.add(now, bytes?)?;
        Some(Use { amount, capacity })
    }

    /// The network's use, the busier way of both.
    fn network(&mut self, now: Timestamp) -> Option<Use> {
        let capacity = self.options.network_rate?;
        let (received, sent) = network_bytes(self.network.as_mut()?.read().ok()?);
        let (received, sent) = (self.rates.received.add(now, received), self.rates.sent.add(now, sent));
        Some(Use { amount: received?.max(sent?), capacity })
    }
}

/// Bytes received and sent by all interfaces of a namespace but the loopback one, from /proc/net/dev.
fn network_bytes(text: &str) -> (f64, f64) {
    let bytes = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_whitespace().map(str::parse::<f64>);
        let received = numbers.next()?.ok()?;
        (name.trim() != "lo").then_some((received, numbers.nth(7)?.ok()?))
    };
    let each = text.lines().filter_map(bytes);
    each.fold((0.0, 0.0), |(received, sent), (more_received, more_sent)| (received + more_received, sent + more_sent))
}

/// What the machine's interfaces can carry each way, bytes a second, where they say it.
fn network_rate() -> Option<f64> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let megabits = entries.filter(|entry| entry.file_name() != "lo").filter_map(|entry| {
        let text = read_once(entry.path().join("speed")).ok()?;
        text.trim().parse::<f64>().ok().filter(|speed| *speed > 0.0)
    });
    Some(megabits.sum::<f64>() * 1e6 / 8.0).filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time;

    #[test]
    fn the_loopback_interface_is_no_network() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets\n\
                    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n\
                    eth1:1 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n";
        assert_eq!(network_bytes(text), (101.0, 42.0));
    }

    #[test]
    fn a_service_has_the_figures_of_its_process_and_is_overloaded_at_its_bound() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let options = MeasureOptions { port, connections_max: Some(2), ..MeasureOptions::default() };
        let mut measure = Measure::open(options, Scope::Processes).unwrap();
        measure.follow(i32::try_from(std::process::id()).ok());
        let first = measure.look(time::now(), true, true);
        assert!(
            first.is_listening && first.has_members && !first.is_overloaded && first.figures.connections == Some(0)
        );
        let _clients = [(); 2].map(|()| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
        let later = time::now() + Duration::from_secs(1);
        let second = measure.look(later, false, false);
        assert!(second.is_overloaded && second.figures.connections == Some(2), "counted since sockets are as many");
        let second = measure.look(later, true, true);
        assert!(second.figures.cpu.is_some() && second.figures.memory.unwrap().amount > 0.0);
        assert_eq!(second.figures.disk, None, "nobody knows what the disk can do");
    }
}
