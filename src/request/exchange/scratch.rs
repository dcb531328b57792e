//! Memory of an exchange that is kept from one to the next, so that a request allocates nothing.

use crate::base::units::Bytes;
use crate::pure::decision::Changed;
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::RequestHead;
use crate::pure::h1::response::ResponseHead;
use crate::pure::head::Field;
use crate::pure::pool::RETRY_BODY_MAX;
use crate::pure::refusal::Refusal;
use crate::pure::rule::captures::Captures;
use crate::request::account::Record;
use crate::request::buffers::Buffer;
use crate::request::exchange::failure::Failure;
use crate::request::exchange::flow::{Flow, FlowError, Framing};
use crate::request::exchange::persistence::Persisting;

/// What a list of bytes keeps of its memory from one exchange to the next.
pub(super) const SPARE: usize = 16 * 1024;

/// What an exchange works with.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The request's head.
    pub request: RequestHead,
    /// The answer's head.
    pub response: ResponseHead,
    /// Client to server.
    pub upload: Flow,
    /// Server to client.
    pub download: Flow,
    /// The request's head as the server gets it.
    pub forwarded: Vec<u8>,
    /// What was sent of the request's body, for a repetition.
    pub kept: Kept,
    /// The normalized path, where it is not what was sent.
    pub path: String,
    /// What the rule's pattern captured.
    pub captures: Captures,
    /// What the rule changes.
    pub changed: Changed,
    /// What is to be accounted for.
    pub record: Record,
    /// The largest body that is let through.
    pub body_max: Bytes,
    /// Whether the request is a HEAD.
    pub is_head_request: bool,
    /// Whether its method is idempotent (RFC 9110 9.2.2).
    pub is_idempotent: bool,
    /// Whether the client broke the protocol or a limit: where its next request begins is not known.
    pub is_broken: bool,
    /// The upgrade token that the server is asked for; empty: none.
    pub upgrade: Vec<u8>,
    /// Where the answer's media type is to be learned.
    pub learning: Learning,
    /// The request's id where it is one of ours.
    pub request_id: String,
    /// Whom the client belongs to, in a pool that keeps clients with their servers.
    pub persisting: Option<Persisting>,
}

/// The place that an answer's media type is learned for, where rules ask for such types.
#[derive(Debug, Default)]
pub struct Learning {
    /// Whether it is to be learned.
    pub is_wanted: bool,
    /// The host.
    pub host: String,
    /// The normalized path.
    pub path: String,
    /// The type that was learned before.
    pub known: String,
}

impl Learning {
    /// Notes the place.
    pub fn begin(&mut self, host: &str, path: &str) {
        self.is_wanted = true;
        self.host.clear();
        self.host.push_str(host);
        self.path.clear();
        self.path.push_str(path);
    }
}

impl Scratch {
    /// Makes it ready for the next exchange. A request's head that was read to its end, or refused, is begun anew by itself;
    /// one that was given up in the middle needs [`RequestHead::clear`].
    pub fn clear(&mut self) {
        self.upload.reset();
        self.download.reset();
        self.forwarded.clear();
        self.forwarded.shrink_to(SPARE);
        self.kept.clear();
        self.changed.clear();
        self.record.clear();
        self.is_broken = false;
        self.is_head_request = false;
        self.upgrade.clear();
        self.learning.is_wanted = false;
        self.request_id.clear();
        self.persisting = None;
    }

    /// Gives back, after [`Self::clear`], what a large head has left behind. What else there is grows with the rules alone.
    pub fn shrink(&mut self) {
        let Learning { host, path, known, .. } = &mut self.learning;
        for text in [&mut self.path, host, path, known] {
            text.clear();
            text.shrink_to(SPARE);
        }
        let fields = SPARE / size_of::<Field>();
        self.request.fields.shrink_to(fields);
        if self.response.fields.capacity() > fields {
            self.response.clear();
            self.response.fields.shrink_to(fields);
        }
        self.changed.target.shrink_to(SPARE);
        self.changed.request.shrink_to(SPARE);
        self.changed.response.shrink_to(SPARE);
        self.record.shrink_to(SPARE);
        self.upgrade.shrink_to(SPARE);
    }

    /// Puts the head and what has come of the body on their way, so that they leave in one write.
    ///
    /// # Errors
    /// [`Failure`] where the body is malformed or too large.
    pub fn begin_upload(&mut self, buffer: &mut Buffer) -> Result<(), Failure> {
        let body = self.request.body;
        let framing = if body == BodyLength::Chunked { Framing::Chunked } else { Framing::Bare };
        self.upload.start(body, framing, self.body_max.0);
        if framing == Framing::Chunked {
            self.upload.bar_trailers(self.changed.request.rule());
        }
        self.upload.head().extend_from_slice(&self.forwarded);
        self.kept.begin(body != BodyLength::None);
        let kept = &mut self.kept;
        self.upload.stage_early(buffer, &mut |bytes| kept.push(bytes)).map_err(|error| match error {
            FlowError::TooLarge => Refusal::BodyTooLarge.into(),
            FlowError::Framing(_) | FlowError::Read(_) | FlowError::Truncated | FlowError::Write(_) => Failure::Body,
        })
    }
}

/// The part of a request's body that was sent, as it was framed, up to [`RETRY_BODY_MAX`].
#[derive(Debug, Default)]
pub struct Kept {
    bytes: Vec<u8>,
    is_wanted: bool,
    is_lost: bool,
}

impl Kept {
    fn begin(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        // Many exchanges' memory is kept for the next; large bodies are few.
        self.bytes.shrink_to(SPARE);
        self.is_wanted = false;
        self.is_lost = false;
    }

    /// Keeps bytes, where a repetition may need them.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.is_wanted || bytes.is_empty() {
            return;
        }
        if self.bytes.len() + bytes.len() > RETRY_BODY_MAX.as_usize() {
            self.give_up();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Keeps nothing more: the request can't be sent again.
    pub fn give_up(&mut self) {
        if self.is_wanted {
            self.bytes = Vec::new();
            self.is_wanted = false;
            self.is_lost = true;
        }
    }

    /// Whether all that was sent is here.
    pub const fn is_whole(&self) -> bool {
        !self.is_lost
    }

    /// What was sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::buffers::BufferPool;

    #[test]
    fn a_large_request_leaves_no_large_memory_behind() {
        let mut scratch = Scratch::default();
        scratch.forwarded.resize(60_000, b'x');
        scratch.kept.begin(true);
        scratch.kept.push(&[b'x'; 60_000]);
        assert!(scratch.kept.is_whole());
        let pool = BufferPool::new(Bytes::mib(1));
        let grant = pool.try_grant().unwrap();
        scratch.upload.rewind(&mut grant.buffer(), &scratch.forwarded, scratch.kept.bytes());
        assert_eq!(scratch.upload.head().len(), 120_000);
        let text = "x".repeat(60_000);
        scratch.path.push_str(&text);
        scratch.changed.target.extend_from_slice(text.as_bytes());
        scratch.learning.begin("a", &text);
        scratch.record.set_request_id(text.as_bytes());
        scratch.response.fields.reserve(10_000);
        scratch.request.fields.reserve(10_000);
        scratch.clear();
        scratch.request.clear();
        scratch.shrink();
        let fields = [&scratch.request.fields, &scratch.response.fields];
        assert!(fields.iter().all(|fields| fields.capacity() * size_of::<Field>() <= SPARE));
        let (path, learned) = (scratch.path.capacity(), scratch.learning.path.capacity());
        assert!(path <= SPARE && learned <= SPARE && scratch.changed.target.capacity() <= SPARE);
        let left = [scratch.forwarded.capacity(), scratch.kept.bytes.capacity(), scratch.upload.head().capacity()];
        assert!(left.iter().all(|capacity| *capacity <= SPARE), "{left:?}");
    }
}
