//! `passive ..` and `orca ..`: what a pool reads off its servers' answers beside passing them on. It refuses to say what follows
//! from that: control does.

use super::node::Node;
use super::problem::{Problem, Problems};
use crate::pure::pool::{Orca, Passive};

/// What counts against a server of that pool, besides what always does.
pub(super) fn passive(pool: Node<'_>, problems: &mut Problems) -> Passive {
    let setting = pool.child("passive").and_then(|node| node.setting("status"));
    let Some((value, text)) = setting.and_then(|value| Some((value, value.text()?))) else { return Passive::default() };
    let mut statuses = Vec::new();
    for word in text.split_whitespace() {
        match (word, word.parse::<u16>()) {
            ("5xx", _) => statuses.extend(500..=599),
            (_, Ok(status @ 400..=599)) => statuses.push(status),
            (_, Ok(_) | Err(_)) => {
                let problem = Problem::at(&value.place(), format!("\"{word}\" is no status that could be a failure"));
                let problem = problem.label("not this");
                problems.add(problem.help("it takes statuses from 400 to 599 and `5xx`, with spaces between"));
            }
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    Passive { statuses }
}

/// Whether answers of that pool's servers tell of their load.
pub(super) fn orca(pool: Node<'_>) -> Option<Orca> {
    let node = pool.child("orca")?;
    Some(Orca { is_passed_on: node.setting("pass-on").and_then(|value| value.switch()).unwrap_or(false) })
}
