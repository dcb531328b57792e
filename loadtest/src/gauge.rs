//! How loaded servers are over time, as agents beside them report it: to this program, which takes part in nothing. A server's agent for
//! the balancer is another one, so that all who are compared are watched in the same way.
//!
//! Reports are read and not verified: nothing is decided by them.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::{JoinHandle, spawn_local};

use crate::accounting;
use crate::alarm::Alarm;
use crate::failure::{Outcome, While};

/// The length of the tag in a datagram.
const TAG: usize = 32;
/// The longest datagram.
const DATAGRAM_MAX: usize = 2_048;
/// The most samples that are kept.
const SAMPLES_MAX: usize = 100_000;

/// Between two looks of our own.
const SPACING: Duration = Duration::from_millis(500);

/// A report, as far as it is of interest.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it came, since the start of the alarm.
    pub at: Duration,
    /// The server, as POOL/NAME.
    pub server: String,
    /// The part of its processor in use, 0 to 1.
    pub load: f64,
}

/// Takes reports until it is dropped.
pub struct Gauge {
    /// Where agents report to.
    pub address: SocketAddr,
    samples: Rc<RefCell<Vec<Sample>>>,
    task: JoinHandle<()>,
}

impl Gauge {
    /// Begins.
    pub async fn start(alarm: &Alarm) -> Outcome<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.doing(|| "waiting for reports".to_owned())?;
        let address = socket.local_addr().doing(|| "asking for a port".to_owned())?;
        let samples = Rc::new(RefCell::new(Vec::new()));
        let task = spawn_local(receive(socket, samples.clone(), alarm.clone()));
        Ok(Self { address, samples, task })
    }

    /// Also reads a server's processor time itself, where no agent does: `cores` is what the server has.
    pub fn watch(&self, server: String, process: u32, cores: f64, alarm: &Alarm) -> JoinHandle<()> {
        spawn_local(watch(server, process, cores, self.samples.clone(), alarm.clone()))
    }

    /// What has come, in its order.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.borrow().clone()
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(server: String, process: u32, cores: f64, samples: Rc<RefCell<Vec<Sample>>>, alarm: Alarm) {
    let mut before = (alarm.now(), Duration::ZERO);
    while let Ok(used) = accounting::processor_time(&[process]) {
        let now = (alarm.now(), used);
        let passed = (now.0 - before.0).as_secs_f64();
        if passed > 0.0 && samples.borrow().len() < SAMPLES_MAX {
            let load = now.1.saturating_sub(before.1).as_secs_f64() / passed / cores;
            samples.borrow_mut().push(Sample { at: now.0, server: server.clone(), load: load.clamp(0.0, 1.0) });
        }
        before = now;
        alarm.sleep(SPACING).await;
    }
}

async fn receive(socket: UdpSocket, samples: Rc<RefCell<Vec<Sample>>>, alarm: Alarm) {
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        // An error of an earlier datagram of ours can't be: we send none.
        let Ok((length, _)) = socket.recv_from(&mut buffer).await else { continue };
        let Some((server, load)) = buffer.get(..length).and_then(read) else { continue };
        let mut samples = samples.borrow_mut();
        if samples.len() < SAMPLES_MAX {
            samples.push(Sample { at: alarm.now(), server, load });
        }
    }
}

/// A datagram: version, length of the name, name, tag, JSON.
fn read(datagram: &[u8]) -> Option<(String, f64)> {
    let (head, rest) = datagram.split_at_checked(2)?;
    let (name, rest) = rest.split_at_checked(usize::from(*head.get(1)?))?;
    let json: serde_json::Value = serde_json::from_slice(rest.get(TAG..)?).ok()?;
    let cpu = json.get("figures")?.get("cpu")?;
    let (amount, capacity) = (cpu.get(0)?.as_f64()?, cpu.get(1)?.as_f64()?);
    let load = if capacity > 0.0 { (amount / capacity).clamp(0.0, 1.0) } else { return None };
    Some((String::from_utf8(name.to_vec()).ok()?, load))
}

/// The load of one server over time: points in seconds from `from`, until `until`.
pub fn line(samples: &[Sample], server: &str, from: Duration, until: Duration) -> Vec<(f64, f64)> {
    let own = samples.iter().filter(|sample| sample.server == server && (from..until).contains(&sample.at));
    own.map(|sample| ((sample.at - from).as_secs_f64(), sample.load)).collect()
}

/// The longest time for which a server was loaded above `limit`. A figure holds until the next one comes.
pub fn longest_above(line: &[(f64, f64)], limit: f64) -> f64 {
    let (mut longest, mut since) = (0.0_f64, None);
    for (at, load) in line {
        if let Some(begin) = since {
            longest = longest.max(at - begin);
        }
        since = if *load > limit { since.or(Some(*at)) } else { None };
    }
    longest
}

/// The mean load, by time.
pub fn mean(line: &[(f64, f64)]) -> f64 {
    let pieces = line.iter().zip(line.iter().skip(1));
    let (sum, time) = pieces.fold((0.0, 0.0), |(sum, time), (one, next)| {
        let length = next.0 - one.0;
        (sum + one.1 * length, time + length)
    });
    if time > 0.0 { sum / time } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(json: &str) -> Vec<u8> {
        let tag = [b'{'; TAG];
        [&[1, 6], b"all/s2".as_slice(), &tag, json.as_bytes()].concat()
    }

    #[test]
    fn the_load_is_read_from_a_report_whatever_its_tag_looks_like() {
        let json = r#"{"boot":1,"sequence":2,"figures":{"cpu":[150.0,600.0],"connections":3}}"#;
        assert_eq!(read(&datagram(json)), Some(("all/s2".to_owned(), 0.25)));
        for broken in
            [&datagram(r#"{"figures":{}}"#)[..], &datagram(r#"{"figures":{"cpu":[1,0]}}"#), &[1, 200, b'a'], &[]]
        {
            assert_eq!(read(broken), None);
        }
    }

    #[test]
    fn a_server_is_above_a_limit_from_the_first_figure_above_it_to_the_next_that_is_not() {
        let line = [(0.0, 0.5), (1.0, 0.8), (2.0, 0.9), (3.0, 0.71), (5.0, 0.7), (6.0, 0.99), (7.0, 0.1)];
        assert!((longest_above(&line, 0.7) - 4.0).abs() < 1e-9);
        assert!((longest_above(&line, 0.95) - 1.0).abs() < 1e-9);
        assert!(longest_above(&line, 0.99) < 1e-9 && longest_above(&[], 0.7) < 1e-9);
        assert!((longest_above(&[(0.0, 1.0), (4.0, 1.0)], 0.7) - 4.0).abs() < 1e-9, "the end counts");
        assert!((mean(&line[..3]) - 0.65).abs() < 1e-9 && mean(&[]) < 1e-9);
    }

    #[test]
    fn a_line_is_that_of_one_server_and_one_part_of_time() {
        let sample = |at, server: &str| Sample { at: Duration::from_secs(at), server: server.to_owned(), load: 0.5 };
        let samples =
            [sample(1, "all/s1"), sample(3, "all/s1"), sample(4, "all/s2"), sample(5, "all/s1"), sample(9, "all/s1")];
        let line = line(&samples, "all/s1", Duration::from_secs(3), Duration::from_secs(9));
        assert_eq!(line, [(0.0, 0.5), (2.0, 0.5)]);
    }
}
