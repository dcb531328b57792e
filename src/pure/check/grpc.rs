//! The messages of `grpc.health.v1.Health/Check` (grpc/doc/health-checking.md), and the frame around them
//! (grpc/doc/PROTOCOL-HTTP2.md): one small message each way, so that no library of gRPC or Protocol Buffers is needed.
//!
//! It refuses compressed messages, for we say that we take none, and whatever breaks the encoding.

use crate::pure::protobuf::{Fields, Value, push_varint};

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

/// What the only field of a request begins with: its number, and that its length follows.
const SERVICE_TAG: u8 = 1 << 3 | 2;
/// The number of the only field of an answer.
const STATUS_FIELD: u64 = 1;

/// The number of SERVING.
const SERVING: u64 = 1;

/// The framed message that asks for `service`; empty: for the whole server.
pub fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(service.len() + 4);
    if !service.is_empty() {
        message.push(SERVICE_TAG);
        push_varint(&mut message, service.len() as u64);
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = vec![0];
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// What the body of a whole answer says; `None`: it is no such answer.
pub fn read_answer(body: &[u8]) -> Option<Serving> {
    let (head, message) = body.split_first_chunk::<FRAME_HEAD>()?;
    let [0, length @ ..] = head else { return None };
    if u32::from_be_bytes(*length) as usize != message.len() {
        return None;
    }
    // A field that is not there has its first value: UNKNOWN.
    let mut status = 0;
    for field in Fields::of(message) {
        // Later versions may have further fields.
        if let (STATUS_FIELD, Value::Varint(value)) = field.ok()? {
            status = value;
        }
    }
    Some(if status == SERVING { Serving::Yes } else { Serving::No })
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
