//! The streams of a connection: by key for those who hold them, by identity for the frames that come.
//!
//! An identity is found as long as its stream is open; a key, as long as it is held.

use std::collections::VecDeque;

use slab::Slab;

use super::StreamKey;
use super::stream::Stream;

/// Streams.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    streams: Slab<Stream>,
    /// Identities and keys of the open ones. Identities grow, so that it is in order.
    open: VecDeque<(u32, StreamKey)>,
}

impl StreamTable {
    /// Takes in a stream, which has no identity yet.
    pub(super) fn insert(&mut self, stream: Stream) -> StreamKey {
        StreamKey(self.streams.insert(stream))
    }

    /// Gives a stream its identity, which is newer than all others.
    pub(super) fn begin(&mut self, key: StreamKey, id: u32) {
        if let Some(stream) = self.streams.get_mut(key.0) {
            stream.id = id;
            self.open.push_back((id, key));
        }
    }

    pub(super) fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.streams.get(key.0)
    }

    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.streams.get_mut(key.0)
    }

    /// The open stream of that identity.
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        let place = self.place(id)?;
        self.open.get(place).map(|(_, key)| *key)
    }

    /// Frames that come for it find it no more.
    pub(super) fn close(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get(key.0)
            && let Some(place) = self.place(stream.id)
        {
            self.open.remove(place);
        }
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, key: StreamKey) -> Option<Stream> {
        self.close(key);
        let stream = self.streams.try_remove(key.0);
        if self.streams.is_empty() {
            // An idle connection holds nothing.
            *self = Self::default();
        }
        stream
    }

    /// How many streams are open.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// How many there are, with those that have ended and are still held.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// The keys of all streams.
    pub(super) fn keys(&self) -> Vec<StreamKey> {
        self.streams.iter().map(|(key, _)| StreamKey(key)).collect()
    }

    fn place(&self, id: u32) -> Option<usize> {
        // Most frames are of the oldest stream or the newest.
        match (self.open.front(), self.open.back()) {
            (Some((first, _)), _) if *first == id => Some(0),
            (_, Some((last, _))) if *last == id => Some(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }
}
