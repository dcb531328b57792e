//! What a process and its descendants use. Who they are is looked up again every two seconds; at most [`MEMBERS_MAX`] count.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::cgroup::MEMBERS_MAX;
use super::host::TICKS;
use super::proc_file::{ProcFile, read_once};
use crate::base::time::Timestamp;

/// How often descendants are looked up.
const LOOK_UP: Duration = Duration::from_secs(2);
/// The most threads whose states are looked at.
const THREADS_MAX: u32 = 512;
/// The most processes of the machine that are searched for descendants.
const SEARCHED_MAX: usize = 65_536;

/// What /proc/PID/stat says of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    /// Its state's letter.
    pub state: char,
    /// Its parent.
    pub parent: i32,
    /// Ticks of its own and of children that it has waited for.
    pub ticks: f64,
    /// Its pages in memory.
    pub pages: f64,
}

impl Stat {
    /// Reads a line. The name in it may hold blanks and brackets: what follows the last bracket counts.
    pub fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<f64>().ok();
        Some(Self {
            state: words.first()?.chars().next()?,
            parent: words.get(1)?.parse().ok()?,
            ticks: number(11)? + number(12)? + number(13)? + number(14)?,
            pages: number(21)?,
        })
    }

    /// Whether such a process runs, and is not only waited for.
    pub const fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// A process and its descendants.
#[derive(Debug)]
pub struct ProcessTree {
    root: i32,
    members: BTreeMap<i32, ProcFile>,
    looked_up: Option<Timestamp>,
}

/// What they use together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeUse {
    /// Seconds of processors.
    pub processor_seconds: f64,
    /// Bytes of memory; what several share counts for each.
    pub memory: f64,
}

impl ProcessTree {
    /// That of this process.
    pub const fn of(root: i32) -> Self {
        Self { root, members: BTreeMap::new(), looked_up: None }
    }

    /// The process at the top.
    pub const fn root(&self) -> i32 {
        self.root
    }

    /// Its members.
    pub fn members(&self) -> impl Iterator<Item = i32> {
        self.members.keys().copied()
    }

    /// What they use. Those that have ended are left out.
    pub fn read(&mut self, now: Timestamp, page: f64) -> TreeUse {
        if self.looked_up.is_none_or(|at| now.since(at) >= LOOK_UP) {
            self.look_up();
            self.looked_up = Some(now);
        }
        let mut sum = TreeUse::default();
        self.members.retain(|_, file| {
            let Some(stat) = file.read().ok().and_then(Stat::read) else { return false };
            sum.processor_seconds += stat.ticks / TICKS;
            sum.memory += stat.pages * page;
            true
        });
        sum
    }

    fn look_up(&mut self) {
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in processes() {
            if let Some(stat) = read_once(format!("/proc/{process}/stat")).ok().and_then(|text| Stat::read(&text)) {
                children.entry(stat.parent).or_default().push(process);
            }
        }
        let mut found = vec![self.root];
        let mut next = 0;
        while let Some(process) = found.get(next).copied() {
            found.extend(children.remove(&process).unwrap_or_default());
            found.truncate(MEMBERS_MAX);
            next += 1;
        }
        self.members.retain(|process, _| found.contains(process));
        for process in found {
            if !self.members.contains_key(&process)
                && let Ok(file) = ProcFile::open(format!("/proc/{process}/stat"))
            {
                self.members.insert(process, file);
            }
        }
    }
}

/// The processes of the machine.
pub fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().take(SEARCHED_MAX);
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// How many threads of these processes run or wait for a processor; `None`: they are too many to look at.
pub fn run_queue(processes: impl Iterator<Item = i32>) -> Option<u32> {
    let (mut seen, mut runnable) = (0, 0);
    for process in processes {
        for thread in fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            seen += 1;
            if seen > THREADS_MAX {
                return None;
            }
            let stat = read_once(thread.path().join("stat")).ok().and_then(|text| Stat::read(&text));
            runnable += u32::from(stat.is_some_and(|stat| stat.state == 'R'));
        }
    }
    Some(runnable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time;

    #[test]
    fn a_line_of_a_process_is_read_whatever_its_name() {
        let text = "42 (a) b (c) R 7 42 42 0 -1 4194304 1 2 3 4 100 50 20 5 20 0 1 0 999 4096 77 1844 1 1";
        assert_eq!(Stat::read(text), Some(Stat { state: 'R', parent: 7, ticks: 175.0, pages: 77.0 }));
        assert_eq!(Stat::read("42 (a"), None);
    }

    #[test]
    fn a_process_is_found_with_its_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let mut tree = ProcessTree::of(own);
        let used = tree.read(time::now(), 4096.0);
        assert!(tree.members().any(|process| process == own));
        assert!(tree.members().any(|process| u32::try_from(process) == Ok(child.id())));
        assert!(used.memory > 0.0);
        assert!(run_queue([own].into_iter()).unwrap() >= 1, "this thread runs");
        child.kill().unwrap();
        child.wait().unwrap();
        tree.read(time::now(), 4096.0);
        assert!(!tree.members().any(|process| u32::try_from(process) == Ok(child.id())));
    }
}
