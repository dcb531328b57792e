//! Recovery's steps, taken: each by itself, off the control loop, within its timeout, and its end is always told.
//!
//! It decides nothing, and nothing here ever waits for the control loop or makes it wait. Passwords are never on a command
//! line and never in a log.

mod ipmi;
mod wake;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::control::agent_orders::{AgentOrder, AgentOrders};
use crate::control::passwords::Passwords;
use crate::control::probe::{self, ProbeError};
use crate::pure::feedback::wire::RestartProgress;
use crate::pure::pool::{Address, Pool};
use crate::pure::recovery::plan::{Machine, Plan};
use crate::pure::recovery::{RUNS_MAX, Step, StepFailure, StepId};
use crate::shared::endpoint::Endpoint;
use crate::transport::tls::{Connectors, TlsConnector, with_own_sessions};

/// How often a machine is asked before it is taken for dead, and how long each answer has.
const PINGS: u32 = 3;
const PING_TIMEOUT: Duration = Duration::from_millis(600);

/// How a step ended.
pub(super) type StepResult = (StepId, Result<(), StepFailure>);

/// For whom a step is taken.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The server.
    pub(super) endpoint: Arc<Endpoint>,
    /// Its pool.
    pub(super) pool: Arc<Pool>,
    /// What its pool allows.
    pub(super) plan: Arc<Plan>,
    /// What is known of its machine.
    pub(super) machine: Option<Machine>,
}

/// Takes steps.
#[derive(Debug)]
pub(super) struct Steps {
    passwords: Passwords,
    orders: Option<AgentOrders>,
    /// How checks shake hands.
    connectors: Connectors,
    /// What calls power cycles off that have not switched anything yet.
    switching: Vec<(StepId, Arc<AtomicBool>)>,
    /// Where agents' news of restarts go.
    restarting: BTreeMap<StepId, watch::Sender<Option<RestartProgress>>>,
    done: mpsc::Sender<StepResult>,
}

impl Steps {
    /// Takers of steps, and where their ends come out. Without `orders` no agent can be told anything.
    pub(super) fn new(
        passwords: Passwords,
        orders: Option<AgentOrders>,
        connectors: &Connectors,
    ) -> (Self, mpsc::Receiver<StepResult>) {
        // One step of each machine that is worked on, and those that ended too late.
        let (done, results) = mpsc::channel(RUNS_MAX * 2);
        let (switching, restarting) = (Vec::new(), BTreeMap::new());
        (Self { passwords, orders, connectors: with_own_sessions(connectors), switching, restarting, done }, results)
    }

    /// Takes these passwords from now on.
    pub(super) fn learn(&mut self, passwords: Passwords) {
        self.passwords = passwords;
    }

    /// Begins a step; its end comes as a result. It must be called on a local runtime.
    pub(super) fn begin(&mut self, id: StepId, step: Step, target: Target) {
        let (done, timeout) = (self.done.clone(), step.timeout());
        match step {
            Step::PowerCycle => {
                let order = ipmi::Order::new(&target, &self.passwords, timeout);
                self.switching.retain(|(_, flag)| Arc::strong_count(flag) > 1);
                self.switching.extend(order.iter().map(|order| (id, order.call_off())));
                // A thread of its own: programs are waited for. It ends with its timeout.
                let work = move || {
                    let result = order.and_then(|order| order.power_cycle());
                    let _ = done.blocking_send((id, result));
                };
                if let Err(error) = std::thread::Builder::new().name("ipmi".to_owned()).spawn(work) {
                    self.tell(id, Err(StepFailure::NotDone(format!("no thread for it: {error}"))));
                }
            }
            Step::AgentRestart => match self.order_restart(id, &target) {
                Ok(news) => {
                    tokio::task::spawn_local(async move {
                        let _ = done.send((id, restarted(news, timeout).await)).await;
                    });
                }
                Err(failure) => self.tell(id, Err(failure)),
            },
            Step::Ping | Step::WakeOnLan | Step::Check => {
                let connector = self.connectors.get(&target.pool.name).cloned();
                tokio::task::spawn_local(async move {
                    let late = |_| Err(StepFailure::No("no answer in time".to_owned()));
                    let result = tokio::time::timeout(timeout, take(step, &target, connector.as_ref()))
                        .await
                        .unwrap_or_else(late);
                    // Nobody waits for it where control has been stopped.
                    let _ = done.send((id, result)).await;
                });
            }
        }
    }

    /// Calls those power cycles off that are not wanted any more, as long as nothing was switched.
    pub(super) fn call_off(&self, is_wanted: impl Fn(StepId) -> bool) {
        for (_, flag) in self.switching.iter().filter(|(id, _)| !is_wanted(*id)) {
            flag.store(true, Ordering::Release);
        }
    }

    /// An agent says how the restart of that step goes. Of one that has ended it says nothing new.
    pub(super) fn restart_news(&self, id: StepId, progress: RestartProgress) {
        if let Some(step) = self.restarting.get(&id) {
            step.send_replace(Some(progress));
        }
    }

    /// Orders a restart; what its agent says of it comes out.
    fn order_restart(
        &mut self,
        id: StepId,
        target: &Target,
    ) -> Result<watch::Receiver<Option<RestartProgress>>, StepFailure> {
        let not_done = |why: &str| StepFailure::NotDone(why.to_owned());
        let orders =
            self.orders.as_ref().ok_or_else(|| not_done("there is no `feedback` through which agents are told"))?;
        orders.try_send((target.endpoint.record.slot, AgentOrder::Restart(id))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => not_done("too many orders wait"),
            mpsc::error::TrySendError::Closed(_) => not_done("nobody takes orders for agents"),
        })?;
        let (step, news) = watch::channel(None);
        self.restarting.retain(|_, step| !step.is_closed());
        self.restarting.insert(id, step);
        Ok(news)
    }

    /// Tells how a step ended.
    pub(super) fn tell(&self, id: StepId, result: Result<(), StepFailure>) {
        // Where as many wait as can, the step is given up for lost in a while.
        let _ = self.done.try_send((id, result));
    }
}

/// Waits for the end of a restart that was ordered. One that its agent is still at when the time is over has been done as far as
/// it goes: whether it helped is seen at the service itself.
async fn restarted(mut news: watch::Receiver<Option<RestartProgress>>, timeout: Duration) -> Result<(), StepFailure> {
    let is_end = |news: &Option<RestartProgress>| news.is_some_and(|news| news != RestartProgress::Running);
    // Whether it ended, the time is over, or nobody can tell any more: what was said last counts.
    let _ = tokio::time::timeout(timeout, news.wait_for(is_end)).await;
    let last = *news.borrow();
    match last {
        Some(RestartProgress::Done | RestartProgress::Running) => Ok(()),
        Some(RestartProgress::Failed) => Err(StepFailure::No("its agent could not restart it".to_owned())),
        Some(RestartProgress::Refused) => {
            let why = "its agent has no command for it, is at one already, or its service is in maintenance";
            Err(StepFailure::NotDone(why.to_owned()))
        }
        None => Err(StepFailure::NotDone("its agent does not answer the order".to_owned())),
    }
}

async fn take(step: Step, target: &Target, connector: Option<&TlsConnector>) -> Result<(), StepFailure> {
    match step {
        Step::Ping => ping(&target.endpoint).await,
        Step::WakeOnLan => {
            let mac = target.machine.as_ref().and_then(|machine| machine.mac);
            match mac.zip(target.plan.wake_on_lan) {
                Some((mac, to)) => wake::wake(mac, to).await,
                None => Err(StepFailure::NotDone("nothing says how its machine is woken".to_owned())),
            }
        }
        Step::Check => {
            let checked = probe::check(&target.endpoint, &target.pool, connector, step.timeout()).await;
            checked.map(drop).map_err(failure)
        }
        Step::AgentRestart | Step::PowerCycle => Err(StepFailure::NotDone("taken elsewhere".to_owned())),
    }
}

/// Asks a server's machine, more than once: packets get lost.
async fn ping(endpoint: &Endpoint) -> Result<(), StepFailure> {
    if matches!(endpoint.server.address, Address::Unix(_)) {
        // It is this machine.
        return Ok(());
    }
    for _ in 1..PINGS {
        if let Ok(()) = probe::ping(endpoint, PING_TIMEOUT).await {
            return Ok(());
        }
    }
    probe::ping(endpoint, PING_TIMEOUT).await.map_err(failure)
}

fn failure(error: ProbeError) -> StepFailure {
    match error {
        ProbeError::Failed(failure) => StepFailure::No(failure.to_string()),
        ProbeError::NotRun(cause) => StepFailure::NotDone(cause.to_string()),
    }
}

#[cfg(test)]
mod tests;
