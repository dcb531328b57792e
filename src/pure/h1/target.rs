//! Request targets (RFC 9112 3.2).
//!
//! Origin form, absolute form and, for OPTIONS, `*`. The authority form belongs to CONNECT, which is refused. Beyond its
//! form a path is not judged here: bytes above 0x7F and odd escapes pass as they are.

use std::ops::Range;

use crate::pure::h1::authority::parse_authority;
use crate::pure::h1::request::{RequestHeadError, TargetForm};
use crate::pure::h1::scan::{BLOCK, below_first, marks};

/// The parts of a target, as ranges of it.
pub(super) struct Target {
    pub form: TargetForm,
    /// Empty unless the form is absolute.
    pub authority: Range<usize>,
    /// Without its `/` where an absolute target has no path.
    pub path_and_query: Range<usize>,
}

/// Whether a byte ends a target: space, tab and all control bytes; and `#`, which may not be there (RFC 9112 3.2).
pub(super) const fn is_target_end(byte: u8) -> bool {
    (byte <= b' ') | (byte == b'#') | (byte == 0x7F)
}

/// Where a path that begins at `start` ends, if it is made of letters, digits and `/-._` alone and has no empty segment and
/// none that begins with a dot: such a path is normal and clear however it is judged. `None` where it has a byte of
/// another kind before the space or the `?`, or where that can't be told quickly.
#[inline(always)]
pub(super) fn plain_path_end(buffer: &[u8], start: usize) -> Option<usize> {
    match look_at_path(buffer, start, 0)? {
        Ok(end) => Some(end),
        Err(after_slash) => far_path_end(buffer, start + BLOCK, after_slash),
    }
}

/// [`plain_path_end`] of a path that is a block long or more.
#[inline(never)]
fn far_path_end(buffer: &[u8], mut at: usize, mut after_slash: u32) -> Option<usize> {
    loop {
        match look_at_path(buffer, at, after_slash)? {
            Ok(end) => return Some(end),
            Err(next) => after_slash = next,
        }
        at += BLOCK;
    }
}

/// Looks at a block of a path: where the path ends, or, where it goes on behind the block, whether a slash is its last byte.
#[inline(always)]
fn look_at_path(buffer: &[u8], at: usize, after_slash: u32) -> Option<Result<usize, u32>> {
    let block = buffer.get(at..)?.first_chunk()?;
    let others = marks(block, |byte| !is_plain_path_byte(byte));
    let slashes = marks(block, |byte| byte == b'/');
    let slashes_and_dots = marks(block, |byte| byte | 1 == b'/');
    if (slashes << 1 | after_slash) & slashes_and_dots & below_first(others) != 0 {
        return None;
    }
    if others == 0 {
        return Some(Err(slashes >> (BLOCK - 1)));
    }
    let end = at + others.trailing_zeros() as usize;
    matches!(buffer.get(end), Some(b' ' | b'?')).then_some(Ok(end))
}

/// Letters, digits and `/-._`.
const fn is_plain_path_byte(byte: u8) -> bool {
    ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'-') <= b'9' - b'-') | (byte == b'_')
}

/// Reads a target that holds no byte that would end it.
#[inline(always)]
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
    if parse_authority(rest.get(..length).unwrap_or(rest)).is_none() {
        return Err(RequestHeadError::Authority);
    }
    let end = start + length;
    Ok(Target { form: TargetForm::Absolute, authority: start..end, path_and_query: end..target.len() })
}
