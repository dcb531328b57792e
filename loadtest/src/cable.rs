//! A machine of its own, as far as the network goes: a network namespace behind a cable that may lose packets, delay each by another time
//! (and so change their order), and be cut.
//!
//! The cable is two TUN devices, one on each side, and a thread that carries packets between them: `netem` does the same in the kernel,
//! where the kernel has it. Addresses are of 198.18.0.0/15, which is set aside for measurements (RFC 2544, RFC 6890). It needs root, and
//! removes everything when dropped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::statistics::Numbers;

/// The longest packet, with room.
const PACKET_MAX: usize = 2_048;
/// Packets on their way in both directions; more are lost, as in any queue.
const UNDER_WAY_MAX: usize = 8_192;
/// How often the thread looks whether it is to end.
const SLICE: Duration = Duration::from_millis(50);

#[allow(missing_docs, reason = "what the macro makes has none")]
mod device {
    nix::ioctl_write_ptr_bad!(set_interface, 0x4004_54CA, nix::libc::ifreq);
}

/// What a cable does to packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// The part that is lost, 0 to 1.
    pub loss: f64,
    /// Each takes longer by a time up to this, each time as likely.
    pub jitter: Duration,
}

/// A cable that is as good as any.
pub const GOOD: Quality = Quality { loss: 0.0, jitter: Duration::ZERO };

/// A network namespace at the end of a cable.
pub struct Machine {
    /// What `ip netns` calls it.
    pub name: String,
    /// Our address on the cable.
    pub near: Ipv4Addr,
    /// Its address.
    pub far: Ipv4Addr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_cut: AtomicBool,
    is_over: AtomicBool,
    carried: AtomicU64,
    lost: AtomicU64,
}

/// Fails where this user may not make a namespace.
pub fn require_root() -> Outcome<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::new("a network namespace takes root: run it as root, or leave this part out"))
}

impl Machine {
    /// Makes one; what is drawn by lot follows from `seed`.
    pub fn make(quality: Quality, seed: u64) -> Outcome<Self> {
        require_root()?;
        let process = std::process::id();
        // Runs at the same time have other networks.
        let third = u8::try_from(process % 250).unwrap_or(0);
        let (near, far) = (Ipv4Addr::new(198, 18, third, 1), Ipv4Addr::new(198, 18, third, 2));
        let (name, [inner, outer]) =
            (format!("loadtest-{process}"), ["f", "n"].map(|side| format!("lt{side}{process}")));
        let shared = Arc::new(Shared::default());
        let devices = [open_device(&outer)?, open_device(&inner)?];
        ip(&["netns", "add", &name])?;
        // From here on dropping it removes the namespace.
        let mut machine = Self { name, near, far, shared, thread: None };
        let (near, far, name) = (near.to_string(), far.to_string(), machine.name.clone());
        ip(&["link", "set", &inner, "netns", &name])?;
        ip(&["address", "add", &near, "peer", &far, "dev", &outer])?;
        ip(&["link", "set", &outer, "up"])?;
        ip(&["-n", &name, "address", "add", &far, "peer", &near, "dev", &inner])?;
        ip(&["-n", &name, "link", "set", &inner, "up"])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        let shared = machine.shared.clone();
        machine.thread = Some(thread::spawn(move || carry(devices, quality, Numbers::new(seed), &shared)));
        Ok(machine)
    }

    /// Cuts the cable, or mends it.
    pub fn set_cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Packets that came to the other side, and that were lost.
    pub fn packets(&self) -> (u64, u64) {
        (self.shared.carried.load(Ordering::Relaxed), self.shared.lost.load(Ordering::Relaxed))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
        // Nobody is left to be told.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Outcome<()> {
    let said = Command::new("ip").args(arguments).output().doing(|| "starting ip (package iproute2)".to_owned())?;
    if said.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&said.stderr).trim().to_owned();
    Err(Failure::new(format!("ip {}: {why}", arguments.join(" "))))
}

/// A TUN device that lasts as long as its descriptor.
fn open_device(name: &str) -> Outcome<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let file = file.doing(|| "opening /dev/net/tun".to_owned())?;
    // SAFETY: the structure holds numbers and arrays of numbers alone, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let flags = i16::try_from(libc::IFF_TUN | libc::IFF_NO_PI).doing(|| "making a device".to_owned())?;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: the descriptor is open, and the request is what TUNSETIFF reads: a name that ends with a zero, and flags.
    unsafe { device::set_interface(file.as_raw_fd(), &raw const request) }.doing(|| format!("making {name}"))?;
    Ok(file)
}

/// Packets on their way: when each is due, in which order they were sent, and on which side it comes out.
type UnderWay = BTreeMap<(Instant, u64), (usize, Vec<u8>)>;

fn carry(mut devices: [File; 2], quality: Quality, mut numbers: Numbers, shared: &Shared) {
    let mut under_way = UnderWay::new();
    let mut sent = 0_u64;
    let mut buffer = [0; PACKET_MAX];
    while !shared.is_over.load(Ordering::Relaxed) {
        wait(&devices, under_way.first_key_value().map(|((due, _), _)| *due));
        for side in 0..2 {
            while let Some(length) = devices.get_mut(side).and_then(|device| read(device, &mut buffer)) {
                sent += 1;
                let is_lost = shared.is_cut.load(Ordering::Relaxed)
                    || numbers.unit() < quality.loss
                    || under_way.len() >= UNDER_WAY_MAX;
                if is_lost {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let due = clock::now() + quality.jitter.mul_f64(numbers.unit());
                let packet = buffer.get(..length).unwrap_or_default().to_vec();
                under_way.insert((due, sent), (1 - side, packet));
            }
        }
        deliver(&mut devices, &mut under_way, shared);
    }
}

/// Until a packet comes, one is due, or it is time to look around.
fn wait(devices: &[File; 2], due: Option<Instant>) {
    let left = due.map_or(SLICE, |due| due.saturating_duration_since(clock::now()).min(SLICE));
    let mut ready = devices.each_ref().map(|device| PollFd::new(device.as_fd(), PollFlags::POLLIN));
    // To the millisecond: what is due within one is waited for by asking again.
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    // Whatever ends it, the devices are asked.
    let _ = poll(&mut ready, timeout);
}

fn read(device: &mut File, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match device.read(buffer) {
            Ok(0) => return None,
            Ok(length) => return Some(length),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

fn deliver(devices: &mut [File; 2], under_way: &mut UnderWay, shared: &Shared) {
    let now = clock::now();
    while let Some(first) = under_way.first_entry() {
        if first.key().0 > now {
            return;
        }
        let (side, packet) = first.remove();
        let written = devices.get_mut(side).is_some_and(|device| device.write(&packet).is_ok());
        let count = if written { &shared.carried } else { &shared.lost };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_cut_cable_carries_nothing_and_a_mended_one_does_again() {
        if require_root().is_err() || !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("left out: it takes root and /dev/net/tun");
            return;
        }
        let machine = Machine::make(GOOD, 1).unwrap();
        // The address of the other side is ours to send to; what comes out there nobody takes, but it is counted.
        let socket = UdpSocket::bind((machine.near, 0)).unwrap();
        let send = || socket.send_to(b"x", (machine.far, 9)).map(drop);
        let carried = |more_than: u64| {
            clock::wait_for("a packet", Duration::from_secs(5), || {
                // Where nobody listens, the next call tells of it.
                let _ = send();
                Ok((machine.packets().0 > more_than).then_some(()))
            })
        };
        carried(0).unwrap();
        machine.set_cut(true);
        clock::wait_for("a lost packet", Duration::from_secs(5), || {
            let _ = send();
            Ok((machine.packets().1 > 0).then_some(()))
        })
        .unwrap();
        machine.set_cut(false);
        carried(machine.packets().0).unwrap();
        let name = machine.name.clone();
        drop(machine);
        assert!(!std::path::Path::new("/run/netns").join(name).exists());
    }
}
