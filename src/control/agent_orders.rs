//! Orders for agents, on their way to whoever sends them: bounded, and never waited for. It refuses to know how they travel.

use tokio::sync::mpsc;

use crate::base::id::ServerSlot;
use crate::pure::recovery::StepId;

/// The most orders that wait.
pub const AGENT_ORDERS_MAX: usize = 256;

/// What an agent can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentOrder {
    /// Report now.
    Question,
    /// Restart the service, for that step of its recovery. It is sent again until there is news of it, or the step's time is over.
    Restart(StepId),
}

/// Takes orders for agents.
pub type AgentOrders = mpsc::Sender<(ServerSlot, AgentOrder)>;

/// Where orders are given, and where they come out.
pub fn agent_orders() -> (AgentOrders, mpsc::Receiver<(ServerSlot, AgentOrder)>) {
    mpsc::channel(AGENT_ORDERS_MAX)
}
