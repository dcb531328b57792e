//! The servers behind the demo: eight of them in three pools, on one thread of their own, each on a free loopback port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::operator::demo::answers;

/// The pools and the names of their servers.
const POOLS: [(Kind, &str, &[&str]); 3] = [
    (Kind::Pages, "pages", &["page-1", "page-2", "page-3"]),
    (Kind::Images, "images", &["image-1", "image-2"]),
    (Kind::Api, "api", &["api-1", "api-2", "api-3"]),
];

/// What a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pages,
    Images,
    Api,
}

impl Kind {
    fn router(self, name: &'static str) -> Router {
        match self {
            Self::Pages => answers::pages(name),
            Self::Images => answers::images(name),
            Self::Api => answers::api(name),
        }
    }
}

/// A pool of running servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) name: &'static str,
    /// Their names and addresses.
    pub(super) servers: Vec<(&'static str, SocketAddr)>,
}

/// The running servers; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Servers {
    pub(super) pools: Vec<Pool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Servers {
    /// Binds all ports, then starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut pools = Vec::with_capacity(POOLS.len());
        for (kind, name, servers) in POOLS {
            let mut pool = Pool { name, servers: Vec::with_capacity(servers.len()) };
            for server in servers {
                let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
                pool.servers.push((server, listener.local_addr()?));
                let router = kind.router(server);
                runtime.spawn(async move { axum::serve(listener, router).await });
            }
            pools.push(pool);
        }
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("demo-servers".to_owned()).spawn(move || {
            // Whichever way the other end goes, it is over.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { pools, stop: Some(stop), thread: Some(thread) })
    }

    /// How many servers there are.
    pub(super) fn count(&self) -> usize {
        self.pools.iter().map(|pool| pool.servers.len()).sum()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of a demo server has been said already.
            let _ = thread.join();
        }
    }
}
