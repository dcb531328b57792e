//! `pointsman status`: asks a running proxy how it is, at the socket that its rule file names as `admin`, and tells it as
//! text or as JSON.
//!
//! It refuses to wait: a proxy that does not answer in time is an error, and so is an answer without an end.

mod control;
mod feedback;
mod gather;
mod heard;
mod report;
mod text;

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::base::time;
use crate::operator::check::{Style, render};
use crate::operator::rule_files::DiskFiles;
use crate::pure::config::{self, ConfigErrors};
use crate::pure::h1::body::BodyLength;
use crate::pure::h1::request::{HeadLimits, Parsed};
use crate::pure::h1::response::{ResponseHead, parse_response_head};

pub(super) use text::{percent, table};

pub use control::{AlertStatus, AvailabilityStatus, EvidenceStatus, RecoveryStatus, StepStatus};
pub use feedback::FeedbackStatus;
pub use gather::Source;
pub use heard::{AgentCheckStatus, RefusedReports, ReportsStatus};
pub use report::{
    Answers, Failures, LocalityStatus, LogStatus, MovedKeys, PoolStatus, ProcessStatus, QueueStatus, ServerStatus,
    Status, TableStatus, TopKey,
};

/// How long the whole answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 64 << 20;

const HEAD_LIMITS: HeadLimits = HeadLimits { bytes: 16 * 1024, fields: 64 };

/// Whom to ask.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct StatusOptions {
    /// The rule file, or the directory, that the proxy runs on: its `admin` is asked.
    #[arg(value_name = "FILE", default_value = "rules", conflicts_with = "socket")]
    pub rules: PathBuf,
    /// The socket to ask, whatever a rule file says.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Why there is nothing to tell.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The rule files are wrong.
    #[error(transparent)]
    Rules(#[from] ConfigErrors),
    /// They name no socket.
    #[error("{}: there is no `admin`: add admin \"unix:/run/pointsman/admin.sock\", or name a socket by --socket", .0.display())]
    NoAdmin(PathBuf),
    /// Nobody listens at the socket, or we may not ask.
    #[error("can't ask the proxy at {}: {cause}", .socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What came is no status.
    #[error("the proxy at {} does not tell its status: {problem}", .socket.display())]
    Answer {
        /// The socket.
        socket: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl StatusError {
    /// The exit code: 1 where the input was wrong, 3 where it could not be done.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Rules(_) | Self::NoAdmin(_) => 1,
            Self::Connect { .. } | Self::Answer { .. } => 3,
        }
    }

    /// For people; errors of rule files are drawn as `check` draws them.
    pub fn render(&self, style: Style) -> String {
        match self {
            Self::Rules(errors) => render(&errors.problems, style),
            other => format!("{other}\n"),
        }
    }
}

/// A status as it was told.
#[derive(Clone, Debug)]
pub struct Told {
    /// The answer, as it came.
    pub json: String,
    /// What it says.
    pub status: Status,
}

/// Asks a running proxy.
///
/// # Errors
/// [`StatusError`].
pub fn status(options: &StatusOptions) -> Result<Told, StatusError> {
    let socket = match &options.socket {
        Some(socket) => socket.clone(),
        None => {
            let config = config::load(&DiskFiles, &options.rules)?;
            config.admin.ok_or_else(|| StatusError::NoAdmin(options.rules.clone()))?
        }
    };
    let bytes = ask(&socket).map_err(|cause| StatusError::Connect { socket: socket.clone(), cause })?;
    let wrong = |problem: String| StatusError::Answer { socket: socket.clone(), problem };
    let json = read_answer(&bytes).map_err(wrong)?;
    let status = serde_json::from_str(&json).map_err(|error| wrong(format!("it is not what was expected: {error}")))?;
    Ok(Told { json, status })
}

/// The whole answer to `GET /status`, head and all.
fn ask(path: &Path) -> io::Result<Vec<u8>> {
    let deadline = time::now() + PATIENCE;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    // It holds for connecting too: that waits where many do.
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect(&SockAddr::unix(path)?)?;
    let mut stream = UnixStream::from(socket);
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time");
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let left = deadline.since(time::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(late());
            }
            Err(error) => return Err(error),
        }
        if answer.len() > ANSWER_MAX {
            return Err(io::Error::other("its answer has no end"));
        }
    }
}

/// The body of a good answer.
fn read_answer(bytes: &[u8]) -> Result<String, String> {
    let mut head = ResponseHead::default();
    match parse_response_head(bytes, HEAD_LIMITS, false, &mut head) {
        Ok(Parsed::Complete) => {}
        Ok(Parsed::Partial) => return Err("its answer ends before its end".to_owned()),
        Err(error) => return Err(format!("its answer is no HTTP: {error}")),
    }
    let body = bytes.get(head.length..).unwrap_or_default();
    if head.status != 200 {
        let said = String::from_utf8_lossy(body.get(..body.len().min(200)).unwrap_or_default()).into_owned();
        return Err(format!("it answers {}: {}", head.status, said.trim().escape_debug()));
    }
    match head.body {
        BodyLength::Length(length) if length == body.len() as u64 => {}
        _ => return Err("its answer ends before its end".to_owned()),
    }
    String::from_utf8(body.to_vec()).map_err(|_| "its answer is no text".to_owned())
}

/// To so many parts of one.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_none_is_told_as_such() {
        let of = |text: &str| read_answer(text.as_bytes());
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), Ok("{}".to_owned()));
        for (answer, problem) in [
            ("", "its answer ends before its end"),
            ("HTTP/1.1 200 OK\r\nContent-Le", "its answer ends before its end"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "its answer ends before its end"),
            ("SSH-2.0-x\r\n", "its answer is no HTTP: malformed status line"),
            ("HTTP/1.1 404 N\r\nContent-Length: 3\r\n\r\nno\n", "it answers 404: no"),
        ] {
            assert_eq!(of(answer), Err(problem.to_owned()), "{answer:?}");
        }
    }
}
