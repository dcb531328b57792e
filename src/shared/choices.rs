//! Which server the clients of a pool belong to, where a table has to remember it: a bounded table that all workers share.
//!
//! A choice is kept for its form's `ttl` after it was last asked for. The first choice for a client is made once: of two
//! requests that come at the same moment, the later one learns of the other's server and goes there. The table belongs to the
//! pool's name and survives a reload; it refuses to outlive the process.

use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::key_table::{KeyTable, Usage};
use crate::pure::persistence::{Claim, Form, Key, is_moved};
use crate::pure::pool::State;

/// The most choices that a pool remembers, of all forms together: about 24 MiB when it is full.
pub const CHOICES_MAX: usize = 262_144;

/// A table of choices.
#[derive(Debug)]
pub struct Choices {
    table: KeyTable<Choice>,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    server: ServerSlot,
    until: Timestamp,
}

impl Default for Choices {
    fn default() -> Self {
        Self::with_capacity(CHOICES_MAX)
    }
}

/// The server that a client belongs to, and what says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The server.
    pub slot: ServerSlot,
    /// What says so.
    pub form: Form,
}

/// What became of the choice of a request that got a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The client stays where it belongs: nothing is recorded.
    Stays,
    /// The client belongs to the server that it got, from now on or as before.
    Belongs,
    /// Another request has made the choice meanwhile: its server is to be asked for.
    Elsewhere(Own),
}

impl Choices {
    /// A table of at most `capacity` choices, rounded up to a multiple of 64.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { table: KeyTable::new(capacity) }
    }

    /// The server that a client belongs to; its choice is kept for another `ttl`.
    pub fn look_up(&self, key: Key, now: Timestamp) -> Option<ServerSlot> {
        let found = self.table.part(key.hash, |table| {
            let choice = table.touch(key.hash).filter(|choice| choice.until > now)?;
            choice.until = now + key.ttl;
            Some(choice.server)
        });
        found.flatten()
    }

    /// Assigns a client to `server`, unless another choice than `before` has been made: that is given back then.
    ///
    /// # Errors
    /// The server that the client belongs to.
    pub fn assign(
        &self,
        key: Key,
        before: Option<ServerSlot>,
        server: ServerSlot,
        now: Timestamp,
    ) -> Result<(), ServerSlot> {
        let assigned = self.table.part(key.hash, |table| {
            let known = table.get_mut(key.hash).filter(|choice| choice.until > now).map(|choice| choice.server);
            match known {
                Some(other) if Some(other) != before && other != server => Err(other),
                Some(_) | None => {
                    table.insert(key.hash, Choice { server, until: now + key.ttl }, |choice| choice.until <= now);
                    Ok(())
                }
            }
        });
        assigned.unwrap_or(Ok(()))
    }

    /// Assigns a client to `server`, whatever was chosen before.
    pub fn set(&self, key: Key, server: ServerSlot, now: Timestamp) {
        self.table.part(key.hash, |table| {
            table.insert(key.hash, Choice { server, until: now + key.ttl }, |choice| choice.until <= now);
        });
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        self.table.usage()
    }

    /// The server that a request's client belongs to, as far as is known.
    pub fn own(&self, claim: &Claim, now: Timestamp) -> Option<Own> {
        if let Some((slot, _)) = claim.cookie {
            return Some(Own { slot, form: Form::Cookie });
        }
        Form::TABLED.into_iter().find_map(|form| {
            let known = claim.key(form).and_then(|key| self.look_up(key, now));
            let home = claim.session_home.filter(|_| form == Form::TlsSession);
            known.or(home).map(|slot| Own { slot, form })
        })
    }

    /// Settles where a client belongs whose request got the server `served`; `own` is where it belonged, and `state` what that
    /// server is in now. `is_new`: this very request had made that choice, and no server has answered since.
    pub fn settle(
        &self,
        claim: &Claim,
        own: Option<Own>,
        served: ServerSlot,
        state: Option<State>,
        is_new: bool,
        now: Timestamp,
    ) -> Settled {
        let is_served = own.is_some_and(|own| own.slot == served);
        if own.is_some() && !is_served && !is_new && !is_moved(state) {
            return Settled::Stays;
        }
        // What comes before the form that knew the client did not know it; what comes behind is not asked.
        let last = own.filter(|_| !is_new).map_or(Form::Source, |own| own.form);
        if last == Form::Cookie {
            return Settled::Belongs;
        }
        let mut is_first = true;
        for form in Form::TABLED.into_iter().filter(|form| *form <= last) {
            let Some(key) = claim.key(form) else { continue };
            // Where all nodes would send the client there is nothing to remember.
            let is_home = form == Form::TlsSession && claim.session_home == Some(served);
            let is_known = is_served && (form == last || is_home);
            if is_known || is_home && own.is_none() {
                continue;
            }
            let assigned = self.assign(key, own.map(|own| own.slot), served, now);
            if let Err(slot) = assigned
                && is_first
            {
                return Settled::Elsewhere(Own { slot, form });
            }
            is_first = false;
        }
        Settled::Belongs
    }
}

#[cfg(test)]
mod tests;
