//! The messages of `grpc.health.v1.Health/Check` (grpc/doc/health-checking.md), and the frame around them
//! (grpc/doc/PROTOCOL-HTTP2.md): one small message each way, so that no library of gRPC or Protocol Buffers is needed.
//!
//! It refuses compressed messages, for we say that we take none, and whatever breaks the encoding.

/// The method, as a path.
pub const PATH: &str = "/grpc.health.v1.Health/Check";

/// How a service is, by the number in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// It serves.
    Yes,
    /// It does not, or does not know.
    No,
}

/// What a frame begins with: whether the message is compressed, and its length.
const FRAME_HEAD: usize = 5;

/// The number and type of the only field of either message.
const SERVICE_FIELD: u8 = 1 << 3 | LENGTH_DELIMITED;
const STATUS_FIELD: u64 = (1 << 3) | VARINT as u64;

const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

/// The number of SERVING.
const SERVING: u64 = 1;

/// The framed message that asks for `service`; empty: for the whole server.
pub fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(service.len() + 4);
    if !service.is_empty() {
        message.push(SERVICE_FIELD);
        push_varint(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

fn push_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// What the body of a whole answer says; `None`: it is no such answer.
pub fn read_answer(body: &[u8]) -> Option<Serving> {
    let (head, message) = body.split_first_chunk::<FRAME_HEAD>()?;
    let [0, length @ ..] = head else { return None };
    if u32::from_be_bytes(*length) as usize != message.len() {
        return None;
    }
    let mut rest = message;
    // A field that is not there has its first value: UNKNOWN.
    let mut status = 0;
    while !rest.is_empty() {
        let key = take_varint(&mut rest)?;
        if key == STATUS_FIELD {
            status = take_varint(&mut rest)?;
        } else {
            // Later versions may have further fields.
            skip(&mut rest, key)?;
        }
    }
    Some(if status == SERVING { Serving::Yes } else { Serving::No })
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn skip(rest: &mut &[u8], key: u64) -> Option<()> {
    let length = match key & 7 {
        0 => return take_varint(rest).map(|_| ()),
        1 => 8,
        2 => usize::try_from(take_varint(rest)?).ok()?,
        5 => 4,
        _ => return None,
    };
    *rest = rest.get(length..)?;
    Some(())
}

/// ` (NAME)` of a status that has one (grpc/doc/statuscodes.md).
pub(super) fn name_of(status: u32) -> &'static str {
    match status {
        1 => " (CANCELLED)",
        2 => " (UNKNOWN)",
        3 => " (INVALID_ARGUMENT)",
        4 => " (DEADLINE_EXCEEDED)",
        5 => " (NOT_FOUND)",
        6 => " (ALREADY_EXISTS)",
        7 => " (PERMISSION_DENIED)",
        8 => " (RESOURCE_EXHAUSTED)",
        9 => " (FAILED_PRECONDITION)",
        10 => " (ABORTED)",
        11 => " (OUT_OF_RANGE)",
        12 => " (UNIMPLEMENTED)",
        13 => " (INTERNAL)",
        14 => " (UNAVAILABLE)",
        15 => " (DATA_LOSS)",
        16 => " (UNAUTHENTICATED)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_names_its_service_or_none() {
        assert_eq!(request(""), [0, 0, 0, 0, 0]);
        assert_eq!(request("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let long = request(&"x".repeat(300));
        assert_eq!(long[..8], [0, 0, 0, 1, 0x2f, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn an_answer_says_whether_it_serves() {
        assert_eq!(read_answer(&[0, 0, 0, 0, 2, 8, 1]), Some(Serving::Yes));
        for status in [0, 2, 3, 9] {
            assert_eq!(read_answer(&[0, 0, 0, 0, 2, 8, status]), Some(Serving::No));
        }
        assert_eq!(read_answer(&[0, 0, 0, 0, 0]), Some(Serving::No), "UNKNOWN is left out");
        // Fields of each type, of a later version, around it.
        let further = [0x10, 0x96, 1, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x22, 2, b'a', b'b', 8, 1, 0x2d, 1, 2, 3, 4];
        let mut body = vec![0, 0, 0, 0, further.len() as u8];
        body.extend_from_slice(&further);
        assert_eq!(read_answer(&body), Some(Serving::Yes));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for body in [
            &[][..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 2, 8, 1],
            &[0, 0, 0, 0, 3, 8, 1],
            &[0, 0, 0, 0, 1, 8, 1],
            &[0, 0, 0, 0, 1, 8],
            &[0, 0, 0, 0, 2, 0x0f, 1],
            &[0, 0, 0, 0, 3, 0x12, 9, 1],
            &[0, 0, 0, 0, 12, 8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert_eq!(read_answer(body), None, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = read_answer(&body);
            let mut framed = vec![0, 0, 0, 0, body.len() as u8];
            framed.extend_from_slice(&body);
            let _ = read_answer(&framed);
        }
    }
}
