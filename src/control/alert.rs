//! Alerts, delivered: by a thread for each webhook and each mail, out of a bounded queue, with a bounded number of tries.
//!
//! Whoever sends one never waits: what finds its queue full is dropped and counted. What is still under way when the process
//! ends is lost.

mod mail;
mod webhook;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use crate::base::hex::hex;
use crate::base::time;
use crate::control::passwords::Passwords;
use crate::pure::alert::target::Targets;
use crate::pure::alert::{Alert, AlertCounts};
use crate::shared::spaced::Spaced;
use crate::transport::tls::{SystemAuthorities, UpstreamTlsError};

/// The most alerts that wait at each place.
pub const QUEUE_MAX: usize = 64;
/// How long one try may take.
pub const TRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long is waited after each try that failed; after the last, the alert has.
const WAITS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];

/// An alert on its way.
#[derive(Clone, Debug)]
struct Message {
    alert: Alert,
    at: SystemTime,
    /// The same at each try, so that a receiver can know it again.
    id: String,
}

/// Why a try failed.
#[derive(Debug)]
struct Failure {
    why: String,
    /// Whether another try could do better.
    may_pass: bool,
}

/// A place that alerts are delivered to can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// TLS can't be set up.
    #[error("alerts to {target}: {cause}")]
    Tls {
        /// Where they should go.
        target: String,
        /// Why.
        cause: UpstreamTlsError,
    },
    /// A file with authorities can't be read.
    #[error("alerts to {target}: {}: {cause}", .file.display())]
    File {
        /// Where they should go.
        target: String,
        /// The file.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The mail library refuses.
    #[error("alerts to {target}: {why}")]
    Mail {
        /// Where they should go.
        target: String,
        /// Why.
        why: String,
    },
    /// A thread or its runtime can't be made.
    #[error("alerts: the system refuses: {0}")]
    System(#[from] io::Error),
}

/// What became of alerts.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sent: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    said: Spaced,
}

/// Delivers alerts. Its threads end once it is gone and what they have is delivered.
#[derive(Debug, Default)]
pub struct Alerter {
    queues: Vec<SyncSender<Arc<Message>>>,
    counters: Arc<Counters>,
}

impl Alerter {
    /// Sets every place up and starts its thread. Files are read now.
    ///
    /// # Errors
    /// [`AlertError`] for the first that can't be set up.
    pub fn start(targets: &Targets, passwords: &Passwords) -> Result<Self, AlertError> {
        Self::start_counting(targets, passwords, Arc::default())
    }

    /// The same in the place of another, whose counters go on.
    pub(super) fn start_counting(
        targets: &Targets,
        passwords: &Passwords,
        counters: Arc<Counters>,
    ) -> Result<Self, AlertError> {
        let mut alerter = Self { queues: Vec::new(), counters };
        let mut system = SystemAuthorities::default();
        for target in &targets.webhooks {
            let secret = target.secret_file.as_deref().and_then(|file| passwords.get(file));
            let poster = webhook::Poster::new(target, secret, &mut system)?;
            alerter.add(target.to_string(), move |message| poster.post(message))?;
        }
        for target in &targets.mails {
            let mailer = mail::Mailer::new(target, passwords, &mut system)?;
            alerter.add(target.to_string(), move |message| mailer.send(message))?;
        }
        Ok(alerter)
    }

    /// Its counters, for whoever takes its place.
    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Sends an alert to everybody.
    pub fn send(&self, alert: &Alert) {
        if self.queues.is_empty() {
            return;
        }
        let message = Arc::new(Message { alert: alert.clone(), at: time::wall_clock(), id: random_id() });
        for queue in &self.queues {
            if queue.try_send(Arc::clone(&message)).is_err() {
                self.counters.dropped.fetch_add(1, Ordering::Relaxed);
                if self.counters.said.is_due() {
                    tracing::error!("alerts are dropped: too many wait to be delivered");
                }
            }
        }
    }

    /// What became of them.
    pub fn counts(&self) -> AlertCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { sent, failed, dropped, said: _ } = &*self.counters;
        AlertCounts { sent: of(sent), failed: of(failed), dropped: of(dropped), held_back: 0 }
    }

    fn add(
        &mut self,
        name: String,
        deliver: impl Fn(&Message) -> Result<(), Failure> + Send + 'static,
    ) -> io::Result<()> {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let counters = Arc::clone(&self.counters);
        std::thread::Builder::new()
            .name("alert".to_owned())
            .spawn(move || serve(&name, &messages, &counters, deliver))?;
        self.queues.push(queue);
        Ok(())
    }
}

fn serve(
    name: &str,
    messages: &Receiver<Arc<Message>>,
    counters: &Counters,
    deliver: impl Fn(&Message) -> Result<(), Failure>,
) {
    while let Ok(message) = messages.recv() {
        match deliver_with_patience(&message, &deliver) {
            Ok(()) => counters.sent.fetch_add(1, Ordering::Relaxed),
            Err(why) => {
                tracing::error!("an alert did not arrive at {name}: {why}: {}", message.alert);
                counters.failed.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

fn deliver_with_patience(message: &Message, deliver: impl Fn(&Message) -> Result<(), Failure>) -> Result<(), String> {
    for wait in WAITS {
        match deliver(message) {
            Ok(()) => return Ok(()),
            Err(failure) if failure.may_pass => std::thread::sleep(wait),
            Err(failure) => return Err(failure.why),
        }
    }
    deliver(message).map_err(|failure| failure.why)
}

/// Sixteen random bytes in hexadecimal digits; where there are none, what a clock has.
fn random_id() -> String {
    let mut bytes = [0u8; 16];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        return format!("{:032x}", time::now().as_nanos());
    }
    hex(&bytes)
}

#[cfg(test)]
mod tests;
