//! What a process and its descendants use. Who they are is looked up again after two seconds if any process of the machine has
//! begun since, and after thirty anyway; at most [`MEMBERS_MAX`] count.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use super::cgroup::MEMBERS_MAX;
use super::host::TICKS;
use super::proc_file::{ProcFile, read_once};
use crate::base::time::Timestamp;

/// How often descendants are looked up, at most and at least.
const LOOK_UP: Duration = Duration::from_secs(2);
const LOOK_UP_ANYWAY: Duration = Duration::from_secs(30);
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
    /// Its threads.
    pub threads: f64,
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
            threads: number(17)?,
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
    members: BTreeMap<i32, Member>,
    /// When it was last asked whether others have come, and when they were last looked up.
    asked: Option<Timestamp>,
    looked_up: Option<Timestamp>,
    /// Tells the number that was given to a process last.
    load: Option<ProcFile>,
    /// Which that was at the last look-up; `None`: not known, or one of the members has ended since and may have left its children.
    youngest: Option<i32>,
}

/// One of its processes.
#[derive(Debug)]
struct Member {
    file: ProcFile,
    /// What was read last.
    stat: Option<Stat>,
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
    pub fn of(root: i32) -> Self {
        let load = ProcFile::open("/proc/loadavg").ok();
        Self { root, members: BTreeMap::new(), asked: None, looked_up: None, load, youngest: None }
    }

    /// The process at the top.
    pub const fn root(&self) -> i32 {
        self.root
    }

    /// How many threads of its members run or wait for a processor, as [`run_queue`]. That of a process with one thread was
    /// read with the rest.
    pub fn run_queue(&self) -> Option<u32> {
        let only = |member: &Member| member.stat.filter(|stat| stat.threads == 1.0);
        let alone = self.members.values().filter_map(only).filter(|stat| stat.state == 'R').count();
        let others = self.members.iter().filter(|(_, member)| only(member).is_none());
        Some(run_queue(others.map(|(process, _)| *process))?.saturating_add(u32::try_from(alone).unwrap_or(u32::MAX)))
    }

    /// What they use. Those that have ended are left out.
    pub fn read(&mut self, now: Timestamp, page: f64) -> TreeUse {
        self.keep_up(now);
        let mut sum = TreeUse::default();
        let before = self.members.len();
        self.members.retain(|_, member| {
            member.stat = member.file.read().ok().and_then(Stat::read);
            let Some(stat) = member.stat else { return false };
            sum.processor_seconds += stat.ticks / TICKS;
            sum.memory += stat.pages * page;
            true
        });
        if self.members.len() < before {
            self.youngest = None;
        }
        sum
    }

    /// Looks up who they are, where others may have come.
    fn keep_up(&mut self, now: Timestamp) {
        if self.asked.is_some_and(|at| now.since(at) < LOOK_UP) {
            return;
        }
        self.asked = Some(now);
        let youngest = self.load.as_mut().and_then(|load| youngest(load.read().ok()?));
        let is_old = self.looked_up.is_none_or(|at| now.since(at) >= LOOK_UP_ANYWAY);
        if is_old || youngest.is_none() || youngest != self.youngest {
            self.look_up();
            (self.looked_up, self.youngest) = (Some(now), youngest);
        }
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
                self.members.insert(process, Member { file, stat: None });
            }
        }
    }
}

/// The number that was given to a process or thread last, from /proc/loadavg: `0.20 0.18 0.12 1/80 11206`.
fn youngest(loadavg: &str) -> Option<i32> {
    loadavg.split_whitespace().next_back()?.parse().ok()
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
        assert_eq!(Stat::read(text), Some(Stat { state: 'R', parent: 7, ticks: 175.0, threads: 1.0, pages: 77.0 }));
        assert_eq!(Stat::read("42 (a"), None);
    }

    #[test]
    fn a_process_is_found_with_its_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, child_id) = (i32::try_from(std::process::id()).unwrap(), child.id());
        let mut tree = ProcessTree::of(own);
        let used = tree.read(time::now(), 4096.0);
        assert!(tree.members.contains_key(&own));
        let is_there = |tree: &ProcessTree| tree.members.keys().any(|process| u32::try_from(*process) == Ok(child_id));
        assert!(is_there(&tree));
        assert!(used.memory > 0.0);
        assert!(run_queue([own].into_iter()).unwrap() >= 1, "this thread runs");
        child.kill().unwrap();
        child.wait().unwrap();
        tree.read(time::now(), 4096.0);
        assert!(!is_there(&tree));
    }

    #[test]
    fn a_child_that_begins_is_found_at_the_next_look_up() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (begun, mut tree) = (time::now(), ProcessTree::of(own));
        tree.read(begun, 4096.0);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        tree.read(begun + LOOK_UP / 2, 4096.0);
        assert!(!tree.members.contains_key(&number));
        tree.read(begun + LOOK_UP, 4096.0);
        assert!(tree.members.contains_key(&number));
        assert!(tree.run_queue().unwrap() >= 1, "this thread runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
