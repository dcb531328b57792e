//! The persistence step of a rehearsal: what the request shows of whom its client belongs to, and a note for each form of the
//! pool. Tables are those of a start, which are empty; a cookie is opened where the secret can be read here.

use std::cell::Cell;

use crate::base::id::ServerSlot;
use crate::base::time::{Timestamp, UnixTime, wall_clock};
use crate::operator::secret::{Secret, SecretError};
use crate::pure::persistence::cookie::values;
use crate::pure::persistence::token::Content;
use crate::pure::persistence::{Claim, CookieForm, Form, Persistence, Shown, read_claim};
use crate::pure::trace::Trace;
use crate::shared::choices::Choices;
use crate::shared::cookie_sealer::CookieSealer;
use crate::shared::snapshot::PoolSnapshot;

/// The step in notes.
const STEP: &str = "persistence";

/// What opens the cookies of requests.
#[derive(Debug, Default)]
pub(super) enum Sealing {
    /// Nothing: the rule files name no secret, so that the running proxy has one of its own.
    #[default]
    Unknown,
    /// The secret that the rule files name.
    Known(CookieSealer),
    /// Nothing: that secret can't be read here.
    Unreadable(String),
}

impl Sealing {
    /// That of a secret that was read, or was to be.
    pub(super) fn of(secret: Result<Secret, SecretError>) -> Self {
        match secret {
            Ok(secret) => Self::Known(CookieSealer::new(secret.bytes())),
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    const fn sealer(&self) -> Option<&CookieSealer> {
        match self {
            Self::Known(sealer) => Some(sealer),
            Self::Unknown | Self::Unreadable(_) => None,
        }
    }
}

/// The server that the client of a request to `pool` belongs to, as far as can be known here.
pub(super) fn own(pool: &PoolSnapshot, shown: &Shown<'_>, sealing: &Sealing, trace: &mut Trace) -> Option<ServerSlot> {
    let persistence = pool.pool.persistence.as_ref()?;
    let now = UnixTime::of(wall_clock());
    let is_good = Cell::new(false);
    let open = |token: &[u8]| -> Option<Content> {
        let ttl = persistence.cookie.as_ref()?.ttl;
        let content = sealing.sealer()?.open(persistence.pool, token, now, ttl)?;
        is_good.set(now.0.saturating_sub(content.issued.0) <= ttl.as_secs());
        Some(content)
    };
    let claim = read_claim(persistence, shown, &pool.candidates, now, 0, open);
    if let Some(form) = &persistence.cookie {
        trace.note(STEP, || match claim.cookie {
            None if is_good.get() => {
                let name = &form.name;
                format!(
                    "the cookie {name} names a server that is not in this pool: it counts as absent, and is replaced"
                )
            }
            _ => tell_cookie(form, shown, &claim, pool, sealing),
        });
    }
    tell_tables(persistence, &claim, trace);
    Choices::with_capacity(0).own(&claim, Timestamp::ZERO).map(|own| own.slot)
}

fn tell_cookie(form: &CookieForm, shown: &Shown<'_>, claim: &Claim, pool: &PoolSnapshot, sealing: &Sealing) -> String {
    let name = &form.name;
    if values(shown.fields, name).next().is_none() {
        return format!("the request has no cookie {name}: the answer brings one");
    }
    if let Some((slot, is_due)) = claim.cookie {
        let server = pool.candidate_of(slot);
        let server = server.map(|(_, candidate)| candidate.server.id.server.to_string()).unwrap_or_default();
        let renewed = if is_due { ", is past half its life, and is renewed" } else { "" };
        return format!("the cookie {name} names the server {server}{renewed}");
    }
    match sealing {
        Sealing::Known(_) => {
            format!("the cookie {name} is foreign, forged or expired: it counts as absent, and is replaced")
        }
        Sealing::Unknown => {
            format!("the cookie {name} can't be opened here: without a `secret` a running proxy has one of its own")
        }
        Sealing::Unreadable(why) => format!("the cookie {name} can't be opened here: {why}"),
    }
}

fn tell_tables(persistence: &Persistence, claim: &Claim, trace: &mut Trace) {
    let tell = |trace: &mut Trace, form: Form, what: &dyn Fn() -> String| {
        trace.note(STEP, || match claim.key(form) {
            Some(_) => format!("by {}: a running proxy may know where this client belongs", what()),
            None => format!("by {}, which the request does not have", what()),
        });
    };
    if let Some(learn) = &persistence.learn {
        tell(trace, Form::Learn, &|| format!("the application's cookie {}", learn.name));
    }
    if let Some(header) = &persistence.header {
        tell(trace, Form::Header, &|| format!("the field {}", header.name));
    }
    if persistence.tls_session.is_some() {
        trace.note(STEP, || "by the TLS session: a running proxy draws a server for each by its identity".to_owned());
    }
    if let Some(source) = persistence.source {
        tell(trace, Form::Source, &|| {
            format!("the client's address, {} bits of IPv4 or {} of IPv6", source.mask, source.mask6)
        });
    }
}
