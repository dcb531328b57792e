//! A machine's power, switched through `ipmitool` or what is configured in its place. The password goes through the
//! environment of that process alone (`-E`), never on its command line, where everybody could read it.
//!
//! A machine that is off is switched on, any other off and on. A program that takes too long is killed, with all that it
//! started.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Target;
use crate::base::time::{self, Timestamp};
use crate::control::passwords::Passwords;
use crate::pure::recovery::StepFailure;
use crate::pure::recovery::plan::Ipmi;

/// The most that is read of what the program says, in bytes.
const OUTPUT_MAX: u64 = 4 * 1024;
/// How often is looked whether the program has ended.
const LOOK: Duration = Duration::from_millis(10);

/// What is to be switched, and how.
#[derive(Debug)]
pub(super) struct Order {
    program: PathBuf,
    board: Ipmi,
    password: Password,
    timeout: Duration,
    /// Whether it is not wanted any more: looked at before anything is switched.
    is_called_off: Arc<AtomicBool>,
}

/// Never shown.
struct Password(Option<String>);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

impl Order {
    pub(super) fn new(target: &Target, passwords: &Passwords, timeout: Duration) -> Result<Self, StepFailure> {
        let not_done = |why: &str| StepFailure::NotDone(why.to_owned());
        let board = target.machine.as_ref().and_then(|machine| machine.ipmi.clone());
        let (program, board) = target.plan.ipmi.clone().zip(board).ok_or_else(|| not_done("nothing says how"))?;
        let password = match &board.password_file {
            Some(file) => Some(passwords.get(file).ok_or_else(|| not_done("its password was not read"))?.to_owned()),
            None => None,
        };
        Ok(Self { program, board, password: Password(password), timeout, is_called_off: Arc::default() })
    }

    /// What calls it off, as long as nothing has been switched.
    pub(super) fn call_off(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_called_off)
    }

    /// Switches the power off and on, or on where it is off.
    pub(super) fn power_cycle(&self) -> Result<(), StepFailure> {
        let deadline = time::now() + self.timeout;
        let status = self.run("status", deadline)?;
        // Its board may have taken long to answer, and the machine may have come back meanwhile.
        if self.is_called_off.load(Ordering::Acquire) {
            return Err(StepFailure::NotDone(
                "something on the machine came back before its power was switched".to_owned(),
            ));
        }
        let action = if status.to_ascii_lowercase().contains("is off") { "on" } else { "cycle" };
        self.run(action, deadline).map(drop)
    }

    /// The command line of `chassis power ACTION`.
    fn command(&self, action: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-I", "lanplus", "-H", &self.board.address]);
        if let Some(user) = &self.board.user {
            command.args(["-U", user]);
        }
        if let Password(Some(password)) = &self.password {
            command.arg("-E").env("IPMI_PASSWORD", password);
        }
        command.args(["chassis", "power", action]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }

    fn run(&self, action: &str, deadline: Timestamp) -> Result<String, StepFailure> {
        let name = self.program.display();
        let child = self.command(action).spawn();
        let mut child = child.map_err(|error| StepFailure::NotDone(format!("{name} can't be run: {error}")))?;
        let (said, complained) = (gather(child.stdout.take()), gather(child.stderr.take()));
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if time::now() < deadline => std::thread::sleep(LOOK),
                Ok(None) => {
                    end(&mut child);
                    return Err(StepFailure::NotDone(format!("{name} chassis power {action} took too long")));
                }
                Err(error) => {
                    end(&mut child);
                    return Err(StepFailure::NotDone(format!("{name} is lost: {error}")));
                }
            }
        };
        // What it left behind may hold the pipe open: nobody waits for that.
        let patience = deadline.since(time::now()).min(Duration::from_secs(1));
        let text = |from: std::sync::mpsc::Receiver<String>| from.recv_timeout(patience).unwrap_or_default();
        let said = text(said);
        if status.success() {
            return Ok(said);
        }
        let complaint = text(complained);
        let line = complaint.lines().chain(said.lines()).find(|line| !line.trim().is_empty()).unwrap_or_default();
        Err(StepFailure::NotDone(format!("chassis power {action}: {status}: {}", line.trim().escape_debug())))
    }
}

/// Ends a program with all that it started.
fn end(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // It may have ended in this moment.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    let _ = child.wait();
}

/// Reads the beginning of what a program says, and the rest into nothing, so that it never waits for us.
fn gather(pipe: Option<impl Read + Send + 'static>) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = sync_channel(1);
    if let Some(mut pipe) = pipe {
        // Without a thread nothing is known of what it says, and it is cut off.
        let _ = std::thread::Builder::new().name("ipmi-output".to_owned()).spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.by_ref().take(OUTPUT_MAX).read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        });
    }
    receiver
}
