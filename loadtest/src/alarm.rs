//! Waking up at an instant, to some ten microseconds.
//!
//! The runtime's own timers tick once a millisecond, which is as long as a hit takes. This is one timer of the kernel (timerfd) beside
//! the sockets, for all who sleep on one thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::clock;
use crate::failure::{Outcome, While};

/// A clock that counts from the start of an experiment, and wakes who sleeps by it.
#[derive(Clone)]
pub struct Alarm(Rc<Shared>);

struct Shared {
    begin: Instant,
    timer: AsyncFd<TimerFdHandle>,
    /// By when, and by who came first.
    sleepers: RefCell<BTreeMap<(Duration, u64), oneshot::Sender<()>>>,
    came: Cell<u64>,
}

/// What the runtime can wait for.
struct TimerFdHandle(TimerFd);

impl std::os::fd::AsRawFd for TimerFdHandle {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsFd::as_fd(&self.0).as_raw_fd()
    }
}

impl Alarm {
    /// One that counts from now; it lives as long as the local set that this is called on.
    pub fn start() -> Outcome<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).doing(|| "making a timer".to_owned())?;
        // SAFETY: the timer owns its descriptor, and nothing replaces or closes it while it is registered.
        let timer = unsafe { AsyncFd::register_with_interest(TimerFdHandle(timer), Interest::READABLE) };
        let timer = timer.doing(|| "waiting for a timer".to_owned())?;
        let (begin, came) = (clock::now(), Cell::new(0));
        let shared = Rc::new(Shared { begin, timer, sleepers: RefCell::default(), came });
        tokio::task::spawn_local(wake(shared.clone()));
        Ok(Self(shared))
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.0.begin.elapsed()
    }

    /// Returns once it is `at`, and never before.
    pub async fn until(&self, at: Duration) {
        if at <= self.now() {
            return;
        }
        let (sender, receiver) = oneshot::channel();
        let number = self.0.came.get();
        self.0.came.set(number + 1);
        let is_first = {
            let mut sleepers = self.0.sleepers.borrow_mut();
            sleepers.insert((at, number), sender);
            sleepers.first_key_value().is_some_and(|(first, _)| *first == (at, number))
        };
        if is_first {
            self.0.arm();
        }
        // It is dropped unsent only when everything ends.
        let _ = receiver.await;
    }

    /// Returns after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.until(self.now() + duration).await;
    }
}

impl Shared {
    /// Sets the timer to the first who wants to be woken.
    fn arm(&self) {
        let Some(first) = self.sleepers.borrow().first_key_value().map(|((at, _), _)| *at) else { return };
        // Nothing would disarm it.
        let left = first.saturating_sub(self.begin.elapsed()).max(Duration::from_nanos(1));
        // With a valid duration the kernel does not refuse.
        let _ = self.timer.get_ref().0.set(Expiration::OneShot(TimeSpec::from(left)), TimerSetTimeFlags::empty());
    }
}

async fn wake(shared: Rc<Shared>) {
    while let Ok(mut ready) = shared.timer.readable().await {
        // Whether it had fired or was set anew meanwhile: who is due follows from the clock.
        let _ = shared.timer.get_ref().0.wait();
        ready.clear_ready();
        let now = shared.begin.elapsed();
        let due = {
            let mut sleepers = shared.sleepers.borrow_mut();
            let later = sleepers.split_off(&(now + Duration::from_nanos(1), 0));
            std::mem::replace(&mut *sleepers, later)
        };
        for sleeper in due.into_values() {
            // Who has stopped waiting need not be woken.
            let _ = sleeper.send(());
        }
        shared.arm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_in_the_order_of_their_times_and_never_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let alarm = Alarm::start().unwrap();
            let woken = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = [7_u64, 3, 9, 3, 0, 5]
                .map(|at| {
                    let (alarm, woken) = (alarm.clone(), woken.clone());
                    tokio::task::spawn_local(async move {
                        alarm.until(Duration::from_millis(at)).await;
                        assert!(alarm.now() >= Duration::from_millis(at));
                        woken.borrow_mut().push(at);
                    })
                })
                .into();
            for task in tasks {
                task.await.unwrap();
            }
            let mut sorted = woken.borrow().clone();
            sorted.sort_unstable();
            assert_eq!(*woken.borrow(), sorted);
        });
    }
}
