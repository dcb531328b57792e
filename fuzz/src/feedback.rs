//! What must hold for any datagram of feedback, and for any content that somebody who has the key puts into one.

use aws_lc_rs::hmac;
use pointsman::pure::feedback::keys::{AgentKeys, MasterKey};
use pointsman::pure::feedback::report::{Figures, Use};
use pointsman::pure::feedback::wire::{
    DATAGRAM_MAX, SignedReport, TAG_LENGTH, WireError, open, seal_order, seal_report,
};

/// The input is taken for a whole datagram first, and then for the content of one that is rightly signed. Returns whether the
/// content is a report or an order.
pub fn report(input: &[u8]) -> bool {
    let Some(keys) = MasterKey::from_bytes(&[7; 32]).pair(&"origin/o1".parse().unwrap()) else { return false };
    if let Ok(sealed) = open(input) {
        let name = sealed.name().as_bytes();
        assert!(input.len() <= DATAGRAM_MAX && input[2..].starts_with(name) && usize::from(input[1]) == name.len());
        assert_eq!(sealed.report(keys.report()), Err(WireError::Forged), "nobody has this key");
        assert_eq!(sealed.order(keys.order()), Err(WireError::Forged), "nobody has this key");
    }
    is_report(&keys, input) | is_order(&keys, input)
}

fn is_report(keys: &AgentKeys, content: &[u8]) -> bool {
    let Some(datagram) = signed(keys, content, Which::Report) else { return false };
    let sealed = open(&datagram).unwrap();
    assert_eq!(sealed.order(keys.order()), Err(WireError::Forged), "a report is no order");
    let Ok(read) = sealed.report(keys.report()) else { return false };
    let written = seal_report(keys.server(), keys.report(), &read).unwrap();
    let again = open(&written).unwrap().report(keys.report()).unwrap();
    let figures = (read.report.figures, again.report.figures);
    assert!(is_same(figures.0, figures.1), "{figures:?}");
    let without = |mut message: SignedReport| {
        message.report.figures = Figures::default();
        message
    };
    assert_eq!(without(again), without(read));
    true
}

fn is_order(keys: &AgentKeys, content: &[u8]) -> bool {
    let Some(datagram) = signed(keys, content, Which::Order) else { return false };
    let sealed = open(&datagram).unwrap();
    assert_eq!(sealed.report(keys.report()), Err(WireError::Forged), "an order is no report");
    let Ok(order) = sealed.order(keys.order()) else { return false };
    let written = seal_order(keys.server(), keys.order(), &order).unwrap();
    assert_eq!(open(&written).unwrap().order(keys.order()), Ok(order));
    true
}

/// Which key of a pair.
#[derive(Clone, Copy)]
enum Which {
    Report,
    Order,
}

/// A datagram of this content, made from the text of the keys by the documented form; `None`: too long for one.
fn signed(keys: &AgentKeys, content: &[u8], which: Which) -> Option<Vec<u8>> {
    let text = keys.to_text();
    let digits = text.split(' ').nth(match which {
        Which::Report => 1,
        Which::Order => 2,
    })?;
    let key: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    let outside = b"\x01\x09origin/o1";
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &[outside, content].concat());
    let datagram = [outside, tag.as_ref(), content].concat();
    assert_eq!(datagram.len(), outside.len() + TAG_LENGTH + content.len());
    (datagram.len() <= DATAGRAM_MAX).then_some(datagram)
}

/// Whether figures are the same but for the last digit, which JSON does not keep.
fn is_same(one: Figures, other: Figures) -> bool {
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(other.abs());
    let is_near = |pair: (Option<Use>, Option<Use>)| match pair {
        (Some(one), Some(other)) => near(one.amount, other.amount) && near(one.capacity, other.capacity),
        (one, other) => one == other,
    };
    let share = match (one.wanted_share, other.wanted_share) {
        (Some(one), Some(other)) => near(one, other),
        (one, other) => one == other,
    };
    let uses = [(one.cpu, other.cpu), (one.memory, other.memory), (one.disk, other.disk), (one.network, other.network)];
    share
        && uses.into_iter().all(is_near)
        && (one.run_queue, one.connections) == (other.run_queue, other.connections)
        && one.connections_max == other.connections_max
}
