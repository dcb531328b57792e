//! What a host's name means: /etc/hosts first, then DNS servers, those of the rule file or of /etc/resolv.conf.
//!
//! It answers one question at a time and keeps nothing: what follows from an answer, and when to ask again, is said by
//! [`crate::pure::naming`]. No request ever waits for it.

use std::cell::RefCell;
use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::system_conf::parse_resolv_conf;

use crate::pure::naming::{Answer, Said, addresses_in_hosts};

/// How long one DNS server may take for one try.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a name may take, all servers, tries and search domains included.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a server that does not answer is asked again.
const REPETITIONS: usize = 1;

/// How long an answer of /etc/hosts is believed.
const HOSTS_TTL: Duration = Duration::from_secs(10);

/// So much of /etc/hosts, and of /etc/resolv.conf, is read.
const FILE_MAX: u64 = 1024 * 1024;

const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// A way to ask for names. It lives on one thread.
#[derive(Debug)]
pub struct Resolver {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The DNS servers of the rule file.
    Servers(Result<Rc<TokioResolver>, String>),
    /// Those of /etc/resolv.conf, read again when the file has changed.
    System(RefCell<SystemServers>),
}

#[derive(Debug, Default)]
struct SystemServers {
    modified: Option<SystemTime>,
    resolver: Option<Rc<TokioResolver>>,
}

impl Resolver {
    /// Asks these DNS servers, in this order; where there are none, those of /etc/resolv.conf.
    pub fn new(servers: &[SocketAddr]) -> Self {
        if servers.is_empty() {
            return Self { source: Source::System(RefCell::default()) };
        }
        let servers = servers.iter().map(|server| {
            let at_port = |mut connection: ConnectionConfig| {
                connection.port = server.port();
                connection
            };
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(at_port).into();
            NameServerConfig::new(server.ip(), true, connections)
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let resolver = build(config, ResolverOpts::default()).map_err(|error| error.to_string());
        Self { source: Source::Servers(resolver) }
    }

    /// Asks for all addresses of a host.
    pub async fn look_up(&self, host: &str) -> Answer {
        let hosts = read(Path::new(HOSTS)).map(|text| addresses_in_hosts(&text, host)).unwrap_or_default();
        if !hosts.is_empty() {
            return Answer::of_hosts(&hosts, HOSTS_TTL);
        }
        let resolver = match self.resolver() {
            Ok(resolver) => resolver,
            Err(cause) => return Answer { v4: Said::Unknown(cause.clone()), v6: Said::Unknown(cause) },
        };
        // Its memory knows no upper bound of ours, and we keep the answers ourselves.
        resolver.clear_cache();
        let ask = |kind| tokio::time::timeout(LOOKUP_TIMEOUT, resolver.lookup(host, kind));
        let (v4, v6) = tokio::join!(ask(RecordType::A), ask(RecordType::AAAA));
        let said = |result: Result<Result<_, NetError>, _>| match result {
            Ok(result) => said(result),
            Err(_elapsed) => Said::Unknown("the resolver does not answer".to_owned()),
        };
        Answer { v4: said(v4), v6: said(v6) }
    }

    fn resolver(&self) -> Result<Rc<TokioResolver>, String> {
        let system = match &self.source {
            Source::Servers(resolver) => return resolver.clone(),
            Source::System(system) => system,
        };
        let modified = fs::metadata(RESOLV_CONF).and_then(|metadata| metadata.modified()).ok();
        let mut system = system.borrow_mut();
        if let Some(resolver) = system.resolver.as_ref().filter(|_| system.modified == modified) {
            return Ok(Rc::clone(resolver));
        }
        let wrap = |error: &dyn std::fmt::Display| format!("{RESOLV_CONF}: {error}");
        let text = read(Path::new(RESOLV_CONF)).map_err(|error| wrap(&error))?;
        let (config, options) = parse_resolv_conf(text).map_err(|error| wrap(&error))?;
        let resolver = build(config, options).map_err(|error| wrap(&error))?;
        *system = SystemServers { modified, resolver: Some(Rc::clone(&resolver)) };
        Ok(resolver)
    }
}

fn build(config: ResolverConfig, mut options: ResolverOpts) -> Result<Rc<TokioResolver>, NetError> {
    options.use_hosts_file = ResolveHosts::Never;
    options.timeout = options.timeout.min(TRY_TIMEOUT);
    options.attempts = options.attempts.min(REPETITIONS);
    options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.with_options(options).build().map(Rc::new)
}

fn said(result: Result<hickory_resolver::lookup::Lookup, NetError>) -> Said {
    let lookup = match result {
        Ok(lookup) => lookup,
        Err(error) if error.is_no_records_found() => return Said::Nothing,
        Err(error) => return Said::Unknown(error.to_string()),
    };
    let records = lookup.answers();
    // `0.0.0.0` and `::` are how some resolvers say no; to connect to them would reach this machine.
    let addresses = records.iter().filter_map(|record| record.data.ip_addr());
    let found: Vec<_> = addresses.filter(|address| !address.is_unspecified()).collect();
    // The aliases on the way to an address are answers with a time of their own.
    let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
    if found.is_empty() { Said::Nothing } else { Said::Found(found, Duration::from_secs(u64::from(ttl))) }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
