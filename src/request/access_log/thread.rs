//! The log's thread: it collects the workers' buffers by timer and writes them to the file or to standard output.
//!
//! Nothing that goes wrong with the file ends the process: errors are counted and said at most once per
//! [`REPORT_PERIOD`]. It refuses to rotate files: whoever does renames the file and then orders a [`LogHandle::reopen`].

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::base::time::{Timestamp, now};
use crate::pure::config::{AccessLog, LogFormat};
use crate::request::access_log::worker::{BUFFER_SIZE, FullBuffer, QUEUE_LENGTH, WorkerLog};

/// How long the thread rests between two looks at the queues.
const REST: Duration = Duration::from_millis(20);
/// The same while buffers come in so fast that the queues might fill meanwhile.
const SHORT_REST: Duration = Duration::from_millis(2);
/// How often the same trouble is said again.
pub const REPORT_PERIOD: Duration = Duration::from_secs(10);
/// Who may read a file that is made: client addresses are not for everybody.
const FILE_MODE: u32 = 0o640;

/// Why the access log can't be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file can't be opened for appending.
    #[error("can't open the access log {}: {source}", .file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output can't be used.
    #[error("can't write the access log to standard output: {0}")]
    StandardOutput(io::Error),
    /// The system gave no thread.
    #[error("can't start the thread of the access log: {0}")]
    Thread(io::Error),
}

/// What the log has to own up to. Relaxed counters since the start of the process.
#[derive(Debug, Default)]
pub struct LogCounters {
    /// Lines that were written.
    pub written: AtomicU64,
    /// Lines that were lost: the thread did not keep up, or writing failed.
    pub dropped: AtomicU64,
    /// Writes, openings and reopenings that failed.
    pub errors: AtomicU64,
}

/// Not everything was written when the time to stop was over: somebody does not read what the log writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the access log could not be written to its end in time")]
pub struct Unfinished;

/// Starts the log's thread.
#[derive(Debug)]
pub struct LogThread;

impl LogThread {
    /// Opens the file and starts the thread that writes it.
    ///
    /// # Errors
    /// [`LogError`] where the file can't be opened or no thread be had.
    pub fn start(config: &AccessLog) -> Result<LogHandle, LogError> {
        let output = match &config.file {
            Some(file) => open(file).map_err(|source| LogError::Open { file: file.clone(), source })?,
            None => {
                let descriptor = io::stdout().as_fd().try_clone_to_owned().map_err(LogError::StandardOutput)?;
                File::from(descriptor)
            }
        };
        let shared = Arc::new(Shared::default());
        let (ended_in, ended) = sync_channel(1);
        let writer = Writer {
            output,
            file: config.file.clone(),
            is_inside_line: false,
            shared: Arc::clone(&shared),
            report: Report { said_at: None, dropped: 0, errors: 0 },
            last_error: None,
        };
        let collector = Collector { writer, workers: Vec::new(), shared: Arc::clone(&shared) };
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                collector.run();
                // Nobody waits where the handle is gone.
                let _ = ended_in.try_send(());
            })
            .map_err(LogError::Thread)?;
        Ok(LogHandle { format: config.format, shared, ended, thread: thread.thread().clone() })
    }
}

/// Opens the file without waiting: a pipe that nobody reads is an error, not a start that never ends.
fn open(file: &Path) -> io::Result<File> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(file)?;
    // Written to by a thread of its own, which may wait.
    let flags = OFlag::from_bits_truncate(fcntl(&opened, FcntlArg::F_GETFL)?);
    fcntl(&opened, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(opened)
}

/// What the handle and the thread share; workers have their queues only.
#[derive(Debug, Default)]
struct Shared {
    /// Workers that the thread does not know yet.
    new_workers: Mutex<Vec<WorkerEnd>>,
    is_reopening: AtomicBool,
    is_stopping: AtomicBool,
    counters: Arc<LogCounters>,
}

/// The log from outside: it gives workers their ends, and takes orders.
#[derive(Debug)]
pub struct LogHandle {
    format: LogFormat,
    shared: Arc<Shared>,
    ended: Receiver<()>,
    thread: Thread,
}

impl LogHandle {
    /// The end for one more worker. At most [`QUEUE_LENGTH`] buffers of it wait.
    pub fn worker(&self) -> WorkerLog {
        let (full, full_in) = sync_channel(QUEUE_LENGTH);
        let (empty, empty_in) = sync_channel(QUEUE_LENGTH);
        let end = WorkerEnd { full: full_in, empty };
        self.shared.new_workers.lock().unwrap_or_else(PoisonError::into_inner).push(end);
        WorkerLog::new(self.format, full, empty_in, Arc::clone(&self.shared.counters))
    }

    /// Opens the file by its name again: after it was renamed, lines go to a new one. Standard output stays what it is.
    pub fn reopen(&self) {
        self.shared.is_reopening.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// What was written and lost so far.
    pub fn counters(&self) -> &Arc<LogCounters> {
        &self.shared.counters
    }

    /// Writes everything that workers have handed over, and ends the thread. Workers drop their ends first: that hands over
    /// their last lines.
    ///
    /// # Errors
    /// [`Unfinished`] where that took longer than `wait`; the thread is left to itself then.
    pub fn stop(self, wait: Duration) -> Result<(), Unfinished> {
        self.order_stop();
        self.ended.recv_timeout(wait).map_err(|_| Unfinished)
    }

    fn order_stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Drop for LogHandle {
    fn drop(&mut self) {
        self.order_stop();
    }
}

/// The thread's end of one worker's queues.
#[derive(Debug)]
struct WorkerEnd {
    full: Receiver<FullBuffer>,
    empty: SyncSender<Vec<u8>>,
}

struct Collector {
    writer: Writer,
    workers: Vec<WorkerEnd>,
    shared: Arc<Shared>,
}

impl Collector {
    fn run(mut self) {
        loop {
            // Orders are read before the queues: what was handed over before an order is still written under the old one.
            let is_stopping = self.shared.is_stopping.load(Ordering::Acquire);
            let is_reopening = self.shared.is_reopening.swap(false, Ordering::AcqRel);
            self.workers.append(&mut self.shared.new_workers.lock().unwrap_or_else(PoisonError::into_inner));
            let busiest = self.collect();
            if is_reopening {
                self.writer.reopen();
            }
            self.writer.report(now(), is_stopping);
            if is_stopping {
                return;
            }
            // The queues may fill to a quarter in a full rest; above that, rests are short.
            thread::park_timeout(if busiest > QUEUE_LENGTH / 4 { SHORT_REST } else { REST });
        }
    }

    /// Writes all that waits. The most buffers that one worker had waiting.
    fn collect(&mut self) -> usize {
        let mut busiest = 0;
        let writer = &mut self.writer;
        self.workers.retain(|worker| {
            // A worker that is as fast as the disk does not keep the others from their turn.
            for taken in 0..=QUEUE_LENGTH {
                match worker.full.try_recv() {
                    Ok(full) => worker.give_back(writer.write(full)),
                    Err(TryRecvError::Empty) => {
                        busiest = busiest.max(taken);
                        return true;
                    }
                    Err(TryRecvError::Disconnected) => return false,
                }
            }
            busiest = QUEUE_LENGTH;
            true
        });
        busiest
    }
}

impl WorkerEnd {
    fn give_back(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        // A line of the longest kind made it grow: that memory goes back.
        buffer.shrink_to(BUFFER_SIZE + BUFFER_SIZE / 8);
        // Where the worker is gone or has enough, it goes back to the allocator.
        let _ = self.empty.try_send(buffer);
    }
}

struct Writer {
    output: File,
    file: Option<PathBuf>,
    /// Whether what was last written ended inside a line.
    is_inside_line: bool,
    shared: Arc<Shared>,
    report: Report,
    last_error: Option<io::Error>,
}

impl Writer {
    /// Writes the lines, or counts those that could not be written. Gives the buffer back.
    fn write(&mut self, full: FullBuffer) -> Vec<u8> {
        let mut rest = full.bytes.as_slice();
        let result = self.end_line().and_then(|()| self.put(&mut rest));
        let mut lost = 0;
        if let Err(error) = result {
            // A line that was cut counts as lost: its line feed is still here.
            lost = u64::try_from(memchr::memchr_iter(b'\n', rest).count()).unwrap_or(u64::MAX);
            self.fail(error);
        }
        self.shared.counters.dropped.fetch_add(lost, Ordering::Relaxed);
        self.shared.counters.written.fetch_add(full.lines.saturating_sub(lost), Ordering::Relaxed);
        full.bytes
    }

    /// Ends a line that was cut when its end could not be written.
    fn end_line(&mut self) -> io::Result<()> {
        if self.is_inside_line { self.put(&mut &b"\n"[..]) } else { Ok(()) }
    }

    /// Writes the front of `rest` off it, to its end or to an error.
    fn put(&mut self, rest: &mut &[u8]) -> io::Result<()> {
        while !rest.is_empty() {
            match self.output.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let (written, unwritten) = rest.split_at(count.min(rest.len()));
                    self.is_inside_line = written.last() != Some(&b'\n');
                    *rest = unwritten;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Somebody made the pipe that is our standard output one that does not wait: we wait here.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::park_timeout(SHORT_REST),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) {
        let Some(file) = &self.file else { return };
        match open(file) {
            Ok(output) => {
                self.output = output;
                self.is_inside_line = false;
            }
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.shared.counters.errors.fetch_add(1, Ordering::Relaxed);
        self.last_error = Some(error);
    }

    /// Says what went wrong since it was last said, where that is long enough ago.
    fn report(&mut self, now: Timestamp, is_last_chance: bool) {
        let counters = &self.shared.counters;
        let seen = Report {
            said_at: Some(now),
            dropped: counters.dropped.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
        };
        let is_new = seen.dropped > self.report.dropped || seen.errors > self.report.errors;
        let is_due = is_last_chance || self.report.said_at.is_none_or(|at| now.since(at) >= REPORT_PERIOD);
        if is_new && is_due {
            tracing::warn!(
                lines_dropped = seen.dropped - self.report.dropped,
                errors = seen.errors - self.report.errors,
                last_error = self.last_error.as_ref().map(tracing::field::display),
                "the access log is not complete"
            );
            self.report = seen;
        }
    }
}

/// What was said last of what went wrong.
struct Report {
    said_at: Option<Timestamp>,
    dropped: u64,
    errors: u64,
}

#[cfg(test)]
mod tests;
