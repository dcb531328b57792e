//! Which process the service is, and whether it lives: by the file that holds its number, by its name, or as a member of a
//! cgroup. It refuses to take a process that has ended and is only waited for as one that lives.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::agent::given_file::read_given;
use crate::agent::measure::{ProcFile, Stat, Thrift, processes, read_once};
use crate::base::time::Timestamp;
use crate::pure::config::agent_file::ProcessSource;

/// How often a process that is gone is looked for, at most; and how often the file that names one that lives is read.
const SEARCH: Duration = Duration::from_millis(200);
const REREAD: Duration = Duration::from_secs(1);
/// Searching through all processes may take one part in so many of a core's time.
const SEARCH_PARTS: u32 = 200;

/// The longest file with the number of a process, in bytes.
const NUMBER_MAX: u64 = 1024;

/// The name of a process, as the kernel cuts it.
const NAME_MAX: usize = 15;

/// The process of a service.
#[derive(Debug)]
pub struct Liveness {
    source: ProcessSource,
    current: Option<(i32, ProcFile)>,
    searched: Option<Timestamp>,
    searching: Thrift,
}

impl Liveness {
    /// Nothing has been looked at yet.
    pub fn of(source: ProcessSource) -> Self {
        Self { source, current: None, searched: None, searching: Thrift::default() }
    }

    /// Why there is none, for people.
    pub fn why_none(&self) -> String {
        match &self.source {
            ProcessSource::PidFile(file) => match number_in(file) {
                Ok(number) => format!("the process {number} of {} does not live", file.display()),
                Err(cause) => format!("{}: {cause}", file.display()),
            },
            ProcessSource::Name(name) => format!("no process has the name `{name}`"),
        }
    }

    /// The process, if it lives now.
    pub fn look(&mut self, now: Timestamp) -> Option<i32> {
        let is_alive = self.current.as_mut().is_some_and(|(_, stat)| lives(stat));
        let wait = match (&self.source, is_alive) {
            (_, false) => SEARCH,
            (ProcessSource::PidFile(_), true) => REREAD,
            (ProcessSource::Name(_), true) => Duration::MAX,
        };
        if !is_alive {
            self.current = None;
        }
        let is_due = self.searched.is_none_or(|at| now.since(at) >= wait);
        if is_due && self.searching.allows(now, SEARCH_PARTS) {
            self.searched = Some(now);
            let source = &self.source;
            let found = self.searching.spend(now, || find(source));
            if let Some((process, stat)) = found.and_then(|process| Some((process, open(process).ok()?))) {
                self.current = Some((process, stat));
            }
        }
        self.current.as_ref().map(|(process, _)| *process)
    }
}

/// Opens what is read of a process as long as it lives: the number may be another's later, the open file is not.
fn open(process: i32) -> io::Result<ProcFile> {
    let mut stat = ProcFile::open(format!("/proc/{process}/stat"))?;
    if lives(&mut stat) { Ok(stat) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
}

fn lives(stat: &mut ProcFile) -> bool {
    stat.read().ok().and_then(Stat::read).is_some_and(|stat| stat.is_alive())
}

fn find(source: &ProcessSource) -> Option<i32> {
    match source {
        ProcessSource::PidFile(file) => number_in(file).ok(),
        ProcessSource::Name(name) => find_named(name),
    }
}

fn number_in(file: &Path) -> io::Result<i32> {
    let text = read_given(file, NUMBER_MAX)?;
    let number = text.trim().parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| io::Error::other("it has no number of a process"))
}

/// The topmost process of that name: one whose parent has another.
fn find_named(name: &str) -> Option<i32> {
    let cut: String = name.chars().take(NAME_MAX).collect();
    let own = i32::try_from(std::process::id()).ok();
    let is_named = |process: i32| read_once(format!("/proc/{process}/comm")).is_ok_and(|found| found.trim_end() == cut);
    let mut found: Vec<(i32, i32)> = Vec::new();
    for process in processes().filter(|process| Some(*process) != own && is_named(*process)) {
        let stat = read_once(format!("/proc/{process}/stat")).ok().and_then(|text| Stat::read(&text));
        found.extend(stat.filter(Stat::is_alive).map(|stat| (process, stat.parent)));
    }
    let is_top = |(_, parent): &&(i32, i32)| !found.iter().any(|(process, _)| process == parent);
    found.iter().filter(is_top).map(|(process, _)| *process).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time;

    #[test]
    fn a_process_is_found_by_file_and_by_name_until_it_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a-name-longer-than-the-kernels");
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let file = folder.path().join("pid");
        std::fs::write(&file, format!("{number}\n")).unwrap();
        let mut now = time::now();
        let mut by_file = Liveness::of(ProcessSource::PidFile(file));
        let mut by_name = Liveness::of(ProcessSource::Name("a-name-longer-than-the-kernels".to_owned()));
        for liveness in [&mut by_file, &mut by_name] {
            assert_eq!(liveness.look(now), Some(number));
        }
        child.kill().unwrap();
        // Not waited for yet: the process is there and dead.
        for liveness in [&mut by_file, &mut by_name] {
            while liveness.look(now).is_some() {
                now = now + Duration::from_millis(1);
            }
        }
        assert!(by_file.why_none().ends_with("does not live"), "{}", by_file.why_none());
        child.wait().unwrap();
        assert_eq!(by_file.look(now + Duration::from_secs(9)), None);
    }

    #[test]
    fn a_pid_file_that_is_a_fifo_does_not_stop_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("pid");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut liveness = Liveness::of(ProcessSource::PidFile(fifo));
        assert_eq!(liveness.look(time::now()), None);
        assert!(liveness.why_none().ends_with("it is no ordinary file"), "{}", liveness.why_none());
    }
}
