//! What a process has cost, from /proc: processor time to the nanosecond, resident memory, and how busy a core was.
//!
//! `schedstat` is used for time because `stat` counts in steps of 10 ms. A thread that ends takes its count along: the figure is right
//! only for programs whose threads live as long as the measurement, which holds for the proxies here.

use std::fs;
use std::time::Duration;

use crate::failure::{Failure, Outcome, While};

/// A process and its descendants, as they were when asked.
pub fn tree_of(process: u32) -> Outcome<Vec<u32>> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        next += 1;
        for thread in threads_of(parent)? {
            // A thread that has ended since it was listed has no children.
            let children = fs::read_to_string(format!("/proc/{parent}/task/{thread}/children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    Ok(found)
}

/// Processor time that all threads of `processes` have used, user and system.
pub fn processor_time(processes: &[u32]) -> Outcome<Duration> {
    let mut sum = 0;
    for process in processes {
        for thread in threads_of(*process)? {
            // A thread that has ended since it was listed has taken its count along.
            let Ok(text) = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")) else { continue };
            sum += first_number(&text)?;
        }
    }
    Ok(Duration::from_nanos(sum))
}

/// The process id of a kernel thread.
pub fn kernel_thread(name: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.find(|process| fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|found| found.trim() == name))
}

/// Resident memory of `processes` in bytes; pages that they share count for each.
pub fn resident(processes: &[u32]) -> Outcome<u64> {
    let mut sum = 0;
    for process in processes {
        let text = read(&format!("/proc/{process}/smaps_rollup"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let line = line.ok_or_else(|| Failure::new(format!("no Rss in smaps_rollup of {process}")))?;
        sum += first_number(line)? * 1024;
    }
    Ok(sum)
}

/// What a core has done since the machine started, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTicks {
    /// Ticks without work.
    pub idle: u64,
    /// All ticks.
    pub all: u64,
}

impl CoreTicks {
    /// The ticks between `earlier` and this.
    pub fn since(self, earlier: Self) -> Self {
        Self { idle: self.idle.saturating_sub(earlier.idle), all: self.all.saturating_sub(earlier.all) }
    }

    /// Both counts added.
    pub fn plus(self, other: Self) -> Self {
        Self { idle: self.idle + other.idle, all: self.all + other.all }
    }

    /// The part of the time with work, 0 to 1.
    #[allow(clippy::cast_precision_loss, reason = "ticks of minutes are far below 2^52")]
    pub fn busy(self) -> f64 {
        if self.all == 0 { 0.0 } else { 1.0 - self.idle as f64 / self.all as f64 }
    }
}

/// The ticks of `core`.
pub fn core_ticks(core: usize) -> Outcome<CoreTicks> {
    parse_core_ticks(&read("/proc/stat")?, core).ok_or_else(|| Failure::new(format!("no core {core} in /proc/stat")))
}

fn parse_core_ticks(text: &str, core: usize) -> Option<CoreTicks> {
    let name = format!("cpu{core}");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
    // user nice system idle iowait irq softirq steal; what follows is part of user and nice.
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(CoreTicks { idle, all: ticks.iter().sum() })
}

fn threads_of(process: u32) -> Outcome<Vec<u32>> {
    let entries =
        fs::read_dir(format!("/proc/{process}/task")).doing(|| format!("listing the threads of {process}"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn read(path: &str) -> Outcome<String> {
    fs::read_to_string(path).doing(|| format!("reading {path}"))
}

fn first_number(text: &str) -> Outcome<u64> {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().doing(|| format!("reading the number {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_of_a_core_are_not_those_of_another_whose_name_begins_alike() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 10 1 20 60 5 1 2 1 0 0\ncpu10 7 7 7 7 7 7 7 7 0 0\n";
        let ticks = parse_core_ticks(text, 1).unwrap();
        assert_eq!(ticks, CoreTicks { idle: 65, all: 100 });
        assert!((ticks.busy() - 0.35).abs() < 1e-9);
        assert_eq!(parse_core_ticks(text, 2), None);
    }

    #[test]
    fn a_thread_that_works_is_charged_and_a_child_is_found() {
        let mut child = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        let tree = tree_of(std::process::id()).unwrap();
        let found = tree.contains(&child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found, "{tree:?}");
        let own = [std::process::id()];
        let before = processor_time(&own).unwrap();
        let until = crate::clock::now() + Duration::from_millis(50);
        while crate::clock::now() < until {
            std::hint::spin_loop();
        }
        assert!(processor_time(&own).unwrap() - before > Duration::from_millis(5));
        assert!(resident(&own).unwrap() > 100_000);
    }
}
