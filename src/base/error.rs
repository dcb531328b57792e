//! What every error of the request line can say of itself: who is to blame, and whether the request may be sent again.

/// Who caused an error. Only [`Blame::Server`] counts as evidence against a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client sent something wrong, or went away.
    Client,
    /// The server refused, broke off, was too slow or spoke nonsense.
    Server,
    /// Pointsman itself, or its machine: no descriptor, no memory, no server configured.
    Us,
}

/// Whether sending the request again could make something happen twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetrySafety {
    /// Nothing of the request was written: any method may be sent again.
    NothingWritten,
    /// It was written and no byte of an answer has come: idempotent methods may be sent again (RFC 9110 9.2.2).
    Unanswered,
    /// Never again.
    Never,
}
