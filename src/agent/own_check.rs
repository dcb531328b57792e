//! The agent's own HTTP check of its service: one request every second, each on a connection of its own. It tells the last word
//! and no more; what follows from it is others'.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::pure::feedback::own_check::{ANSWER_MAX, CheckUrl, is_good_answer};

/// Between two checks.
const EVERY: Duration = Duration::from_secs(1);
/// Between two checks after a bad one.
const EVERY_BAD: Duration = Duration::from_millis(250);
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// So many bad ones in a row count.
const FALL: u8 = 2;

const UNKNOWN: u8 = u8::MAX;

/// A check that goes on until it is dropped.
#[derive(Debug)]
pub struct OwnCheck {
    /// Bad checks in a row; [`UNKNOWN`] before the first.
    bad: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl OwnCheck {
    /// Begins to ask. Needs a runtime around it.
    pub fn begin(url: CheckUrl) -> Self {
        let bad = Arc::new(AtomicU8::new(UNKNOWN));
        let told = Arc::clone(&bad);
        let task = tokio::spawn(async move {
            let request = url.request();
            let mut count = 0u8;
            loop {
                let result = tokio::time::timeout(TIMEOUT, ask(&url, &request)).await;
                count = if matches!(result, Ok(Ok(true))) { 0 } else { count.saturating_add(1).min(UNKNOWN - 1) };
                told.store(count, Ordering::Relaxed);
                tokio::time::sleep(if count == 0 { EVERY } else { EVERY_BAD }).await;
            }
        });
        Self { bad, task }
    }

    /// Whether the service answers well; `None`: it has not been asked often enough.
    pub fn is_good(&self) -> Option<bool> {
        match self.bad.load(Ordering::Relaxed) {
            0 => Some(true),
            UNKNOWN => None,
            bad => (bad >= FALL).then_some(false),
        }
    }

    /// Forgets what was heard: the service has been started anew.
    pub fn forget(&self) {
        self.bad.store(UNKNOWN, Ordering::Relaxed);
    }
}

impl Drop for OwnCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask(url: &CheckUrl, request: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(url.address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(ANSWER_MAX);
    let mut rest = stream.take(ANSWER_MAX as u64);
    loop {
        let read = rest.read_buf(&mut answer).await?;
        match is_good_answer(&answer) {
            Some(is_good) => return Ok(is_good),
            None if read == 0 => return Ok(false),
            None => {}
        }
    }
}
