//! A beat at equal distances, from a timer of the kernel's: each costs one waking. The runtime's own timers wake more often
//! than they end, to sort those that are far away.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::read;
use tokio::io::unix::AsyncFd;

use crate::agent::readiness::watch;

/// How far off the first beat is: none at all would stop the timer.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// A timer that goes on until it is dropped.
#[derive(Debug)]
pub struct Pulse(AsyncFd<OwnedFd>);

impl Pulse {
    /// Begins to beat; the first comes at once. Needs a runtime around it.
    ///
    /// # Errors
    /// Where the system has no timer to give.
    pub fn every(distance: Duration) -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let beats = Expiration::IntervalDelayed(TimeSpec::from_duration(AT_ONCE), TimeSpec::from_duration(distance));
        timer.set(beats, TimerSetTimeFlags::empty())?;
        Ok(Self(watch(timer.into())?))
    }

    /// Waits for the next beat. Those that were missed are one.
    ///
    /// # Errors
    /// Where the runtime has ended, or the timer can't be read.
    pub async fn beat(&self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            // The timer goes on when it is read. Until then nothing new is to be read in it.
            let mut count = [0; size_of::<u64>()];
            let result = read(ready.get_inner(), &mut count);
            ready.clear_ready();
            if result != Err(Errno::EAGAIN) {
                return Ok(result.map(|_| ())?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time;

    #[tokio::test]
    async fn it_beats_on() {
        let distance = Duration::from_millis(20);
        let pulse = Pulse::every(distance).unwrap();
        let begun = time::now();
        pulse.beat().await.unwrap();
        let first = time::now().since(begun);
        for _ in 0..5 {
            pulse.beat().await.unwrap();
        }
        assert!(time::now().since(begun) >= first + 4 * distance, "five beats, the first of them late perhaps");
    }
}
