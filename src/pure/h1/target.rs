//! Request targets (RFC 9112 3.2).
//!
//! Origin form, absolute form and, for OPTIONS, `*`. The authority form belongs to CONNECT, which is refused. Beyond its
//! form a path is not judged here: bytes above 0x7F and odd escapes pass as they are.

use std::ops::Range;

use crate::pure::h1::authority::parse_authority;
use crate::pure::h1::request::{RequestHeadError, TargetForm};

/// The parts of a target, as ranges of it.
pub(super) struct Target {
    pub form: TargetForm,
    /// Empty unless the form is absolute.
    pub authority: Range<usize>,
    /// Empty where an absolute target has no path.
    pub path_and_query: Range<usize>,
}

/// Whether a byte ends a target: space, tab and all control bytes; and `#`, which may not be there (RFC 9112 3.2).
pub(super) const fn is_target_end(byte: u8) -> bool {
    (byte <= b' ') | (byte == b'#') | (byte == 0x7F)
}

/// Reads a target that holds no byte that would end it.
pub(super) fn parse_target(target: &[u8], is_options: bool) -> Result<Target, RequestHeadError> {
    let whole = 0..target.len();
    match target {
        [b'/', ..] => Ok(Target { form: TargetForm::Origin, authority: 0..0, path_and_query: whole }),
        b"*" if is_options => Ok(Target { form: TargetForm::Asterisk, authority: 0..0, path_and_query: whole }),
        _ => parse_absolute(target),
    }
}

#[cold]
fn parse_absolute(target: &[u8]) -> Result<Target, RequestHeadError> {
    let scheme = target.iter().position(|byte| *byte == b':').unwrap_or(0);
    let is_known = target
        .get(..scheme)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https"));
    let Some([b':', b'/', b'/', rest @ ..]) = target.get(scheme..).filter(|_| is_known) else {
        return Err(RequestHeadError::RequestLine);
    };
    let start = scheme + 3;
    let length = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(length).unwrap_or((rest, &[]));
    if parse_authority(authority).is_none() {
        return Err(RequestHeadError::Authority);
    }
    // A query right behind the authority stands for `/?..`, which no span of the target says.
    if path.first() == Some(&b'?') {
        return Err(RequestHeadError::RequestLine);
    }
    let end = start + length;
    Ok(Target { form: TargetForm::Absolute, authority: start..end, path_and_query: end..target.len() })
}
