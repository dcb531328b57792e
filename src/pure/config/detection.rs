//! `detect MODE` of a pool: whose rules suspect its servers.

use super::node::Node;
use crate::pure::detection::{DetectMode, Detection};

/// What a pool says of it.
pub(super) fn read(pool: Node<'_>) -> Detection {
    let usual = Detection::default();
    let Some(node) = pool.child("detect") else { return usual };
    Detection {
        mode: match node.argument(0).and_then(|value| value.text()) {
            Some("classic") => DetectMode::Classic,
            // Other words have been reported.
            _ => usual.mode,
        },
        silence: node.setting("silence").and_then(|value| value.switch()).unwrap_or(usual.silence),
    }
}
