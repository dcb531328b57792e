//! From an entry to a [`Config`]: files to nodes, nodes held against the language, then listeners and pools, and last what
//! refers to them. Nothing stops at the first error.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::files::{MemoryFiles, RuleFiles};
use super::include::{self, Expanded};
use super::limit_table::Settings;
use super::limits::{self, Site};
use super::names::{Names, Unique};
use super::node::Node;
use super::places::{Places, PoolPlaces, RulePlaces, UpstreamTlsPlaces};
use super::problem::{ConfigErrors, Problem, Problems};
use super::recovery::MachineReader;
use super::source::Place;
use super::{
    AccessLog, Config, LogFormat, address, admin, alert, expect, identity_fields, listener, listening, pool, rule,
    shape,
};
use crate::base::id::{ListenerIndex, PoolIndex};
use crate::pure::pool::Pool;

/// Reads the rule file or folder `entry` with all that it includes.
///
/// # Errors
/// Every error of every file, in reading order.
pub fn load(files: &dyn RuleFiles, entry: &Path) -> Result<Config, ConfigErrors> {
    let mut problems = Problems::default();
    let expanded = include::expand(files, entry, &mut problems);
    let mut loading = Loading { problems, names: Names::default(), config: empty() };
    loading.names.is_incomplete = expanded.is_incomplete;
    loading.read(&expanded, entry);
    match loading.problems.into_errors() {
        None => Ok(loading.config),
        Some(errors) => Err(errors),
    }
}

/// Reads one rule file that is called `rules.kdl` from its text: for tests, and for the fuzz target `rule_file`.
///
/// # Errors
/// Every error of the text.
pub fn load_text(text: &str) -> Result<Config, ConfigErrors> {
    load(&MemoryFiles::one("rules.kdl", text), Path::new("rules.kdl"))
}

fn empty() -> Config {
    Config {
        listeners: Vec::new(),
        pools: Vec::new(),
        rules: Vec::new(),
        expects: Vec::new(),
        workers: None,
        resolvers: Vec::new(),
        user: None,
        secret: None,
        access_log: None,
        admin: None,
        feedback: None,
        alert: Arc::default(),
        machines: Arc::default(),
        process: Settings::default().process,
        places: Places::default(),
    }
}

fn body_max_place<'a>(mut limits: impl Iterator<Item = Node<'a>>) -> Option<Place> {
    limits.find_map(|node| node.setting("body-max")).map(|value| value.place())
}

/// The first `persist` of a pool whose choices outlive the process only with a secret.
fn needs_secret(pool: Node<'_>) -> Option<Place> {
    let is_sealed = |node: &Node<'_>| {
        let word = node.argument(0).and_then(|value| value.text());
        node.setting("cookie").is_some() || word == Some("tls-session")
    };
    pool.children("persist").find(is_sealed).map(|node| node.place())
}

struct Loading {
    problems: Problems,
    names: Names,
    config: Config,
}

impl Loading {
    fn read(&mut self, expanded: &Expanded, entry: &Path) {
        let nodes: Vec<Node<'_>> = expanded.nodes.iter().map(|(source, kdl)| Node { source, kdl }).collect();
        let named = |name: &'static str| nodes.iter().copied().filter(move |node| node.name() == name);
        for node in &nodes {
            shape::check_top(*node, &mut self.problems);
        }
        for name in ["workers", "user", "access-log", "resolver", "secret", "admin", "alert", "feedback"] {
            self.check_single(name, named(name));
        }
        let mut top = Settings::default();
        limits::read(named("limits"), Site::Top, &mut top, &mut self.problems);
        self.config.process = top.process;
        self.listeners(named("listen"), &top);
        let body_max = body_max_place(named("limits"));
        for places in &mut self.config.places.listeners {
            places.body_max = places.body_max.take().or_else(|| body_max.clone());
        }
        self.pools(named("pool"));
        let rules = self.rules(named("rule"));
        identity_fields::guard(&mut self.config.rules);
        for node in named("expect") {
            if let Some(expect) = expect::read(node, &self.names, &rules, &mut self.problems) {
                self.config.expects.push(expect);
                self.config.places.expects.push(node.place());
            }
        }
        self.resolver(named("resolver").next());
        self.secret(named("secret").next());
        let admin = named("admin").next();
        self.config.admin = admin.and_then(|node| admin::read(node, &self.config.listeners, &mut self.problems));
        self.config.feedback = named("feedback").next().and_then(|node| listening::read(node, &mut self.problems));
        self.config.places.feedback_key = named("feedback").next().and_then(listening::key_place);
        if let Some(node) = named("alert").next() {
            let secrets = &mut self.config.places.secret_files;
            self.config.alert = Arc::new(alert::read(node, secrets, &mut self.problems));
        }
        self.process(named("workers").next(), named("user").next(), named("access-log").next());
        if named("listen").next().is_none() && !expanded.is_incomplete {
            let problem = Problem::nowhere(format!("{}: there is no `listen`", entry.display()));
            self.problems.add(problem.help("nothing would be served: listen \"127.0.0.1:8080\""));
        }
    }

    fn check_single<'a>(&mut self, name: &str, mut nodes: impl Iterator<Item = Node<'a>>) {
        let Some(first) = nodes.next() else { return };
        for node in nodes {
            let problem = Problem::at(&node.name_place(), format!("`{name}` is given twice")).label("again here");
            self.problems.add(problem.also(&first.name_place(), "first here").help("keep one of them"));
        }
    }

    fn listeners<'a>(&mut self, nodes: impl Iterator<Item = Node<'a>>, top: &Settings) {
        let mut unique = Unique::new("listener", "keep one of them, with what both should say");
        for node in nodes {
            let Some(listener) = listener::read(node, top, &mut self.problems) else {
                self.names.is_incomplete = true;
                continue;
            };
            let address = listener.address.clone();
            let is_new = address.socket().is_some_and(|address| address.port() == 0)
                || unique.note(&address.to_string(), node.place(), &mut self.problems);
            if !is_new {
                continue;
            }
            let text = node.argument(0).and_then(|value| value.text()).unwrap_or_default();
            let index = ListenerIndex(u32::try_from(self.config.listeners.len()).unwrap_or(u32::MAX));
            self.names.add_listener(text, address, index);
            self.config.listeners.push(listener);
            let tls = node.child("tls");
            let certificates: Vec<Node<'_>> = tls.iter().flat_map(|tls| tls.children("certificate")).collect();
            let shared_ca = tls.and_then(|tls| tls.child("client-ca")).map(|node| node.place());
            let client_ca =
                |node: &Node<'_>| node.child("client-ca").map(|node| node.place()).or_else(|| shared_ca.clone());
            self.config.places.listeners.push(super::places::ListenerPlaces {
                node: node.place(),
                client_cas: certificates.iter().map(client_ca).collect(),
                certificates: certificates.iter().map(Node::place).collect(),
                body_max: body_max_place(node.children("limits")),
                trusted_proxies: node.settings("trusted-proxies").map(|value| value.place()).collect(),
            });
        }
    }

    fn pools<'a>(&mut self, nodes: impl Iterator<Item = Node<'a>>) {
        let mut unique = Unique::new("pool", "give one of them another name");
        let mut machines = MachineReader::default();
        for node in nodes {
            let Some((value, name)) = node.argument(0).and_then(|value| Some((value, value.text()?))) else {
                self.names.is_incomplete = true;
                continue;
            };
            let is_name = pool::is_name(name, value.place(), "pool", &mut self.problems);
            let is_new = is_name && unique.note(name, value.place(), &mut self.problems);
            let name: Arc<str> = name.into();
            let pool = pool::read(node, &name, &mut self.problems);
            let speaks_tls = pool.upstream.tls.is_some();
            if is_new {
                self.machines_of(node, &pool, &mut machines);
                let index = PoolIndex(u32::try_from(self.config.pools.len()).unwrap_or(u32::MAX));
                self.names.add_pool(&name, index);
                self.config.pools.push(Arc::new(pool));
                let upstream = node.child("upstream").filter(|_| speaks_tls);
                let tls = upstream.and_then(|upstream| upstream.child("tls")).map(UpstreamTlsPlaces::of);
                let protocol = upstream.and_then(|upstream| upstream.argument(0)).map(|value| value.place());
                self.config.places.pools.push(PoolPlaces {
                    node: node.place(),
                    servers: node.children("server").map(|server| server.place()).collect(),
                    needs_secret: needs_secret(node),
                    check: node.child("check").map(|check| check.place()),
                    tls: tls.or_else(|| protocol.map(UpstreamTlsPlaces::implied)),
                    scheduler: node.child("scheduler").map(|node| node.place()),
                    recovery: node.child("recovery").map(|node| node.place()),
                });
            }
        }
        self.config.machines = Arc::new(machines.machines);
    }

    fn machines_of(&mut self, node: Node<'_>, pool: &Pool, machines: &mut MachineReader) {
        for server in &pool.servers {
            let name = |node: &Node<'_>| node.argument(0).and_then(|value| value.text()) == Some(&server.id.server);
            if let Some(node) = node.children("server").find(name) {
                machines.read(node, server, &mut self.config.places.secret_files, &mut self.problems);
            }
        }
    }

    /// Reads the rules and gives their names.
    fn rules<'a>(&mut self, nodes: impl Iterator<Item = Node<'a>>) -> HashSet<Arc<str>> {
        let mut unique = Unique::new("rule", "give one of them another name");
        let mut names = HashSet::new();
        for (index, node) in nodes.enumerate() {
            let given = node.argument(0).and_then(|value| Some((value.text()?, value.place())));
            let (text, place) = given.map_or_else(
                || (format!("rule-{}", index + 1), node.name_place()),
                |(text, place)| (text.to_owned(), place),
            );
            let name: Arc<str> = text.into();
            if pool::is_name(&name, place.clone(), "rule", &mut self.problems) {
                unique.note(&name, place, &mut self.problems);
            }
            names.insert(Arc::clone(&name));
            if let Some(rule) = rule::read(node, &name, &self.names, &mut self.problems) {
                self.config.rules.push(Arc::new(rule));
                self.config.places.rules.push(RulePlaces::of(node));
            }
        }
        names
    }

    fn resolver(&mut self, node: Option<Node<'_>>) {
        let servers = node.into_iter().flat_map(|node| node.arguments());
        self.config.resolvers = servers.filter_map(|value| address::resolver(value, &mut self.problems)).collect();
    }

    fn secret(&mut self, node: Option<Node<'_>>) {
        let Some(node) = node else { return };
        let Some(file) = node.setting("file") else {
            let problem = Problem::at(&node.place(), "the `secret` has no file").label("`file` is missing");
            self.problems.add(problem.help("write: secret file=\"/etc/pointsman/secret\""));
            return;
        };
        self.config.places.secret = Some(file.place());
        self.config.secret = file.text().map(|text| file.beside(text));
    }

    fn process(&mut self, workers: Option<Node<'_>>, user: Option<Node<'_>>, access_log: Option<Node<'_>>) {
        self.config.workers = workers.and_then(|node| node.argument(0)).and_then(|value| value.whole());
        if let Some((value, name)) =
            user.and_then(|node| node.argument(0)).and_then(|value| Some((value, value.text()?)))
            && pool::is_name(name, value.place(), "user", &mut self.problems)
        {
            self.config.user = Some(name.to_owned());
            self.config.places.user = Some(value.place());
        }
        let Some(node) = access_log else { return };
        let Some((value, file)) = node.argument(0).and_then(|value| Some((value, value.text()?))) else { return };
        if file.is_empty() {
            let problem = Problem::at(&value.place(), "the access log has no file").label("empty");
            self.problems.add(problem.help("\"-\" is standard output; without an `access-log` nothing is logged"));
        }
        let format = node.setting("format").and_then(|value| value.text());
        self.config.places.access_log = Some(value.place());
        self.config.access_log = Some(AccessLog {
            file: (file != "-").then(|| node.source.beside(file)),
            format: if format == Some("combined") { LogFormat::Combined } else { LogFormat::Json },
        });
    }
}
