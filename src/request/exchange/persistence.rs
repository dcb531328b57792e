//! The persistence step of an exchange: whom the client belongs to before a server is chosen, what is remembered after that, and
//! the cookie that goes out with the answer. Only requests to pools with `persist` come here.

use std::sync::Arc;

use crate::base::id::{PoolIndex, ServerSlot};
use crate::base::time::Timestamp;
use crate::pure::decision::Seen;
use crate::pure::head::Fields;
use crate::pure::persistence::cookie::{push_set_cookie, set_value, strip_cookie};
use crate::pure::persistence::token::ServerTag;
use crate::pure::persistence::{Claim, CookieForm, Persistence, Shown, learned_key, read_claim};
use crate::pure::pool::Pool;
use crate::request::connection::Connection;
use crate::request::worker::Worker;
use crate::shared::choices::{Own, Settled};
use crate::shared::counters::PoolRecord;
use crate::shared::lease::Lease;
use crate::shared::snapshot::PoolSnapshot;

/// How often a choice that another request has made meanwhile is followed.
const ROUNDS_MAX: u32 = 4;

/// What an exchange knows of whom its client belongs to.
#[derive(Debug)]
pub struct Persisting {
    persistence: Arc<Persistence>,
    /// Where the pool stood when the request came.
    index: PoolIndex,
    record: Arc<PoolRecord>,
    claim: Claim,
    /// Whether this exchange has made the client's choice, and no server has answered since.
    is_new: bool,
    /// How many choices of other requests were followed.
    rounds: u32,
    /// The server that answers, where its client is to be told by a cookie.
    gives: Option<ServerTag>,
    /// The lease's server.
    served: Option<ServerSlot>,
}

impl Persisting {
    /// Notes what the request shows of whom its client belongs to, where the pool keeps anybody; our cookie is taken out of the
    /// head that a server gets, where `pool` hides it.
    #[inline]
    pub fn note(
        noted: &mut Option<Self>,
        connection: &Connection,
        seen: &Seen<'_>,
        (index, pool): (PoolIndex, &PoolSnapshot),
        head: &mut Vec<u8>,
    ) {
        let Some(persistence) = &pool.pool.persistence else { return };
        if let Some(form) = persistence.cookie.as_ref().filter(|form| form.hide) {
            strip_cookie(head, 0, &form.name);
        }
        *noted = Some(Self::begin(connection, seen, (index, pool), persistence));
    }

    fn begin(
        connection: &Connection,
        seen: &Seen<'_>,
        (index, pool): (PoolIndex, &PoolSnapshot),
        persistence: &Arc<Persistence>,
    ) -> Self {
        let shared = &*connection.worker.shared;
        let now = connection.worker.unix_time();
        let shown = Shown {
            fields: seen.fields,
            raw_path: seen.raw_path,
            client: seen.client,
            session: connection.stream.session_identity(),
        };
        let open = |token: &[u8]| {
            let (sealer, form) = (shared.sealer.as_ref()?, persistence.cookie.as_ref()?);
            let mut opened = connection.worker.opened.borrow_mut();
            opened.get_or(persistence.pool, token, || sealer.open(persistence.pool, token, now, form.ttl))
        };
        Self {
            claim: read_claim(persistence, &shown, &pool.candidates, now, shared.choices_seed, open),
            persistence: Arc::clone(persistence),
            index,
            record: Arc::clone(&pool.record),
            is_new: false,
            rounds: 0,
            gives: None,
            served: None,
        }
    }

    /// The server that the client belongs to, as far as is known now.
    pub fn own(&self, now: Timestamp) -> Option<Own> {
        self.record.choices().own(&self.claim, now)
    }

    /// Settles where the client belongs, now that a place at a server was taken.
    ///
    /// # Errors
    /// The server that another request of the same client has been assigned to meanwhile: it is to be asked for.
    pub fn settle(
        &mut self,
        worker: &Worker,
        pool: &Pool,
        own: Option<Own>,
        lease: &Lease,
        now: Timestamp,
    ) -> Result<(), Own> {
        let endpoint = lease.endpoint();
        let served = endpoint.record.slot;
        let is_own = own.is_some_and(|own| own.slot == served);
        let state = own.filter(|_| !is_own).and_then(|own| {
            worker.admission.snapshot(|snapshot| {
                let pool = snapshot.pool(snapshot.find_again(self.index, &pool.name)?)?;
                pool.candidate_of(own.slot).map(|(_, candidate)| candidate.state)
            })
        });
        let settled = self.record.choices().settle(&self.claim, own, served, state, self.is_new, now);
        self.served = Some(served);
        self.gives = None;
        match settled {
            Settled::Stays => {}
            Settled::Elsewhere(other) if self.rounds < ROUNDS_MAX => {
                self.rounds += 1;
                return Err(other);
            }
            Settled::Elsewhere(_) => {}
            Settled::Belongs => {
                self.is_new |= !is_own;
                let is_told = self.claim.cookie.is_some_and(|(slot, is_due)| slot == served && !is_due);
                let gives = self.persistence.cookie.is_some() && !is_told;
                self.gives = gives.then(|| ServerTag::of(&endpoint.server.id.server));
            }
        }
        Ok(())
    }

    /// Learns from the head of the server's answer, and puts our cookie behind the head that `out` ends with.
    pub fn answer(&self, connection: &Connection, answer: Fields<'_>, out: &mut Vec<u8>) {
        let worker = &connection.worker;
        if let (Some(form), Some(served)) = (&self.persistence.learn, self.served)
            && let Some(value) = set_value(answer, &form.name)
        {
            self.record.choices().set(learned_key(form, value, worker.shared.choices_seed), served, worker.now());
        }
        if let (Some(form), Some(server)) = (&self.persistence.cookie, self.gives) {
            self.give(worker, form, server, out, connection.stream.tls_version().is_some());
        }
    }

    fn give(&self, worker: &Worker, form: &CookieForm, server: ServerTag, out: &mut Vec<u8>, is_tls: bool) {
        let now = worker.unix_time();
        let token = worker.shared.sealer.as_ref().and_then(|sealer| sealer.seal(self.persistence.pool, server, now));
        let Some(token) = token else { return };
        // Before the empty line.
        out.truncate(out.len().saturating_sub(2));
        push_set_cookie(out, form, &token, is_tls);
        out.extend_from_slice(b"\r\n");
    }
}
