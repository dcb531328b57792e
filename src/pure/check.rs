//! Active checks as configured: what is asked of a server, how often, and how much a result counts. It refuses to run any.

use std::time::Duration;

/// How the servers of a pool are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// What is asked.
    pub kind: CheckKind,
    /// When, and how often.
    pub times: CheckTimes,
}

/// What a check asks of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CheckKind {
    /// That it takes a connection.
    #[default]
    Tcp,
}

/// When checks run and how much they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckTimes {
    /// Between the beginnings of two checks of a server that is well; `None`: such a server is not checked.
    pub every: Option<Duration>,
    /// How long a check may take.
    pub timeout: Duration,
    /// So many bad checks in a row are one source's word that a server is dead.
    pub fall: u32,
    /// So many good checks in a row bring a server back.
    pub rise: u32,
}

/// Those of a pool without checks of its own: only a server that is not well is checked.
impl Default for CheckTimes {
    fn default() -> Self {
        Self { every: None, timeout: Duration::from_millis(300), fall: 3, rise: 2 }
    }
}
