//! What becomes of a request: the rule that catches it, where it goes, what changes. The exchange and `explain` decide here,
//! by the same code; only the trace differs.

use std::sync::Arc;

use crate::base::id::PoolIndex;
use crate::base::rng::Rng;
use crate::pure::forwarding::FieldEdits;
use crate::pure::rule::captures::Captures;
use crate::pure::rule::change::{UnsafeTarget, Values, location, rewritten_target};
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

/// What a decision depends on besides the rules.
#[derive(Debug)]
pub struct Question<'a> {
    /// The request.
    pub view: &'a RequestView<'a>,
    /// `http` or `https`, as the client speaks.
    pub scheme: &'static str,
    /// For splits without a key.
    pub rng: &'a mut Rng,
}

/// Decides. `None`: no rule matches.
///
/// # Errors
/// [`UnsafeTarget`] where a rewritten path would be ambiguous.
pub fn decide(
    rules: &RuleSet,
    question: Question<'_>,
    captures: &mut Captures,
    changed: &mut Changed,
    trace: &mut Trace,
) -> Result<Option<(Arc<Rule>, Destination)>, UnsafeTarget> {
    let Question { view, scheme, rng } = question;
    let Some(found) = rules.find(view, captures, trace) else { return Ok(None) };
    let rule = Arc::clone(found.rule);
    let values = Values { request: view, captures, scheme };
    changed.request.set(&rule, false, &values);
    changed.response.set(&rule, true, &values);
    let destination = match &rule.action {
        Action::Use(pool) => Destination::Pool(*pool),
        Action::Split { key, arms } => {
            let hash = key.as_ref().and_then(|key| hash_key(key, view, captures));
            let Some(pool) = choose_arm(arms, hash, rng) else { return Ok(None) };
            trace.note("rule", || match hash {
                Some(_) => "the split's key chooses the pool".to_owned(),
                None => "the split chooses the pool at random, by weight".to_owned(),
            });
            Destination::Pool(pool)
        }
        Action::Redirect { location: template, status } => {
            location(template, &values, &mut changed.target);
            Destination::Redirect(*status)
        }
        Action::Respond { status, .. } => Destination::Respond(*status),
    };
    if matches!(destination, Destination::Pool(_)) {
        changed.is_rewritten = rewritten_target(&rule.changes, &values, &mut changed.target)?;
        if changed.is_rewritten {
            trace.note("change", || format!("the target becomes {}", String::from_utf8_lossy(&changed.target)));
        }
    }
    Ok(Some((rule, destination)))
}
