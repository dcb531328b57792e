//! The ways to choose a server that are compared: Pointsman's schedulers and those of its peers, each with the configuration that its
//! manual gives for the purpose, and how a proxy with one is started.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

use crate::accounting;
use crate::alarm::Alarm;
use crate::child::Child;
use crate::failure::{Failure, Outcome, While};
use crate::open_loop;
use crate::proxy::{Product, Proxy, Setting};
use crate::site::Site;
use crate::template;

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A way to choose a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Contender {
    /// Pointsman, each in turn.
    Rr,
    /// Pointsman, the fewest requests in flight.
    Wlc,
    /// Pointsman, by the hash of the path.
    Dh,
    /// Pointsman, locality with replicas.
    Lblcr,
    /// Pointsman, consistent hashing with bounded loads.
    ChBl,
    /// Pointsman, cost-bounded rendezvous.
    Cbr,
    /// Pointsman, the fewest requests in flight for what a server was seen to do.
    FbWlc,
    /// nginx, `hash $uri consistent`.
    NginxHash,
    /// nginx, `least_conn`.
    NginxLeastConn,
    /// HAProxy, `balance uri` and `hash-type consistent`.
    HaproxyUri,
    /// The same with `hash-balance-factor 125`.
    HaproxyBounded,
    /// HAProxy, `balance leastconn`.
    HaproxyLeastconn,
}

impl Contender {
    /// Those that the experiment about caches compares.
    pub const CACHE: [Self; 9] = [
        Self::Rr,
        Self::Wlc,
        Self::Dh,
        Self::Lblcr,
        Self::ChBl,
        Self::Cbr,
        Self::NginxHash,
        Self::HaproxyUri,
        Self::HaproxyBounded,
    ];

    /// Those that the experiment about uneven servers compares.
    pub const UNEVEN: [Self; 4] = [Self::Wlc, Self::FbWlc, Self::NginxLeastConn, Self::HaproxyLeastconn];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rr => "Pointsman rr",
            Self::Wlc => "Pointsman wlc",
            Self::Dh => "Pointsman dh",
            Self::Lblcr => "Pointsman lblcr",
            Self::ChBl => "Pointsman ch-bl",
            Self::Cbr => "Pointsman cbr",
            Self::FbWlc => "Pointsman fb-wlc",
            Self::NginxHash => "nginx hash consistent",
            Self::NginxLeastConn => "nginx least_conn",
            Self::HaproxyUri => "HAProxy uri consistent",
            Self::HaproxyBounded => "HAProxy uri, factor 125",
            Self::HaproxyLeastconn => "HAProxy leastconn",
        }
    }

    /// Whose it is.
    pub fn product(self) -> Product {
        match self {
            Self::Rr | Self::Wlc | Self::Dh | Self::Lblcr | Self::ChBl | Self::Cbr | Self::FbWlc => Product::Pointsman,
            Self::NginxHash | Self::NginxLeastConn => Product::Nginx,
            Self::HaproxyUri | Self::HaproxyBounded | Self::HaproxyLeastconn => Product::Haproxy,
        }
    }

    /// Whether it is a peer's consistent hashing without a bound.
    pub fn is_plain_hash(self) -> bool {
        matches!(self, Self::NginxHash | Self::HaproxyUri)
    }

    /// The scheduler of a pool, for Pointsman; for a peer the mark of its lines.
    fn choice(self) -> &'static str {
        match self {
            Self::Rr => r#""rr""#,
            Self::Wlc => r#""wlc""#,
            Self::Dh => r#""dh" key="path""#,
            Self::Lblcr => r#""lblcr" key="path""#,
            Self::ChBl => r#""ch-bl" key="path""#,
            Self::Cbr => r#""cbr" key="path""#,
            Self::FbWlc => r#""fb-wlc""#,
            Self::NginxHash => "hash",
            Self::NginxLeastConn | Self::HaproxyLeastconn => "leastconn",
            Self::HaproxyUri => "uri",
            Self::HaproxyBounded => "bounded",
        }
    }

    /// The weight of each server. All are the same, but lblcr calls a server overloaded that has more in flight than its weight: it gets
    /// the one with which it does best.
    fn weight(self) -> u16 {
        if self == Self::Lblcr { 8 } else { 1 }
    }
}

impl std::fmt::Display for Contender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// Some of the servers, and who gets to them.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: &'static str,
    /// The media type of what is asked for; without one, everything.
    pub media_type: Option<&'static str>,
    /// Its servers, by number.
    pub servers: Range<usize>,
    /// How one of them is chosen.
    pub scheduler: Contender,
}

impl Pool {
    /// All of `servers` servers for everything.
    pub fn of_all(servers: usize, scheduler: Contender) -> Self {
        Self { name: "all", media_type: None, servers: 0..servers, scheduler }
    }
}

/// A running proxy.
pub struct Balancer {
    /// Where it listens.
    pub port: u16,
    /// What it says goes there.
    pub said: PathBuf,
    child: Child,
    processes: Vec<u32>,
}

impl Balancer {
    /// Starts a proxy with these `pools` before servers on `ports`, and waits until it passes on an answer.
    pub async fn start(
        pools: &[Pool],
        ports: &[u16],
        setting: &Setting,
        site: &mut Site,
        alarm: &Alarm,
    ) -> Outcome<Self> {
        let product = pools.first().map_or(Product::Pointsman, |pool| pool.scheduler.product());
        let port = site.free_port()?;
        let file = configure(product, pools, ports, port, site)?;
        Self::launch(product, &file, port, setting, site, alarm).await
    }

    /// Starts `product` with the configuration in `file`, which listens on `port`, and waits until it passes on an answer.
    pub async fn launch(
        product: Product,
        file: &Path,
        port: u16,
        setting: &Setting,
        site: &Site,
        alarm: &Alarm,
    ) -> Outcome<Self> {
        let errors = format!("{port}.stderr");
        let mut child = Proxy::recipe(product, setting, site, file).errors(site.append(&errors)?).start()?;
        let name = product.name();
        let until = alarm.now() + PATIENCE;
        while !open_loop::is_served(port, alarm).await {
            let runs = child.still_runs().and_then(|()| crate::clock::go_on());
            runs.doing(|| format!("starting {name} (it said: {})", site.tail(&errors)))?;
            if alarm.now() > until {
                return Err(Failure::new(format!("no answer of {name} (it said: {})", site.tail(&errors))));
            }
            alarm.sleep(Duration::from_millis(10)).await;
        }
        let processes = accounting::tree_of(child.id())?;
        Ok(Self { port, said: site.path(&errors), child, processes })
    }

    /// Fails if it has ended.
    pub fn still_runs(&mut self) -> Outcome<()> {
        self.child.still_runs()
    }

    /// Reads the processor time that it has used so far.
    pub fn meter(&self) -> impl Fn() -> Outcome<Duration> + use<> {
        let processes = self.processes.clone();
        move || accounting::processor_time(&processes)
    }
}

fn configure(product: Product, pools: &[Pool], ports: &[u16], port: u16, site: &Site) -> Outcome<PathBuf> {
    let (name, text) = match product {
        Product::Pointsman => ("farm.kdl", include_str!("../configurations/farm.kdl")),
        Product::Nginx => ("farm.nginx.conf", include_str!("../configurations/farm.nginx.conf")),
        Product::Haproxy => ("farm.haproxy.cfg", include_str!("../configurations/farm.haproxy.cfg")),
    };
    let mut values = site.values();
    values.push(("PORT", port.to_string()));
    let mut marks = Vec::new();
    match (product, pools) {
        (Product::Pointsman, _) => values.push(("POOLS", pools_of_rules(pools, ports))),
        (Product::Nginx | Product::Haproxy, [pool]) => {
            marks.push(pool.scheduler.choice());
            values.push(("SERVERS", servers_of_peer(product, ports)));
        }
        (Product::Nginx | Product::Haproxy, _) => return Err(Failure::new("peers have one pool here")),
    }
    let file = format!("{port}.{name}");
    site.write(&file, &template::fill(text, &marks, &values).doing(|| format!("filling {name}"))?)?;
    Ok(site.path(&file))
}

/// The pools and the rules, as Pointsman reads them.
fn pools_of_rules(pools: &[Pool], ports: &[u16]) -> String {
    let (mut text, mut rules) = (String::new(), String::new());
    for pool in pools {
        let _ = writeln!(text, "pool \"{}\" {{", pool.name);
        for (number, port) in ports.iter().enumerate().filter(|(number, _)| pool.servers.contains(number)) {
            let weight = pool.scheduler.weight();
            let _ = writeln!(text, "    server \"s{}\" \"127.0.0.1:{port}\" weight={weight}", number + 1);
        }
        let _ = writeln!(text, "    scheduler {}", pool.scheduler.choice());
        text.push_str("    upstream \"http/1.1\" idle-max=512 idle-timeout=\"60s\"\n");
        text.push_str("    timeout connect=\"2s\" response=\"60s\"\n}\n");
        let predicate = pool.media_type.map_or(String::new(), |media| format!(" media-type=\"{media}\""));
        let _ = writeln!(rules, "rule{predicate} use=\"{}\"", pool.name);
    }
    text + &rules
}

fn servers_of_peer(product: Product, ports: &[u16]) -> String {
    let line = |(number, port): (usize, &u16)| match product {
        Product::Nginx => format!("        server 127.0.0.1:{port};"),
        Product::Haproxy | Product::Pointsman => format!("    server s{} 127.0.0.1:{port}", number + 1),
    };
    ports.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_become_a_rule_file_and_the_last_takes_the_rest() {
        let pools = [
            Pool { name: "images", media_type: Some("image/*"), servers: 0..1, scheduler: Contender::Cbr },
            Pool { name: "rest", media_type: None, servers: 1..2, scheduler: Contender::Lblcr },
        ];
        let text = pools_of_rules(&pools, &[81, 82]);
        for line in [
            "    server \"s1\" \"127.0.0.1:81\" weight=1",
            "    scheduler \"cbr\" key=\"path\"",
            "    server \"s2\" \"127.0.0.1:82\" weight=8",
            "rule media-type=\"image/*\" use=\"images\"",
            "rule use=\"rest\"",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} in\n{text}");
        }
        assert!(text.ends_with("rule use=\"rest\"\n"));
    }

    #[test]
    fn each_variant_of_a_peer_has_lines_of_its_own() {
        let nginx = include_str!("../configurations/farm.nginx.conf");
        let haproxy = include_str!("../configurations/farm.haproxy.cfg");
        for contender in Contender::value_variants() {
            let known = match contender.product() {
                Product::Pointsman => continue,
                Product::Nginx => template::knows(nginx, contender.choice()),
                Product::Haproxy => template::knows(haproxy, contender.choice()),
            };
            assert!(known, "{contender}");
        }
    }
}
