//! Processes that this program starts, and ends.
//!
//! Each is the head of a process group of its own. Its guard ends the group when dropped, also while a panic unwinds; should this
//! program be killed outright, the kernel ends the child (`setpriv --pdeathsig`). Nothing else is ever signalled.
//! Start children from the main thread only: the kernel ties the death signal to the thread that forked.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::clock;
use crate::failure::{Failure, Outcome, While};

const PATIENCE: Duration = Duration::from_secs(5);

/// What to start.
pub struct Recipe {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    cores: String,
    output: Stdio,
    errors: Stdio,
}

impl Recipe {
    /// `program` on `cores` (a `taskset` list such as `0` or `0,2`), without output.
    pub fn new(program: impl Into<OsString>, cores: &str) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            cores: cores.to_owned(),
            output: Stdio::null(),
            errors: Stdio::null(),
        }
    }

    /// Adds one argument.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Appends standard output to `file`.
    pub fn output(mut self, file: File) -> Self {
        self.output = file.into();
        self
    }

    /// Appends standard error to `file`.
    pub fn errors(mut self, file: File) -> Self {
        self.errors = file.into();
        self
    }

    /// Keeps standard output for [`Child::finish`]; it must fit into a pipe (64 KiB).
    pub fn captured(mut self) -> Self {
        self.output = Stdio::piped();
        self
    }

    /// Starts it.
    pub fn start(self) -> Outcome<Child> {
        let name = self.program.to_string_lossy().into_owned();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "taskset", "-c", &self.cores])
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(self.output)
            .stderr(self.errors)
            .process_group(0)
            .spawn()
            .doing(|| format!("starting {name}"))?;
        Ok(Child { name, child })
    }
}

/// A running process of ours.
pub struct Child {
    name: String,
    child: process::Child,
}

impl Child {
    /// Its process id (also that of its group).
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended.
    pub fn still_runs(&mut self) -> Outcome<()> {
        match self.child.try_wait().doing(|| format!("asking for {}", self.name))? {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("{} ended early: {status}", self.name))),
        }
    }

    /// Waits until it ends by itself, for at most `limit`, and returns what it wrote to a captured standard output.
    pub fn finish(mut self, limit: Duration) -> Outcome<String> {
        let status = self.ended(limit)?;
        let mut text = String::new();
        if let Some(output) = &mut self.child.stdout {
            output.read_to_string(&mut text).doing(|| format!("reading from {}", self.name))?;
        }
        if status.success() { Ok(text) } else { Err(Failure::new(format!("{} failed: {status}", self.name))) }
    }

    /// Asks it to end and waits until it has, for at most `limit`.
    pub fn terminate(mut self, limit: Duration) -> Outcome<()> {
        self.signal(Signal::SIGTERM);
        self.ended(limit).map(drop)
    }

    /// Kills it as `kill -9` does, and waits until the kernel has taken it away.
    pub fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        // It says that it was killed.
        let _ = self.child.wait();
    }

    fn ended(&mut self, limit: Duration) -> Outcome<ExitStatus> {
        let (name, child) = (&self.name, &mut self.child);
        clock::wait_for(&format!("the end of {name}"), limit, || {
            child.try_wait().doing(|| format!("waiting for {name}"))
        })
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // A group that is gone already is what we want.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }
}

impl Drop for Child {
    /// Ends the group: politely, then surely. It does not heed interrupts: they are the reason why it runs.
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        self.signal(Signal::SIGTERM);
        let until = clock::now() + PATIENCE;
        while !self.has_ended() && clock::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        if !self.has_ended() {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}
