//! What becomes of a request: the rule that catches it, where it goes, what changes. The exchange and `explain` decide here,
//! by the same code; only the trace differs.

use std::sync::Arc;

use crate::base::id::PoolIndex;
use crate::base::rng::Rng;
use crate::pure::forwarding::FieldEdits;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::change::{expand_edits, push_location, rewritten_target};
use crate::pure::rule::compile::RuleSet;
use crate::pure::rule::key::{choose_arm, hash_key};
use crate::pure::rule::{Action, RequestView, Rule};
use crate::pure::trace::Trace;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a pool.
    Pool(PoolIndex),
    /// Elsewhere: the location lies in [`Changed::target`].
    Redirect(u16),
    /// Nowhere: the rule answers.
    Respond(u16),
}

/// What a decision writes down, in memory that is kept from request to request.
#[derive(Debug, Default)]
pub struct Changed {
    /// The rewritten target, or a redirect's location.
    pub target: Vec<u8>,
    /// Whether a rewritten target is there.
    pub is_rewritten: bool,
    /// Changes of the request's fields.
    pub request: FieldEdits,
    /// Changes of the answer's fields.
    pub response: FieldEdits,
}

impl Changed {
    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        self.target.clear();
        self.is_rewritten = false;
        self.request.clear();
        self.response.clear();
    }
}

/// Decides. `None`: no rule matches.
pub fn decide(
    rules: &RuleSet,
    view: &RequestView<'_>,
    captures: &mut Captures,
    changed: &mut Changed,
    rng: &mut Rng,
    trace: &mut Trace,
) -> Option<(Arc<Rule>, Destination)> {
    let rule = Arc::clone(rules.find(view, captures, trace)?.rule);
    let changes = &rule.changes;
    expand_edits(&changes.request, view, captures, &mut changed.request);
    expand_edits(&changes.response, view, captures, &mut changed.response);
    let destination = match &rule.action {
        Action::Use(pool) => Destination::Pool(*pool),
        Action::Split { key, arms } => {
            let hash = key.as_ref().and_then(|key| hash_key(key, view, captures));
            Destination::Pool(choose_arm(arms, hash, rng, trace)?)
        }
        Action::Redirect { location, status } => {
            push_location(location, view, captures, &mut changed.target);
            return Some((Arc::clone(&rule), Destination::Redirect(*status)));
        }
        Action::Respond { status, .. } => Destination::Respond(*status),
    };
    changed.is_rewritten = rewritten_target(changes, view, captures, &mut changed.target);
    if changed.is_rewritten {
        trace.note("change", || format!("the target becomes {}", String::from_utf8_lossy(&changed.target)));
    }
    Some((rule, destination))
}
