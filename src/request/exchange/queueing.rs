//! The wait in a pool's queue: until a place is handed over, the client goes away, the process stops, or the time is up.
//!
//! A request waits no longer than its pool's `timeout` in all, however often it comes to the queue: what it has waited before is
//! in its record. It refuses to choose a server: whose place it is was decided by who gave it back ([`crate::shared::queue`]).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::base::time::{self, Timestamp};
use crate::pure::trace::Trace;
use crate::request::exchange::channel::Channel;
use crate::request::exchange::choice::refusal_of;
use crate::request::exchange::failure::Failure;
use crate::shared::choose::Ask;
use crate::shared::lease::{Admitted, Again, Lease, PoolRef, Wait};

/// How a wait has ended.
enum End {
    /// It has a place.
    Place(Lease),
    /// The pool has changed.
    Again,
    /// It has lasted as long as it may.
    TimeUp,
}

/// Waits for a place.
///
/// # Errors
/// [`Failure`] where the time is up, the client goes away, the process stops or the pool is no more.
pub async fn wait(channel: &mut Channel<'_>, wait: Wait, pool: PoolRef<'_>, ask: &Ask<'_>) -> Result<Lease, Failure> {
    let began = time::now();
    let result = place(channel, wait, pool, ask).await;
    *channel.scratch.record.queue.get_or_insert_default() += time::now().since(began);
    result
}

async fn place(channel: &mut Channel<'_>, mut wait: Wait, pool: PoolRef<'_>, ask: &Ask<'_>) -> Result<Lease, Failure> {
    let worker = Rc::clone(&channel.connection.worker);
    let began = worker.now();
    let waited = channel.scratch.record.queue.unwrap_or_default();
    loop {
        let deadline = deadline(began, wait.timeout, waited);
        let end = if worker.now() < deadline {
            channel.connection.deadline.set(deadline);
            poll_fn(|context| poll(channel, &mut wait, context)).await?
        } else {
            End::TimeUp
        };
        match end {
            End::Place(lease) => return Ok(lease),
            End::TimeUp => {
                let ask = Ask { now: worker.now(), ..*ask };
                return Ok(worker.admission.last_try(wait, pool, &ask).map_err(refusal_of)?);
            }
            End::Again => {
                // The snapshot may come a moment after what the queue knows already.
                tokio::task::yield_now().await;
                let ask = Ask { now: worker.now(), ..*ask };
                match worker.admission.admit(pool, &ask, &mut Trace::off()).map_err(refusal_of)? {
                    Admitted::Place(lease) => return Ok(lease),
                    Admitted::Waits(another) => wait = another,
                }
            }
        }
    }
}

/// When the time of a wait is up. A pool that changes does not give more, nor does another server to wait for, nor a repetition.
fn deadline(began: Timestamp, timeout: Duration, waited: Duration) -> Timestamp {
    began + timeout.saturating_sub(waited)
}

fn poll(channel: &mut Channel<'_>, wait: &mut Wait, context: &mut Context<'_>) -> Poll<Result<End, Failure>> {
    #[cfg(test)]
    crate::request::tests::faults::step();
    match wait.poll(context) {
        Poll::Ready(Ok(lease)) => return Poll::Ready(Ok(End::Place(lease))),
        Poll::Ready(Err(Again)) => return Poll::Ready(Ok(End::Again)),
        Poll::Pending => {}
    }
    if let Poll::Ready(failure) = channel.poll_client_gone(context) {
        return Poll::Ready(Err(failure));
    }
    if channel.connection.deadline.poll_expired(context) {
        return Poll::Ready(Ok(End::TimeUp));
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_to_the_queue_again_does_not_wait_the_whole_time_anew() {
        let (timeout, now) = (Duration::from_secs(5), Timestamp::ZERO + Duration::from_secs(100));
        assert_eq!(deadline(now, timeout, Duration::ZERO), now + timeout);
        assert_eq!(deadline(now, timeout, Duration::from_secs(4)), now + Duration::from_secs(1));
        assert_eq!(deadline(now, timeout, Duration::from_secs(6)), now);
    }
}
