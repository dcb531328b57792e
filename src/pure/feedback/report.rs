//! A report: what a server says of itself, whoever brought it. Load figures change its capacity, verdicts are evidence for
//! its state. It refuses to know how it came: the wire forms are beside.

use std::time::Duration;

/// Who brought a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// `pointsman-agent`, signed.
    Agent,
    /// The text that HAProxy's agent-check asks for.
    AgentCheck,
    /// ORCA: `endpoint-load-metrics` beside an answer.
    Orca,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Agent => "its agent",
            Self::AgentCheck => "its agent-check",
            Self::Orca => "its answers",
        })
    }
}

/// What a server says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// When the sender began, in nanoseconds since the epoch; 0 where the source has none.
    pub boot: u64,
    /// Counts the sender's reports; 0 where the source has none.
    pub sequence: u64,
    /// The next report comes within this; `None`: nothing is promised.
    pub promised_next: Option<Duration>,
    /// How loaded it is.
    pub figures: Figures,
    /// Whether it can't take more now.
    pub is_overloaded: bool,
    /// How its service is.
    pub service: Service,
}

/// How a server's service is, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// It runs.
    #[default]
    Up,
    /// Something is wrong with it; no requests, please.
    Abnormal,
    /// Its process or its port is gone.
    Down,
    /// It is about to stop, or wants to be left to finish: clients that belong to it may go on.
    Leaving,
    /// It wants nothing at all for a while.
    Maintenance,
}

/// How loaded a server is. What a source does not know is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Processor: in use and in all, in cores times their rate (MHz).
    pub cpu: Option<Use>,
    /// Memory: in bytes.
    pub memory: Option<Use>,
    /// Disk: in bytes a second.
    pub disk: Option<Use>,
    /// Network: in bytes a second.
    pub network: Option<Use>,
    /// Tasks that wait for a processor or have one.
    pub run_queue: Option<u32>,
    /// Established connections to the service's port.
    pub connections: Option<u32>,
    /// The most connections that the service takes.
    pub connections_max: Option<u32>,
    /// The part of its weight that it wants, 1 being all of it.
    pub wanted_share: Option<f64>,
}

/// How much of something is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// How much is in use now.
    pub amount: f64,
    /// How much there is.
    pub capacity: f64,
}

impl Use {
    /// The part in use, 0 to 1; `None`: there is nothing to use.
    pub fn part(self) -> Option<f64> {
        (self.capacity > 0.0 && self.amount.is_finite()).then(|| (self.amount / self.capacity).clamp(0.0, 1.0))
    }
}
