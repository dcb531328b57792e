//! A worker's end of the access log: it makes lines and hands whole buffers over.
//!
//! It refuses to wait: where the queue is full, a full buffer is dropped and its lines are counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use crate::base::time::{Timestamp, now, wall_clock};
use crate::pure::config::LogFormat;
use crate::request::access_log::AccessRecord;
use crate::request::access_log::civil::CivilClock;
use crate::request::access_log::line::{push_combined, push_json};
use crate::request::access_log::thread::LogCounters;

/// A buffer this long is handed over, in bytes; one line may reach beyond it.
pub const BUFFER_SIZE: usize = 32 * 1024;

/// Buffers of one worker that may wait for the log's thread: 1 MiB of lines.
pub const QUEUE_LENGTH: usize = 32;

/// Lines on their way to the log's thread.
#[derive(Debug)]
pub(crate) struct FullBuffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: u64,
}

/// A worker's end of the access log.
#[derive(Debug)]
pub struct WorkerLog {
    format: LogFormat,
    clock: CivilClock,
    buffer: Vec<u8>,
    lines: u64,
    /// Lines of this worker that were lost and of which no line has told yet.
    dropped_before: u64,
    /// Lost lines of which a line in the buffer tells.
    announced: u64,
    full: SyncSender<FullBuffer>,
    empty: Receiver<Vec<u8>>,
    counters: Arc<LogCounters>,
}

impl WorkerLog {
    pub(crate) fn new(
        format: LogFormat,
        full: SyncSender<FullBuffer>,
        empty: Receiver<Vec<u8>>,
        counters: Arc<LogCounters>,
    ) -> Self {
        Self {
            format,
            clock: CivilClock::new(format, now(), wall_clock()),
            buffer: Vec::new(),
            lines: 0,
            dropped_before: 0,
            announced: 0,
            full,
            empty,
            counters,
        }
    }

    /// The form of its lines: only the combined format asks for `User-Agent` and `Referer`.
    pub const fn format(&self) -> LogFormat {
        self.format
    }

    /// Adds one line.
    pub fn record(&mut self, record: &AccessRecord<'_>) {
        if self.buffer.capacity() == 0 {
            self.buffer = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER_SIZE + BUFFER_SIZE / 8));
        }
        match self.format {
            LogFormat::Json => push_json(&mut self.buffer, record, &mut self.clock, self.dropped_before),
            LogFormat::Combined => push_combined(&mut self.buffer, record, &mut self.clock),
        }
        self.announced += std::mem::take(&mut self.dropped_before);
        self.lines += 1;
        if self.buffer.len() >= BUFFER_SIZE {
            self.hand_over();
        }
    }

    /// Hands over what has gathered, and follows the wall clock: the worker calls it whenever its timer ticks.
    pub fn flush(&mut self, now: Timestamp) {
        self.clock.set(now, wall_clock());
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let full = FullBuffer { bytes: std::mem::take(&mut self.buffer), lines: self.lines };
        self.lines = 0;
        match self.full.try_send(full) {
            Ok(()) => self.announced = 0,
            Err(
                TrySendError::Full(FullBuffer { bytes, lines })
                | TrySendError::Disconnected(FullBuffer { bytes, lines }),
            ) => {
                self.buffer = bytes;
                self.lines = lines;
                // A buffer that still has room waits for the next tick.
                if self.buffer.len() >= BUFFER_SIZE {
                    self.drop_lines();
                }
            }
        }
    }

    #[cold]
    fn drop_lines(&mut self) {
        self.buffer.clear();
        self.counters.dropped.fetch_add(self.lines, Ordering::Relaxed);
        self.dropped_before += self.lines + self.announced;
        self.lines = 0;
        self.announced = 0;
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.hand_over();
        if self.lines > 0 {
            self.drop_lines();
        }
    }
}
