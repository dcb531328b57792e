//! The one place that reads the clock, waits, and notices that the user wants to stop.
//!
//! Every wait is cut into slices, so that Ctrl-C unwinds the stack and each guard ends the process that it started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};

use crate::failure::{Failure, Outcome, While};

const SLICE: Duration = Duration::from_millis(10);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember(_signal: nix::libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From here on SIGINT and SIGTERM end the next wait with a failure instead of the process.
pub fn catch_interrupts() -> Outcome<()> {
    for number in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { signal(number, SigHandler::Handler(remember)) }.doing(|| format!("catching {number}"))?;
    }
    Ok(())
}

/// Whether the user wants to stop.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Fails once the user wants to stop.
pub fn go_on() -> Outcome<()> {
    if is_interrupted() { Err(Failure::new("interrupted")) } else { Ok(()) }
}

/// The current instant.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn now() -> Instant {
    Instant::now()
}

/// The time of day, since the epoch: what logs go by.
pub fn wall() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// A number that is another one each time.
pub fn seed() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_secs() ^ u64::from(since.subsec_nanos()) << 20
}

/// Waits for `duration`, or fails as soon as the user wants to stop.
pub fn pause(duration: Duration) -> Outcome<()> {
    let until = now() + duration;
    loop {
        go_on()?;
        let left = until.saturating_duration_since(now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(SLICE));
    }
}

/// Asks `ready` again and again until it gives something, for at most `limit`; `what` names it in the failure.
pub fn wait_for<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let until = now() + limit;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if now() >= until {
            return Err(Failure::new(format!("{what}: not within {limit:?}")));
        }
        pause(SLICE)?;
    }
}
