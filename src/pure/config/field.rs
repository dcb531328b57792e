//! Names and values of fields in rule files (RFC 9110 5.5, 5.6.2), and which fields a rule may change.

use crate::pure::head::is_token_byte;

/// Whether a text is a token: a method, a field's name.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Whether a text may be (part of) a field's value: no control character but the tab.
pub fn is_value(text: &str) -> bool {
    text.chars().all(|letter| letter == '\t' || !letter.is_control())
}

/// Why a rule may not change a field; `None` where it may. One framing and one Host leave the proxy whatever rules say.
pub(super) fn refusal(name: &str, is_set: bool) -> Option<&'static str> {
    const FRAMING: &[&str] = &["content-length", "transfer-encoding", "trailer"];
    const HOP_BY_HOP: &[&str] = &["connection", "keep-alive", "proxy-connection", "te", "upgrade", "http2-settings"];
    let is_one_of = |list: &[&str]| list.iter().any(|listed| listed.eq_ignore_ascii_case(name));
    if is_one_of(FRAMING) {
        return Some("it says where a message ends, which the proxy alone decides");
    }
    if is_one_of(HOP_BY_HOP) {
        return Some("it belongs to one connection and is never passed on");
    }
    if name.eq_ignore_ascii_case("host") && !is_set {
        return Some("a request has exactly one: `set-request-header \"Host\" ..` replaces it");
    }
    None
}
