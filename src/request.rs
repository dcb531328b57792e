//! Request layer: the line from an accepted connection to a settled account.
//!
//! `listener → tls → connection → exchange: head → rule → scheduler → upstream → forward → account`. Every part
//! belongs to one worker thread: nothing here is locked, and nothing wakes another thread. It refuses to know the control
//! layer: the two meet at the snapshot, at outcomes and at counters.
pub mod access_log;
pub mod account;
pub mod buffers;
pub mod clock;
pub mod connection;
pub mod date;
pub mod deadlines;
pub mod exchange;
pub mod h2_body;
pub mod h2_server;
pub mod listener;
pub mod process;
pub mod proxy_header;
pub mod spares;
pub mod stream;
pub mod tunnel;
pub mod upstream;
pub mod worker;

#[cfg(test)]
mod tests;
