//! The checks that run: each a task of its own, whose result goes to the control loop. What keeps us from making them is said
//! now and then.
//!
//! It refuses to decide when, and how many at once: the control core does ([`crate::pure::control::CHECKS_MAX`]).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::base::id::ServerSlot;
use crate::control::probe::{self, ProbeError};
use crate::pure::control::{CHECKS_MAX, Check, CheckFailure, CheckId};
use crate::pure::pool::Pool;
use crate::shared::endpoint::Endpoint;
use crate::shared::spaced::Spaced;
use crate::transport::tls::{Connectors, with_own_sessions};

/// A check that has ended.
pub type CheckResult = (CheckId, ServerSlot, Result<Duration, CheckFailure>);

/// Where checks begin.
#[derive(Debug)]
pub struct Checks {
    connectors: Connectors,
    ended: mpsc::Sender<CheckResult>,
    /// When it was last said that one could not be made.
    not_run: Rc<Spaced>,
}

impl Checks {
    /// Checks of servers with which these connectors shake hands, and where their results come out.
    pub fn new(connectors: &Connectors) -> (Self, mpsc::Receiver<CheckResult>) {
        let (ended, results) = mpsc::channel(CHECKS_MAX);
        // Requests must not wait for us at a memory of sessions.
        (Self { connectors: with_own_sessions(connectors), ended, not_run: Rc::default() }, results)
    }

    /// Begins a check of a server as its pool has it. It must be called on a local runtime.
    pub fn begin(&self, check: Check, endpoint: Arc<Endpoint>, pool: Arc<Pool>) {
        let connector = self.connectors.get(&pool.name).cloned();
        let (ended, not_run) = (self.ended.clone(), Rc::clone(&self.not_run));
        tokio::task::spawn_local(async move {
            let result = probe::check(&endpoint, &pool, connector.as_ref(), check.timeout).await;
            if let Err(ProbeError::NotRun(cause)) = &result
                && not_run.is_due()
            {
                tracing::warn!("a check of {} could not be run: {cause}", endpoint.server.id);
            }
            let result = result.map_err(|error| error.as_failure());
            // Nobody waits for it where control has been stopped.
            let _ = ended.send((check.id, check.server, result)).await;
        });
    }
}
