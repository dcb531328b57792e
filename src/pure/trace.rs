//! The record of how a choice was made: what `explain` prints and the path of a request skips.
//!
//! A [`Trace`] that is off costs one branch per note: the closure that would make the text is not called.

/// One sentence about one step of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Which step spoke: `rule`, `media-type`, `pool`, `key`, `persistence`, `server`, `scheduler`.
    pub step: &'static str,
    /// What it saw and did.
    pub text: String,
}

/// Collects notes, or ignores them.
#[derive(Debug, Default)]
pub struct Trace {
    notes: Option<Vec<Note>>,
}

impl Trace {
    /// A trace that ignores everything.
    pub const fn off() -> Self {
        Self { notes: None }
    }

    /// A trace that keeps every note.
    pub const fn recording() -> Self {
        Self { notes: Some(Vec::new()) }
    }

    /// Whether notes are kept.
    pub const fn is_recording(&self) -> bool {
        self.notes.is_some()
    }

    /// Keeps what `text` says, where notes are kept.
    pub fn note(&mut self, step: &'static str, text: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(Note { step, text: text() });
        }
    }

    /// The notes so far, in order.
    pub fn notes(&self) -> &[Note] {
        self.notes.as_deref().unwrap_or_default()
    }
}
