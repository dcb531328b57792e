//! `pointsman run`: from a rule file to running threads, and from signals to their end.
//!
//! Nothing is half-started: every file is read, every certificate loaded and every port bound before the first thread
//! runs. A thread that dies takes the process with it: better none than one that answers for a part of its requests.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::unistd::User;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::base::id::ListenerIndex;
use crate::base::time;
use crate::control::control_loop::{self, Equipment, EquipmentError};
use crate::control::feedback;
use crate::control::inputs::{InputThreads, OpenInputs};
use crate::operator::admin::{Admin, AdminSocket};
use crate::operator::agent_key::{MasterKeyError, read_master};
use crate::operator::rule_files::DiskFiles;
use crate::operator::secret::{Secret, SecretError};
use crate::operator::status::Source;
use crate::pure::config::{self, Config, ConfigErrors, ListenAddress};
use crate::pure::pool::Verification;
use crate::pure::rule::compile::{CompileError, RuleSet};
use crate::request::access_log::{LogError, LogHandle, LogThread};
use crate::request::listener::{self, ListenError, Listener, Said, SocketFile};
use crate::request::process::Process;
use crate::request::worker::{self, Start};
use crate::shared::control_report::ControlReportStore;
use crate::shared::cookie_sealer::CookieSealer;
use crate::shared::counters::ProcessCounters;
use crate::shared::inbox::{Inbox, InboxError, ListeningSocket, Order};
use crate::shared::snapshot::SnapshotStore;
use crate::transport::tls::{
    AcceptorError, CertificateError, HTTP1, HTTP2, TicketSecret, TlsAcceptor, UpstreamTlsError, connectors,
    load_demanding,
};

/// Descriptors that are kept for what is not a client connection: logs, runtimes, checks.
const RESERVED_DESCRIPTORS: u64 = 64;
/// How long a start waits for the names of servers: then they go on being asked for, and their servers are unavailable.
const NAMES_WAIT: Duration = Duration::from_secs(3);
/// How often the threads are looked at.
const WATCH: Duration = Duration::from_millis(100);

/// Why the proxy did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The rule files are wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A rule can't be compiled.
    #[error(transparent)]
    Rules(#[from] CompileError),
    /// A certificate can't be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// TLS towards the servers of a pool can't be set up.
    #[error("the pool `{pool}`: {cause}")]
    UpstreamTls {
        /// The pool.
        pool: Arc<str>,
        /// Why.
        cause: UpstreamTlsError,
    },
    /// TLS can't be set up for a listener.
    #[error("{listener}: {cause}")]
    Tls {
        /// Its address.
        listener: String,
        /// Why.
        cause: AcceptorError,
    },
    /// The secret can't be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Alerts or recovery can't be set up.
    #[error(transparent)]
    Equipment(#[from] EquipmentError),
    /// There are no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// An address can't be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The master key of agents can't be used.
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    /// Reports can't be listened for.
    #[error(transparent)]
    Feedback(#[from] feedback::OpenError),
    /// The access log can't be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The configured user can't be become.
    #[error("can't run as user `{name}`: {cause}")]
    User {
        /// The name.
        name: String,
        /// Why.
        cause: nix::errno::Errno,
    },
    /// The configured user does not exist.
    #[error("there is no user `{0}`")]
    NoUser(String),
    /// A thread, a runtime or a signal handler could not be made.
    #[error("the system refuses: {0}")]
    System(#[from] std::io::Error),
    /// A worker does not take its sockets.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// A thread died.
    #[error("the thread `{0}` died: the process ends with it")]
    ThreadDied(String),
}

impl RunError {
    /// The exit code: 1 where the input was wrong, 3 where it could not be done.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Rules(_)
            | Self::Certificate(_)
            | Self::Tls { .. }
            | Self::UpstreamTls { .. }
            | Self::Secret(_)
            | Self::MasterKey(_)
            | Self::Equipment(EquipmentError::Password(_))
            | Self::NoUser(_) => 1,
            _ => 3,
        }
    }
}

/// Runs the proxy for a rule file, or a directory of them, until a signal ends it.
///
/// # Errors
/// [`RunError`] where it could not start, or a thread died.
pub fn run(entry: &Path) -> Result<(), RunError> {
    let config = Arc::new(config::load(&DiskFiles, entry)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything listens: whoever sees it listen may send one.
        let signals = Signals::new()?;
        start(config)?.serve(signals).await
    })
}

/// The running proxy, held by the main thread.
struct Running {
    inboxes: Vec<Inbox>,
    threads: Vec<(String, JoinHandle<()>)>,
    control: Option<control_loop::Handle>,
    inputs: InputThreads,
    log: Option<LogHandle>,
    admin: Option<Admin>,
    drain_timeout: Duration,
    /// Removed from the disk with this.
    _socket_files: Vec<SocketFile>,
}

fn start(config: Arc<Config>) -> Result<Running, RunError> {
    let descriptors = raise_descriptor_limit();
    let workers = config.workers.map_or_else(default_workers, usize::from);
    let secret = secret_of(&config)?;
    let tickets = TicketSecret::from_bytes(secret.bytes());
    let has_cookies = config.pools.iter().any(|pool| pool.persistence.as_ref().is_some_and(|it| it.cookie.is_some()));
    let sealer = has_cookies.then(|| CookieSealer::new(secret.bytes()));
    let rules = Arc::new(RuleSet::compile(config.rules.clone())?);
    // Before the user changes: keys may be root's.
    let connectors = connectors(&config.pools).map_err(|(pool, cause)| RunError::UpstreamTls { pool, cause })?;
    say_insecure(&config);
    let user = config.user.as_deref().map(find_user);
    let owner = user.as_ref().and_then(|user| user.as_ref().ok());
    let Opened { listeners, sockets, files } = open_listeners(&config, workers, &tickets, owner)?;
    let admin = config.admin.as_deref().map(|path| AdminSocket::open(path, owner)).transpose()?;
    let inputs = open_inputs(&config)?;
    // Before the user changes: the folder may be root's. The thread changes its user with all others.
    let log = config.access_log.as_ref().map(LogThread::start).transpose()?;
    let mut equipment = Equipment::of(&config)?;
    if let Some(user) = user {
        become_user(user?)?;
    }
    let counters = Arc::new(ProcessCounters::default());
    let store = Arc::new(SnapshotStore::new(Arc::clone(&config), rules, Arc::clone(&counters)));
    let connections_max = config.process.connections_max.unwrap_or_else(|| connections_for(descriptors, &sockets));
    let seed = random_seed().ok_or(RunError::Random)?;
    let shared = Process::new(config.process, connections_max, seed, counters);
    let shared = Arc::new(shared.with_connectors(connectors).with_sealer(sealer));

    let mut inboxes = Vec::with_capacity(workers);
    let mut threads = Vec::with_capacity(workers);
    for number in 0..workers {
        let (inbox, orders) = Inbox::new();
        inboxes.push(inbox);
        let thread = worker::start(Start {
            number,
            shared: Arc::clone(&shared),
            store: Arc::clone(&store),
            log: log.as_ref().map(LogHandle::worker),
            inbox: orders,
            listeners: listeners.clone(),
        })?;
        threads.push((format!("worker-{number}"), thread));
    }
    let reports = Arc::new(ControlReportStore::default());
    let source = Source {
        started: time::now(),
        workers,
        process: Arc::clone(&shared),
        store: Arc::clone(&store),
        reports: Arc::clone(&reports),
        log: log.as_ref().map(|log| Arc::clone(log.counters())),
    };
    let (inputs, input_threads) = inputs.start(&store)?;
    equipment.orders.clone_from(&inputs.orders);
    let control = control_loop::start(control_loop::Start {
        store,
        workers: inboxes.clone(),
        connectors: &shared.connectors,
        reports,
        equipment,
        inputs,
    })?;
    if !control.wait_for_names(NAMES_WAIT) {
        tracing::warn!("the names of some servers are not resolved yet: they are unavailable until they are");
    }
    give_sockets(&listeners, sockets, &inboxes)?;
    let admin = admin.map(|socket| socket.serve(source)).transpose()?;
    if let Some(path) = &config.admin {
        tracing::info!("operators may ask at unix:{}", path.display());
    }
    tracing::info!("{workers} workers, at most {connections_max} connections, {descriptors} descriptors");
    let drain_timeout = config.process.drain_timeout;
    let (control, inputs) = (Some(control), input_threads);
    Ok(Running { inboxes, threads, control, inputs, log, admin, drain_timeout, _socket_files: files })
}

/// Has every worker listen with its socket of each listener, and says where.
fn give_sockets(
    listeners: &[Arc<Listener>],
    sockets: Vec<Vec<ListeningSocket>>,
    inboxes: &[Inbox],
) -> Result<(), RunError> {
    for (listener, sockets) in listeners.iter().zip(sockets) {
        for (inbox, socket) in inboxes.iter().zip(sockets) {
            inbox.send(Order::Add { listener: listener.index, socket })?;
        }
        let scheme = listener.config.scheme();
        match &listener.config.address {
            ListenAddress::Socket(_) => tracing::info!("listening on {scheme}://{}", listener.local),
            unix @ ListenAddress::Unix(_) => tracing::info!("listening on {unix}, {scheme}"),
        }
    }
    Ok(())
}

/// What servers say of themselves: its key is read and its socket bound before the user changes.
fn open_inputs(config: &Config) -> Result<OpenInputs, RunError> {
    let master = config.feedback.as_ref().map(|feedback| read_master(&feedback.key_file)).transpose()?;
    Ok(OpenInputs::open(config, master)?)
}

/// The secret of the rule files, or one that ends with the process; that is said where it costs something.
fn secret_of(config: &Config) -> Result<Secret, RunError> {
    if let Some(file) = &config.secret {
        return Ok(Secret::read(file)?);
    }
    let needs = config.pools.iter().filter(|pool| pool.persistence.as_ref().is_some_and(|it| it.needs_secret()));
    for pool in needs {
        tracing::warn!(
            "the pool `{}` persists, and there is no `secret`: after a restart, and on a second node, its clients choose anew",
            pool.name
        );
    }
    Secret::random().map_err(|_| RunError::Random)
}

/// Says of which servers nobody knows who they are.
fn say_insecure(config: &Config) {
    for pool in &config.pools {
        if pool.upstream.tls.as_ref().is_some_and(|tls| tls.verification == Verification::Insecure) {
            tracing::warn!("the certificates of the servers of the pool `{}` are not verified: `insecure`", pool.name);
        }
    }
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn random_seed() -> Option<u64> {
    let mut bytes = [0u8; 8];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// Every client connection may need one to a server.
fn connections_for(descriptors: u64, sockets: &[Vec<ListeningSocket>]) -> u32 {
    let listening: usize = sockets.iter().map(Vec::len).sum();
    let left = descriptors.saturating_sub(RESERVED_DESCRIPTORS + listening as u64) / 2;
    u32::try_from(left.max(1)).unwrap_or(u32::MAX)
}

/// Raises the descriptor limit to what the system allows, and says what it is.
fn raise_descriptor_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    if soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!("the descriptor limit stays at {soft}: {error}");
        return soft;
    }
    hard
}

/// The listeners, with a socket of each for every worker.
struct Opened {
    listeners: Vec<Arc<Listener>>,
    sockets: Vec<Vec<ListeningSocket>>,
    files: Vec<SocketFile>,
}

/// Loads all certificates, then opens all sockets. Files are given to `user`.
fn open_listeners(
    config: &Config,
    workers: usize,
    secret: &TicketSecret,
    user: Option<&User>,
) -> Result<Opened, RunError> {
    let mut settings = Vec::with_capacity(config.listeners.len());
    for (index, listener) in (0..).zip(&config.listeners) {
        let Some(tls) = &listener.tls else {
            settings.push(None);
            continue;
        };
        let certificates = tls.certificates.iter().map(load_demanding).collect::<Result<Vec<_>, _>>()?;
        // In the order in which we would rather have them.
        let spoken = [(listener.protocols.http2, HTTP2), (listener.protocols.http1, HTTP1)];
        let alpn: Vec<&[u8]> = spoken.into_iter().filter_map(|(is_spoken, name)| is_spoken.then_some(name)).collect();
        let (address, has_identities) =
            (listener.address.stand_in().ip(), config.needs_session_identity(ListenerIndex(index)));
        let acceptor = TlsAcceptor::with_policies(&certificates, address, secret, &alpn, has_identities);
        settings.push(Some(acceptor.map_err(|cause| RunError::Tls { listener: listener.address.to_string(), cause })?));
    }
    let mut listeners = Vec::with_capacity(config.listeners.len());
    let mut sockets = Vec::with_capacity(config.listeners.len());
    let mut files = Vec::new();
    for (index, (listener, tls)) in config.listeners.iter().zip(settings).enumerate() {
        let (local, opened) = match &listener.address {
            ListenAddress::Socket(address) => {
                let (local, opened) = listener::open(*address, workers)?;
                (local, opened.into_iter().map(ListeningSocket::Tcp).collect())
            }
            ListenAddress::Unix(path) => {
                let owner = user.map(|user| (user.uid.as_raw(), user.gid.as_raw()));
                let (file, opened) = listener::open_unix(path, listener.mode, owner, workers)?;
                files.push(file);
                (listener.address.stand_in(), opened.into_iter().map(ListeningSocket::Unix).collect())
            }
        };
        let index = ListenerIndex(u32::try_from(index).unwrap_or(u32::MAX));
        let name = listener.address.to_string();
        listeners.push(Arc::new(Listener { index, name, config: listener.clone(), local, tls, said: Said::default() }));
        sockets.push(opened);
    }
    Ok(Opened { listeners, sockets, files })
}

fn find_user(name: &str) -> Result<User, RunError> {
    let wrap = |cause| RunError::User { name: name.to_owned(), cause };
    User::from_name(name).map_err(wrap)?.ok_or_else(|| RunError::NoUser(name.to_owned()))
}

/// Becomes that user, with all the groups that it is in. There is nothing to do, and nothing that would be allowed, where
/// the process is that user's already.
fn become_user(user: User) -> Result<(), RunError> {
    let shown = user.name.clone();
    let wrap = |cause| RunError::User { name: shown.clone(), cause };
    if user.uid == nix::unistd::Uid::effective() && user.uid == nix::unistd::Uid::current() {
        return Ok(());
    }
    let name = std::ffi::CString::new(user.name).map_err(|_| wrap(nix::errno::Errno::EINVAL))?;
    nix::unistd::initgroups(&name, user.gid).map_err(wrap)?;
    nix::unistd::setgid(user.gid).map_err(wrap)?;
    nix::unistd::setuid(user.uid).map_err(wrap)
}

/// The signals that the main thread waits for.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
    upgrade: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            upgrade: signal(SignalKind::user_defined2())?,
        })
    }
}

impl Running {
    async fn serve(mut self, mut signals: Signals) -> Result<(), RunError> {
        loop {
            tokio::select! {
                _ = signals.terminate.recv() => break,
                _ = signals.interrupt.recv() => break,
                _ = signals.hang_up.recv() => tracing::warn!("SIGHUP: reloading is not supported yet; nothing changes"),
                _ = signals.upgrade.recv() => tracing::warn!("SIGUSR2: upgrading is not supported yet; nothing changes"),
                _ = signals.reopen.recv() => self.reopen_log(),
                () = tokio::time::sleep(WATCH) => self.look_at_threads()?,
            }
        }
        tracing::info!("draining, for at most {:?}; a second signal ends at once", self.drain_timeout);
        self.order(|| Order::Drain);
        let deadline = tokio::time::Instant::now() + self.drain_timeout;
        let is_drained = loop {
            tokio::select! {
                _ = signals.terminate.recv() => break false,
                _ = signals.interrupt.recv() => break false,
                _ = signals.hang_up.recv() => {}
                _ = signals.upgrade.recv() => {}
                _ = signals.reopen.recv() => self.reopen_log(),
                () = tokio::time::sleep_until(deadline) => break false,
                () = tokio::time::sleep(WATCH / 10) => if self.threads.iter().all(|(_, thread)| thread.is_finished()) {
                    break true;
                },
            }
        };
        if is_drained {
            tracing::info!("drained");
        } else {
            tracing::warn!("ending what is still in flight");
            self.order(|| Order::Stop);
        }
        self.finish()
    }

    fn order(&self, order: impl Fn() -> Order) {
        for inbox in &self.inboxes {
            // A worker that is gone needs no order.
            let _ = inbox.send(order());
        }
    }

    fn reopen_log(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    fn look_at_threads(&self) -> Result<(), RunError> {
        let dead = self.threads.iter().find(|(_, thread)| thread.is_finished()).map(|(name, _)| name.clone());
        let control = self.control.as_ref().filter(|control| control.is_finished()).map(|_| "control".to_owned());
        let admin = self.admin.as_ref().filter(|admin| admin.is_finished()).map(|_| "admin".to_owned());
        let input = self.inputs.finished().map(str::to_owned);
        match dead.or(control).or(admin).or(input) {
            Some(name) => Err(RunError::ThreadDied(name)),
            None => Ok(()),
        }
    }

    /// Waits a little for the last threads and writes the log to its end.
    ///
    /// # Errors
    /// [`RunError::ThreadDied`] where a worker did not drain but die.
    fn finish(&mut self) -> Result<(), RunError> {
        let patience = time::now() + Duration::from_secs(1);
        while time::now() < patience && !self.threads.iter().all(|(_, thread)| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(log) = self.log.take()
            && log.stop(Duration::from_secs(1)).is_err()
        {
            tracing::warn!("the access log could not be written to its end");
        }
        if let Some(control) = self.control.take() {
            control.stop();
        }
        let ended = std::mem::take(&mut self.threads).into_iter().filter(|(_, thread)| thread.is_finished());
        match ended.filter_map(|(name, thread)| thread.join().is_err().then_some(name)).next() {
            Some(name) => Err(RunError::ThreadDied(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_opened_before_the_user_changes() {
        let folder = tempfile::tempdir().unwrap();
        let start_with = |log: &str| {
            let file = folder.path().join(log);
            let text = format!(
                "listen \"127.0.0.1:0\"\nrule respond=404\nuser \"nobody-of-that-name\"\naccess-log {:?}\n",
                file.display().to_string()
            );
            start(Arc::new(config::load_text(&text).unwrap())).err()
        };
        assert!(matches!(start_with("missing/access.log"), Some(RunError::Log(_))));
        assert!(matches!(start_with("access.log"), Some(RunError::NoUser(_))));
        assert!(folder.path().join("access.log").exists());
    }
}
