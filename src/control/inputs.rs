//! What servers say of themselves, from whichever thread hears it, on its way to control; and what control says to agents.
//!
//! Both ways are bounded queues, and nobody waits at either: a report for which there is no room is dropped and counted, and so
//! is an order. The threads hold no lock that a worker takes. It refuses to judge what is said.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::base::id::ServerSlot;
use crate::control::agent_check;
use crate::control::agent_orders::{AgentOrder, AgentOrders, agent_orders};
use crate::control::feedback::{self, BoundSocket, OpenError};
use crate::pure::config::Config;
use crate::pure::feedback::keys::MasterKey;
use crate::pure::feedback::report::{Report, Source};
use crate::pure::feedback::wire::RestartProgress;
use crate::pure::recovery::StepId;
use crate::shared::counters::ProcessCounters;
use crate::shared::snapshot::SnapshotStore;

/// The most reports that wait for control.
pub const REPORTS_MAX: usize = 4_096;

/// Something that a server has said of itself, and whoever heard it believes that it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// The server.
    pub slot: ServerSlot,
    /// Who brought it.
    pub source: Source,
    /// What it says.
    pub report: Report,
    /// How the restart goes that was ordered last, where it says so.
    pub restart: Option<(StepId, RestartProgress)>,
}

/// A thread's way to control.
#[derive(Clone, Debug)]
pub struct ReportSender {
    queue: mpsc::Sender<Heard>,
    process: Arc<ProcessCounters>,
}

impl ReportSender {
    /// Tells control; where there is no room it is dropped and counted.
    pub fn send(&self, heard: Heard) {
        if self.queue.try_send(heard).is_err() {
            self.process.feedback.dropped.add(1);
        }
    }
}

/// Control's ends.
#[derive(Debug)]
pub struct Inputs {
    /// What was heard.
    pub heard: mpsc::Receiver<Heard>,
    /// The way to the agents; `None`: nobody listens to any.
    pub orders: Option<AgentOrders>,
    process: Arc<ProcessCounters>,
}

impl Inputs {
    /// Ends that nobody is at: nothing is heard, and no order arrives.
    pub fn none(process: &Arc<ProcessCounters>) -> Self {
        queue(process).0
    }

    /// Sends an order to a server's agent, if anything has been heard of that. It may be lost: whoever needs an answer asks again.
    pub fn order(&self, slot: ServerSlot, order: AgentOrder) {
        let Some(orders) = &self.orders else { return };
        if orders.try_send((slot, order)).is_err() {
            self.process.feedback.orders_failed.add(1);
        }
    }
}

/// Control's end of what is heard, and the others'.
fn queue(process: &Arc<ProcessCounters>) -> (Inputs, ReportSender) {
    let (reports, heard) = mpsc::channel(REPORTS_MAX);
    let sender = ReportSender { queue: reports, process: Arc::clone(process) };
    (Inputs { heard, orders: None, process: Arc::clone(process) }, sender)
}

/// What is opened before the process becomes another user: the socket for reports, and the key that they are held against.
#[derive(Debug, Default)]
pub struct OpenInputs {
    feedback: Option<(BoundSocket, MasterKey)>,
}

impl OpenInputs {
    /// Opens what the configuration asks for.
    ///
    /// # Errors
    /// [`OpenError`] where the socket can't be bound.
    pub fn open(config: &Config, master: Option<MasterKey>) -> Result<Self, OpenError> {
        let feedback = match config.feedback.as_ref().zip(master) {
            Some((feedback, master)) => Some((BoundSocket::open(feedback)?, master)),
            None => None,
        };
        Ok(Self { feedback })
    }

    /// Starts the threads that listen and ask, as far as the configuration wants any. Servers that are asked what they say are
    /// asked from then on.
    ///
    /// # Errors
    /// Where a thread or its runtime can't be made.
    pub fn start(self, store: &Arc<SnapshotStore>) -> io::Result<(Inputs, InputThreads)> {
        let (mut inputs, reports) = queue(store.process());
        let mut threads = InputThreads::default();
        if let Some((socket, master)) = self.feedback {
            let local = socket.local;
            let (orders, ordered) = agent_orders();
            inputs.orders = Some(orders);
            threads.add("feedback", |stop| {
                feedback::start(socket, master, Arc::clone(store), reports.clone(), ordered, stop)
            })?;
            tracing::info!("agents may report to {local}");
        }
        let asks = store.load().config.pools.iter().any(|pool| pool.agent_check.is_some());
        if asks {
            threads.add("agent-check", |stop| agent_check::start(Arc::clone(store), reports, stop))?;
        }
        Ok((inputs, threads))
    }
}

/// The threads; they end when this is dropped.
#[derive(Debug, Default)]
pub struct InputThreads(Vec<InputThread>);

#[derive(Debug)]
struct InputThread {
    name: &'static str,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl InputThreads {
    fn add(
        &mut self,
        name: &'static str,
        start: impl FnOnce(oneshot::Receiver<()>) -> io::Result<JoinHandle<()>>,
    ) -> io::Result<()> {
        let (stop, stopped) = oneshot::channel();
        let thread = Some(start(stopped)?);
        self.0.push(InputThread { name, stop: Some(stop), thread });
        Ok(())
    }

    /// The name of one that has ended. Unless this is being dropped, something is wrong.
    pub fn finished(&self) -> Option<&'static str> {
        let is_finished = |thread: &&InputThread| thread.thread.as_ref().is_some_and(JoinHandle::is_finished);
        self.0.iter().find(is_finished).map(|thread| thread.name)
    }
}

impl Drop for InputThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that ended in a panic is ended too.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_and_nobody_waits() {
        let process = Arc::<ProcessCounters>::default();
        let (mut inputs, reports) = queue(&process);
        for _ in 0..REPORTS_MAX + 3 {
            let report = Report::default();
            reports.send(Heard { slot: ServerSlot(1), source: Source::Agent, report, restart: None });
        }
        assert_eq!((process.feedback.dropped.get(), process.feedback.lost()), (3, 3));
        let (orders, mut ordered) = agent_orders();
        inputs.orders = Some(orders);
        inputs.order(ServerSlot(1), AgentOrder::Question);
        assert_eq!(ordered.try_recv(), Ok((ServerSlot(1), AgentOrder::Question)));
        drop(ordered);
        inputs.order(ServerSlot(1), AgentOrder::Question);
        assert_eq!(process.feedback.orders_failed.get(), 1);
    }

    #[test]
    fn where_nobody_speaks_nothing_is_heard() {
        let mut inputs = Inputs::none(&Arc::default());
        assert!(inputs.heard.try_recv().is_err());
        inputs.order(ServerSlot(0), AgentOrder::Question);
    }
}
