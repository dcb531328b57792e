//! The access log: one line for each request, as JSON or in the combined format.
//!
//! A worker formats a line straight into its own buffer ([`WorkerLog::record`]): no lock, no allocation, no clock read. It
//! hands whole buffers to the log's thread through a bounded queue, and the thread looks at the queues by timer, so
//! that handing over wakes nobody. The rule: the log never makes a request wait. Where the thread can't keep up, because
//! the disk is full or nobody reads the pipe, lines are dropped, counted ([`LogCounters`]) and owned up to.
//!
//! Bounds: [`line::LINE_MAX`] bytes a line, [`worker::BUFFER_SIZE`] a buffer, [`worker::QUEUE_LENGTH`] buffers a worker.
pub mod line;
pub mod record;
pub mod thread;
pub mod worker;

mod civil;
mod text;

pub use record::AccessRecord;
pub use thread::{LogCounters, LogError, LogHandle, LogThread, Unfinished};
pub use worker::WorkerLog;
