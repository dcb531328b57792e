//! How a pool's servers are suspected, as configured. The rules themselves are [`crate::pure::control`]'s.

/// How servers are suspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detection {
    /// Whose rules hold.
    pub mode: DetectMode,
    /// Whether a server that sends nothing while many requests wait is suspected. Pools whose answers are meant to be late
    /// (long polls) turn it off.
    pub silence: bool,
}

impl Default for Detection {
    fn default() -> Self {
        Self { mode: DetectMode::Evidence, silence: true }
    }
}

/// Whose rules hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetectMode {
    /// Requests, checks and reports together.
    #[default]
    Evidence,
    /// The push-detection paper's: a counter that reports zero, and nothing else.
    Classic,
}
