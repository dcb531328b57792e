//! The states of a server, and the one table of what each may get.

/// What a server may get now. One table says what each state allows: [`State::allows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Answers well.
    Up,
    /// Back, on probation and on a rising share.
    Recovering,
    /// Something is wrong; `by_overload` where it is only too much work.
    Suspect {
        /// Overload is never treated as death.
        by_overload: bool,
    },
    /// Known to be dead.
    Down,
    /// An operator lets its clients finish.
    Drained,
    /// An operator has taken it out.
    Maintenance,
}

/// Who asks a state for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A request without a history.
    New,
    /// A request whose client belongs to the server.
    Persistent,
    /// Any request while fewer than half of the pool are available.
    InPanic,
}

impl State {
    /// Whether a server in this state may get such a request: Up and Recovering all, Suspect in panic and, where by
    /// overload, persistent ones, Down nothing, Drained persistent ones, Maintenance nothing.
    pub const fn allows(self, wanted: Wanted) -> bool {
        match (self, wanted) {
            (Self::Up | Self::Recovering, _)
            | (Self::Suspect { .. }, Wanted::InPanic)
            | (Self::Suspect { by_overload: true } | Self::Drained, Wanted::Persistent) => true,
            (Self::Suspect { .. } | Self::Down | Self::Drained | Self::Maintenance, _) => false,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Recovering => "recovering",
            Self::Suspect { by_overload: false } => "suspect",
            Self::Suspect { by_overload: true } => "suspect (overload)",
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Maintenance => "in maintenance",
        })
    }
}
