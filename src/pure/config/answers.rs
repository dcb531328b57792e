//! `passive ..` and `orca ..`: what a pool reads off its servers' answers beside passing them on. It refuses to say what follows
//! from that: control does.

use super::node::Node;
use super::problem::{Problem, Problems};
use crate::pure::pool::{Orca, Passive};

/// What counts against a server of that pool, besides what always does.
pub(super) fn passive(pool: Node<'_>, problems: &mut Problems) -> Passive {
    let Some(node) = pool.child("passive") else { return Passive::default() };
    let Some(value) = node.setting("status") else {
        let problem = Problem::at(&node.place(), "this `passive` says nothing").label("no `status`");
        problems
            .add(problem.help("connections that fail count anyway; write passive status=\"500 503\", or leave it out"));
        return Passive::default();
    };
    let Some(text) = value.text() else { return Passive::default() };
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

#[cfg(test)]
mod tests {
    use crate::pure::config::load_text;

    fn refused(settings: &str) -> String {
        let server = "server \"a\" \"127.0.0.1:2\"";
        let text = format!("listen \"127.0.0.1:1\"\npool \"p\" {{ {server}; {settings} }}\nrule use=\"p\"");
        load_text(&text).err().map(|errors| errors.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_passive_that_says_nothing_is_refused() {
        assert!(refused("passive").contains("this `passive` says nothing"));
        assert_eq!(refused("passive status=\"503\""), "");
    }

    #[test]
    fn a_dry_run_of_no_feedback_is_refused() {
        let is_refused = |settings: &str| refused(settings).contains("nothing in this pool follows");
        assert!(is_refused("feedback-dry-run #true"));
        assert!(!is_refused("feedback-dry-run #true; feedback \"capacity\""));
        assert!(!is_refused("feedback-dry-run #true; scheduler \"fb-wlc\""));
    }

    #[test]
    fn a_name_that_turns_the_order_of_letters_is_refused() {
        for name in ["a\u{202e}b", "\u{2066}a", "a\u{200f}"] {
            let text =
                format!("listen \"127.0.0.1:1\"\npool \"p\" {{ server \"{name}\" \"127.0.0.1:2\" }}\nrule use=\"p\"");
            assert!(load_text(&text).is_err(), "{name:?}");
        }
    }
}
