//! What the whole machine uses, from /proc and /sys: the figures of an agent that watches no cgroup and no process, and for
//! the others the capacities that theirs are parts of.

use std::io;
use std::path::Path;

use nix::unistd::{SysconfVar, sysconf};

use super::proc_file::{ProcFile, read_number, read_once};
use crate::pure::feedback::report::Use;

/// The kernel's ticks a second in what it tells of processor time: the same on every machine.
pub const TICKS: f64 = 100.0;
/// Bytes of what /proc/diskstats calls a sector, whatever the disk's are.
const SECTOR: f64 = 512.0;
/// The rate of a processor that does not tell its own, MHz.
const RATE: f64 = 1000.0;

/// Bytes of a page, where the system does not say.
const PAGE: f64 = 4096.0;

/// The machine's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Its processors.
    pub cores: f64,
    /// Their rate, MHz.
    pub rate: f64,
    /// Bytes of a page of its memory.
    pub page: f64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let online = read_once("/sys/devices/system/cpu/online").ok().map(|text| count_of_list(&text));
        let of_kernel = || read_once("/proc/cpuinfo").ok().and_then(|text| rate_of(&text));
        let most = read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|khz| khz as f64 / 1000.0);
        Self {
            cores: online.filter(|cores| *cores > 0).unwrap_or(1) as f64,
            rate: most.or_else(of_kernel).filter(|rate| *rate > 0.0).unwrap_or(RATE),
            page: sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(PAGE, |bytes| bytes as f64),
        }
    }
}

/// The numbers in a list such as `0-3,8`.
pub fn count_of_list(text: &str) -> u64 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
        ends.map_or(0, |(first, last)| last.saturating_sub(first) + 1)
    };
    text.trim().split(',').map(count).sum()
}

fn rate_of(cpuinfo: &str) -> Option<f64> {
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split_once(':')?.1.trim().parse().ok()
}

/// The machine's counters.
#[derive(Debug)]
pub struct Host {
    stat: ProcFile,
    memory: ProcFile,
    disks: Option<ProcFile>,
    load: ProcFile,
}

impl Host {
    /// Opens them. Without /proc/diskstats there are no figures of disks.
    ///
    /// # Errors
    /// Where one of the others can't be opened.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            stat: ProcFile::open("/proc/stat")?,
            memory: ProcFile::open("/proc/meminfo")?,
            disks: ProcFile::open_list("/proc/diskstats").ok(),
            load: ProcFile::open("/proc/loadavg")?,
        })
    }

    /// The seconds that its processors have worked, all together.
    pub fn processor_seconds(&mut self) -> Option<f64> {
        busy_ticks(self.stat.read().ok()?).map(|ticks| ticks / TICKS)
    }

    /// Its memory.
    pub fn memory(&mut self) -> Option<Use> {
        memory(self.memory.read().ok()?)
    }

    /// The bytes that its disks have read and written, all together.
    pub fn disk_bytes(&mut self) -> Option<f64> {
        let is_disk = |name: &str| Path::new("/sys/block").join(name.replace('/', "!")).exists();
        Some(disk_bytes(self.disks.as_mut()?.read().ok()?, is_disk))
    }

    /// The tasks that wait for a processor or have one, this one apart.
    pub fn run_queue(&mut self) -> Option<u32> {
        running(self.load.read().ok()?).map(|count| count.saturating_sub(1))
    }
}

/// Ticks of the first line of /proc/stat that were work; a guest's are in its host's already.
fn busy_ticks(stat: &str) -> Option<f64> {
    let mut words = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<f64>);
    let mut next = || words.next()?.ok();
    let (user, nice, system, _idle, _wait) = (next()?, next()?, next()?, next()?, next()?);
    let rest: f64 = [next(), next(), next()].into_iter().flatten().sum();
    Some(user + nice + system + rest)
}

fn memory(meminfo: &str) -> Option<Use> {
    let value = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: f64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
        Some(kib * 1024.0)
    };
    let capacity = value("MemTotal")?;
    Some(Use { amount: (capacity - value("MemAvailable")?).max(0.0), capacity })
}

/// Bytes of whole disks: what is made of other disks or of memory would count twice, or not at all.
fn disk_bytes(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> f64 {
    let made = ["loop", "ram", "zram", "dm-", "md"];
    let sectors = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(2).filter(|name| !made.iter().any(|prefix| name.starts_with(prefix)))?;
        let number = |at: usize| words.get(at)?.parse::<f64>().ok();
        let sectors = number(5)? + number(9)?;
        (sectors > 0.0 && is_disk(name)).then_some(sectors)
    };
    diskstats.lines().filter_map(sectors).sum::<f64>() * SECTOR
}

/// The tasks that can run, from /proc/loadavg: `0.20 0.18 0.12 1/80 11206`.
fn running(loadavg: &str) -> Option<u32> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel_are_read() {
        assert_eq!(busy_ticks("cpu  100 5 20 9000 70 3 4 2 50 1\ncpu0 1 2\n"), Some(134.0));
        assert_eq!(busy_ticks("intr 5\n"), None);
        let use_ = memory("MemTotal:       8000 kB\nMemFree: 10 kB\nMemAvailable:   6000 kB\n").unwrap();
        assert_eq!((use_.amount, use_.capacity), (2000.0 * 1024.0, 8000.0 * 1024.0));
        assert_eq!(memory("MemTotal: 1 kB\n"), None);
        let disks = "   8  0 sda 1 2 100 4 5 6 28 8 0 9 10\n   8  1 sda1 1 2 100 4 5 6 28 8 0 9 10\n   7  0 loop0 1 2 9 4 5 6 9 8\n";
        assert_eq!(disk_bytes(disks, |name| name == "sda" || name == "loop0"), 128.0 * 512.0);
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(count_of_list("0-3,8,10-11\n"), 7);
        assert_eq!(rate_of("processor : 0\ncpu MHz\t\t: 2596.134\n"), Some(2596.134));
    }

    #[test]
    fn this_machine_has_figures() {
        let mut host = Host::open().unwrap();
        assert!(host.processor_seconds().unwrap() > 0.0 && host.run_queue().is_some());
        assert!(host.memory().unwrap().part().unwrap() > 0.0);
        assert!(Machine::here().cores >= 1.0 && Machine::here().rate > 0.0);
    }
}
