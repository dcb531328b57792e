//! The checks that run: each a task of its own, whose result goes to the control loop. What keeps us from making them is said
//! now and then.
//!
//! It refuses to decide when, and how many at once: the control core does ([`crate::pure::control::CHECKS_MAX`]).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::base::id::ServerSlot;
use crate::control::probe::{self, NotRun, ProbeError};
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

    /// Begins a check of a server as its pool has it. It must be called on a local runtime. A server whose name is said not to
    /// exist is absent; one whose name is not known yet can't be asked.
    pub fn begin(&self, check: Check, endpoint: Arc<Endpoint>, pool: Arc<Pool>, is_name_denied: bool) {
        let connector = self.connectors.get(&pool.name).cloned();
        let (ended, not_run) = (self.ended.clone(), Rc::clone(&self.not_run));
        tokio::task::spawn_local(async move {
            let mut result = probe::check(&endpoint, &pool, connector.as_ref(), check.timeout).await;
            if is_name_denied && matches!(result, Err(ProbeError::NotRun(NotRun::Unresolved))) {
                result = Err(ProbeError::Failed(CheckFailure::Absent));
            }
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::TcpListener;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;
    use crate::pure::check::{CheckConfig, CheckKind};
    use crate::pure::pool::{Address, SchedulerConfig, UpstreamTls, Verification};
    use crate::shared::endpoint::tests::endpoint;
    use crate::shared::snapshot::tests::pool_of;
    use crate::transport::tls::{SystemAuthorities, TlsConnector};

    #[test]
    fn a_check_shakes_hands_as_its_own_pool_does_and_its_result_has_its_number() {
        // Whoever is let in waits for a handshake for ever.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Socket(silent.local_addr().unwrap());
        let tls = UpstreamTls { verification: Verification::Insecure, ..UpstreamTls::default() };
        let connector = TlsConnector::new(&tls, &mut SystemAuthorities::default(), &[]).unwrap();
        let connectors = HashMap::from([("known".into(), connector)]);
        let mut pool = Arc::unwrap_or_clone(pool_of("known", SchedulerConfig::default(), &[]));
        pool.upstream.tls = Some(tls);
        pool.check = Some(Arc::new(CheckConfig { kind: CheckKind::Tls, ..CheckConfig::default() }));
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (checks, mut results) = Checks::new(&connectors);
            for (number, name, expected) in [(7, "known", CheckFailure::TimedOut), (8, "other", CheckFailure::NotRun)] {
                pool.name = name.into();
                let timeout = Duration::from_millis(50);
                let check = Check { id: CheckId(number), server: ServerSlot(3), timeout };
                checks.begin(check, Arc::new(endpoint(address.clone(), &[])), Arc::new(pool.clone()), false);
                assert_eq!(results.recv().await.unwrap(), (CheckId(number), ServerSlot(3), Err(expected)));
            }
        });
    }

    #[test]
    fn a_name_that_is_not_resolved_yet_is_no_failure_of_its_server_and_one_that_does_not_exist_is() {
        let mut pool = Arc::unwrap_or_clone(pool_of("p", SchedulerConfig::default(), &[]));
        pool.check = Some(Arc::new(CheckConfig { kind: CheckKind::Tcp, ..CheckConfig::default() }));
        let pool = Arc::new(pool);
        let named = Arc::new(endpoint(Address::Name("a.test".to_owned(), 80), &[]));
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (checks, mut results) = Checks::new(&Connectors::default());
            for (is_denied, expected) in [(false, CheckFailure::NotRun), (true, CheckFailure::Absent)] {
                let check = Check { id: CheckId(1), server: ServerSlot(3), timeout: Duration::from_secs(5) };
                checks.begin(check, Arc::clone(&named), Arc::clone(&pool), is_denied);
                assert_eq!(results.recv().await.unwrap().2, Err(expected));
            }
        });
    }
}
