//! The fields that tell servers who a client is by its certificate: no client may send one of its own making.
//!
//! A field that one rule fills from a certificate is taken off the requests of all rules that pass requests on, for their
//! servers may be the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::pure::rule::{Action, FieldChange, Rule};

/// Lets every rule that passes requests on take those fields away which any of them fills from a certificate.
pub(super) fn guard(rules: &mut [Arc<Rule>]) {
    let told = |change: &FieldChange| match change {
        FieldChange::Set(name, value) if value.tells_identity() => Some(name.to_ascii_lowercase()),
        FieldChange::Set(..) | FieldChange::Add(..) | FieldChange::Remove(_) => None,
    };
    let names: BTreeSet<String> = rules.iter().flat_map(|rule| &rule.changes.request).filter_map(told).collect();
    if names.is_empty() {
        return;
    }
    for rule in rules {
        if matches!(rule.action, Action::Redirect { .. } | Action::Respond { .. }) {
            continue;
        }
        // First of all: what the rule itself brings comes after it.
        let removals = names.iter().map(|name| FieldChange::Remove(name.clone()));
        Arc::make_mut(rule).changes.request.splice(0..0, removals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::config::load_text;

    fn changes(rules: &str) -> Vec<Vec<String>> {
        let text = format!("listen \"127.0.0.1:80\"\npool \"p\" {{ server \"s\" \"127.0.0.1:1\"; }}\n{rules}\n");
        let shown = |change: &FieldChange| match change {
            FieldChange::Set(name, _) => format!("set {name}"),
            FieldChange::Add(name, _) => format!("add {name}"),
            FieldChange::Remove(name) => format!("remove {name}"),
        };
        let config = load_text(&text).unwrap();
        config.rules.iter().map(|rule| rule.changes.request.iter().map(shown).collect()).collect()
    }

    #[test]
    fn every_rule_that_passes_requests_on_takes_them_away_first() {
        let rules = "rule path=\"/a\" use=\"p\" { set-request-header \"X-Who\" \"subject {client-subject}\"; }\n\
                     rule path=\"/b\" use=\"p\" { add-request-header \"x-who\" \"b\"; }\n\
                     rule path=\"/c\" use=\"p\"\nrule respond=404";
        let expected =
            [vec!["remove x-who", "set X-Who"], vec!["remove x-who", "add x-who"], vec!["remove x-who"], vec![]];
        assert_eq!(changes(rules), expected);
    }

    #[test]
    fn without_such_a_field_nothing_changes() {
        assert_eq!(changes("rule use=\"p\" { set-request-header \"X-Path\" \"{path}\"; }"), [["set X-Path"]]);
    }

    #[test]
    fn a_field_of_a_certificate_does_not_stand_beside_others() {
        let text = "listen \"127.0.0.1:80\"\npool \"p\" { server \"s\" \"127.0.0.1:1\"; }\n\
                    rule use=\"p\" { add-request-header \"X-Who\" \"{client-fingerprint}\"; }";
        let errors = load_text(text).unwrap_err();
        assert!(errors.to_string().contains("a client could send this field too"), "{errors}");
    }
}
