//! The one way to tell a worker something: a bounded inbox. It is never on a request's path.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use tokio::sync::mpsc;

use crate::base::id::{ListenerIndex, ServerSlot};

/// Orders that may wait in an inbox: a listener each, those of control, and the few of stopping.
const CAPACITY: usize = 4096;

/// A socket that listens, in the system's hands.
#[derive(Debug)]
pub enum ListeningSocket {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a file.
    Unix(UnixListener),
}

/// An order to a worker.
#[derive(Debug)]
pub enum Order {
    /// Accept connections from this socket too. A worker may hold several for one listener.
    Add {
        /// Whose socket it is.
        listener: ListenerIndex,
        /// The socket, bound and listening.
        socket: ListeningSocket,
    },
    /// Accept no more from this listener's sockets.
    Remove(ListenerIndex),
    /// Cancel this server's unanswered requests that may be sent again, and send them elsewhere.
    TakeBack(ServerSlot),
    /// Accept no more at all, finish what is in flight and stop.
    Drain,
    /// Stop now.
    Stop,
}

/// The sending end, held by the main thread and by control.
#[derive(Clone, Debug)]
pub struct Inbox(mpsc::Sender<Order>);

/// The worker is gone, or its inbox is full because it does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a worker does not take orders")]
pub struct InboxError;

impl Inbox {
    /// An inbox and the worker's end of it.
    pub fn new() -> (Self, mpsc::Receiver<Order>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self(sender), receiver)
    }

    /// Leaves an order.
    ///
    /// # Errors
    /// [`InboxError`] where the worker can't take it.
    pub fn send(&self, order: Order) -> Result<(), InboxError> {
        self.0.try_send(order).map_err(|_| InboxError)
    }
}
