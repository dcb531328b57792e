//! The names of servers, asked for again and again by the time that their answers are good for, each by a task of its own.
//!
//! It says what it finds and publishes nothing: the control loop does. It never stops asking, and never forgets an address
//! for want of a better one.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::pure::naming::{Name, Step};
use crate::transport::names::Resolver;

/// So many names are asked for at a time.
const LOOKUPS_MAX: usize = 32;

/// The most findings that wait.
const FOUND_MAX: usize = 64;

/// What is known of a name after an answer.
#[derive(Debug)]
pub struct Found {
    /// The host.
    pub host: Arc<str>,
    /// Its last good addresses; empty where there have been none yet.
    pub addresses: Vec<IpAddr>,
    /// Whether the resolver says that there is no such name, or no address of it.
    pub is_denied: bool,
}

/// The names that are asked for.
#[derive(Debug)]
pub struct Naming {
    servers: Vec<SocketAddr>,
    resolver: Rc<Resolver>,
    lookups: Rc<Semaphore>,
    tasks: HashMap<Arc<str>, Task>,
    found: mpsc::Sender<Found>,
}

/// A task that ends with this.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Naming {
    /// Nobody's names yet, and where the findings come out.
    pub fn new() -> (Self, mpsc::Receiver<Found>) {
        let (sender, receiver) = mpsc::channel(FOUND_MAX);
        let naming = Self {
            servers: Vec::new(),
            resolver: Rc::new(Resolver::new(&[])),
            lookups: Rc::new(Semaphore::new(LOOKUPS_MAX)),
            tasks: HashMap::new(),
            found: sender,
        };
        (naming, receiver)
    }

    /// Asks for these hosts from now on, and for no others, at these DNS servers. It must be called on a local runtime.
    pub fn follow(&mut self, hosts: &BTreeSet<Arc<str>>, servers: &[SocketAddr]) {
        if self.servers != servers {
            self.servers = servers.to_vec();
            self.resolver = Rc::new(Resolver::new(servers));
            // They ask the former servers.
            self.tasks.clear();
        }
        self.tasks.retain(|host, _| hosts.contains(host));
        for host in hosts {
            if !self.tasks.contains_key(host) {
                let asking =
                    ask(Arc::clone(host), Rc::clone(&self.resolver), Rc::clone(&self.lookups), self.found.clone());
                self.tasks.insert(Arc::clone(host), Task(tokio::task::spawn_local(asking)));
            }
        }
    }
}

/// Asks for a host for as long as somebody wants to know.
async fn ask(host: Arc<str>, resolver: Rc<Resolver>, lookups: Rc<Semaphore>, found: mpsc::Sender<Found>) {
    let mut name = Name::default();
    let (mut is_first, mut was_denied) = (true, false);
    loop {
        let Ok(permit) = lookups.acquire().await else { return };
        let answer = resolver.look_up(&host).await;
        drop(permit);
        let step = name.take(answer);
        tell(&host, &name, &step);
        if step.has_changed || is_first || step.is_denied != was_denied {
            (is_first, was_denied) = (false, step.is_denied);
            let (addresses, is_denied) = (name.addresses().to_vec(), step.is_denied);
            if found.send(Found { host: Arc::clone(&host), addresses, is_denied }).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(step.wait).await;
    }
}

fn tell(host: &str, name: &Name, step: &Step) {
    let list = || name.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match &step.trouble {
        Some(cause) if name.addresses().is_empty() => {
            tracing::warn!("the name {host} is not resolved, its servers are unavailable: {cause}");
        }
        Some(cause) => tracing::warn!("the name {host} is not resolved and keeps its addresses {}: {cause}", list()),
        None if step.has_changed => tracing::info!("the name {host} has the addresses {}", list()),
        None if step.is_over_trouble => tracing::info!("the name {host} is resolved again"),
        None => {}
    }
}
