//! What the core knows of a server, for those who ask: a copy that nothing hangs on.

use super::Control;
use super::evidence::{Evidence, Sign};
use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;
use crate::pure::feedback::weights::Rating;
use crate::pure::pool::{Share, State};

/// What is known of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    /// Its state.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// What made it so.
    pub because: Sign,
    /// What was seen of it, the latest last.
    pub evidence: Vec<Evidence>,
    /// What its reports say, where any came.
    pub feedback: Option<FeedbackView>,
}

/// What is made of a server's reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedbackView {
    /// When the last came.
    pub heard: Timestamp,
    /// φ: the doubt that its agent still speaks; `None`: it promises nothing.
    pub doubt: Option<f64>,
    /// The paper's counter.
    pub counter: u32,
    /// How it is rated in its pool; `None`: it has said nothing to rate it by, or its pool does not follow.
    pub rating: Option<Rating>,
    /// The share that its reports led to; `None`: the configured one.
    pub share: Option<Share>,
    /// The part of each way that the share goes.
    pub gain: f64,
    /// Whether that share is only shown.
    pub is_dry_run: bool,
}

impl Control {
    /// What is known of a server; `None`: it is not configured.
    pub fn view(&self, slot: ServerSlot, now: Timestamp) -> Option<ServerView> {
        let watch = self.servers.get(&slot)?;
        let feedback = watch.voices.heard().map(|heard| FeedbackView {
            heard,
            doubt: watch.voices.promises().map(|promises| promises.doubt(now, self.guard.factor()).max(0.0)),
            counter: watch.voices.counter(),
            rating: watch.influence.rating(),
            share: watch.influence.share(),
            gain: watch.influence.gain(),
            is_dry_run: watch.is_dry_run,
        });
        let evidence = watch.evidence().copied().collect();
        Some(ServerView {
            state: watch.state(),
            since: watch.state_since(),
            because: watch.because(),
            evidence,
            feedback,
        })
    }
}
