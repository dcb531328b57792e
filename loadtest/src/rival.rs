//! Who is compared where servers fail or are overloaded: Pointsman and its peers, each with the configuration of a variant, and how one is
//! started.

use std::net::SocketAddr;
use std::path::Path;

use crate::alarm::Alarm;
use crate::changes::Change;
use crate::contender::Balancer;
use crate::experiment::Ground;
use crate::failure::{Failure, Outcome, While};
use crate::proxy::Product;
use crate::serve::Serve;
use crate::template;

/// A variant of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its name on the command line.
    pub key: &'static str,
    /// Its name in a table.
    pub name: &'static str,
    /// Whose it is.
    pub product: Product,
    /// Lines of the pool, for Pointsman; for a peer the mark of its lines.
    pub lines: &'static str,
    /// Whether agents report to it.
    pub has_agents: bool,
    /// Whether they do by the papers' rules.
    pub has_classic_agents: bool,
    /// Whether it is a peer as it comes.
    pub is_default_peer: bool,
}

impl Rival {
    /// Pointsman with these lines in its pool.
    pub const fn pointsman(key: &'static str, name: &'static str, lines: &'static str) -> Self {
        Self {
            key,
            name,
            product: Product::Pointsman,
            lines,
            has_agents: true,
            has_classic_agents: false,
            is_default_peer: false,
        }
    }

    /// A peer with the lines of this mark.
    pub const fn peer(key: &'static str, name: &'static str, product: Product, mark: &'static str) -> Self {
        Self { key, name, product, lines: mark, has_agents: false, has_classic_agents: false, is_default_peer: false }
    }

    /// The same, as it comes.
    pub const fn as_it_comes(self) -> Self {
        Self { is_default_peer: true, ..self }
    }

    /// The same, and agents report by the papers' rules.
    pub const fn with_classic_agents(self) -> Self {
        Self { has_classic_agents: true, ..self }
    }

    /// The same, and no agent reports to it.
    pub const fn without_agents(self) -> Self {
        Self { has_agents: false, ..self }
    }
}

/// Those of `all` that were named, or all.
pub fn chosen(all: &[Rival], keys: &[String]) -> Outcome<Vec<Rival>> {
    if let Some(stranger) = keys.iter().find(|key| !all.iter().any(|rival| rival.key == key.as_str())) {
        let known: Vec<&str> = all.iter().map(|rival| rival.key).collect();
        return Err(Failure::new(format!("{stranger} is no part of this experiment: {}", known.join(", "))));
    }
    let is_wanted = |rival: &&Rival| keys.is_empty() || keys.iter().any(|key| key == rival.key);
    Ok(all.iter().filter(is_wanted).copied().collect())
}

/// A running variant.
pub struct Running {
    /// The proxy.
    pub balancer: Balancer,
    /// Where agents report to.
    pub reports_to: Option<SocketAddr>,
}

impl Running {
    /// Starts `rival` before `servers` and waits until it passes on an answer. Reports come in at `inbox`, where it has any; they are signed
    /// with keys that follow from the one in `key`.
    pub async fn start(
        rival: &Rival,
        servers: &[Serve],
        inbox: Option<Inbox<'_>>,
        ground: &mut Ground,
        alarm: &Alarm,
    ) -> Outcome<Self> {
        let port = ground.site.free_port()?;
        let (name, text) = match rival.product {
            Product::Pointsman => ("failures.kdl", include_str!("../configurations/failures.kdl")),
            Product::Nginx => ("failures.nginx.conf", include_str!("../configurations/failures.nginx.conf")),
            Product::Haproxy => ("failures.haproxy.cfg", include_str!("../configurations/failures.haproxy.cfg")),
        };
        let inbox = inbox.filter(|_| rival.has_agents);
        let mut values = ground.site.values();
        values.push(("PORT", port.to_string()));
        values.push(("SERVERS", servers_of(rival, servers)));
        values.push(("POOL", rival.lines.to_owned()));
        values.push(("FEEDBACK", inbox.as_ref().map(Inbox::node).unwrap_or_default()));
        let marks: &[&str] = if rival.product == Product::Pointsman { &[] } else { &[rival.lines] };
        let file = format!("{port}.{name}");
        ground.site.write(&file, &template::fill(text, marks, &values).doing(|| format!("filling {name}"))?)?;
        let file = ground.site.path(&file);
        let (setting, site) = (&ground.setting, &ground.site);
        let balancer = Balancer::launch(rival.product, &file, port, setting, site, alarm).await?;
        Ok(Self { balancer, reports_to: inbox.map(|inbox| inbox.address) })
    }

    /// What its log says of its servers so far; nothing, where it is a peer.
    pub fn changes(&self) -> Outcome<Vec<Change>> {
        let said = &self.balancer.said;
        let log = std::fs::read_to_string(said).doing(|| format!("reading {}", said.display()))?;
        Ok(Change::all_in(&log))
    }
}

/// Where reports come in.
pub struct Inbox<'a> {
    /// The address.
    pub address: SocketAddr,
    /// The file with the key that all others follow from.
    pub key: &'a Path,
}

impl Inbox<'_> {
    fn node(&self) -> String {
        // Agents of other namespaces have an address of the test's own.
        let sources = r#""127.0.0.0/8" "198.18.0.0/15""#;
        format!(
            "feedback \"{}\" {{\n    key-file \"{}\"\n    sources {sources}\n}}\n",
            self.address,
            self.key.display()
        )
    }
}

fn servers_of(rival: &Rival, servers: &[Serve]) -> String {
    let line = |serve: &Serve| {
        let (name, address) = (name_of(serve), serve.address);
        match rival.product {
            Product::Pointsman => format!("    server \"{name}\" \"{address}\""),
            Product::Nginx if rival.lines == "tuned" => {
                format!("        server {address} max_fails=1 fail_timeout=1s;")
            }
            Product::Nginx => format!("        server {address};"),
            Product::Haproxy => match serve.verdict.filter(|_| rival.lines == "poller") {
                Some(verdict) => {
                    format!("    server {name} {address} agent-addr {} agent-port {}", verdict.ip(), verdict.port())
                }
                None => format!("    server {name} {address}"),
            },
        }
    };
    servers.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The name of a server in its pool.
pub fn name_of(serve: &Serve) -> String {
    format!("s{}", serve.number + 1)
}

/// The name of a server in Pointsman's log.
pub fn full_name(serve: &Serve) -> String {
    format!("all/{}", name_of(serve))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(number: usize) -> Serve {
        Serve {
            address: SocketAddr::from(([127, 0, 0, 1], 81 + u16::try_from(number).unwrap())),
            number,
            slots: 1,
            waiting_max: 1,
            computes: false,
            verdict: Some(SocketAddr::from(([127, 0, 0, 1], 91))),
        }
    }

    #[test]
    fn each_product_gets_its_servers_in_its_own_words() {
        let servers = [serve(0), serve(1)];
        let pointsman = Rival::pointsman("pointsman", "Pointsman", "");
        assert_eq!(servers_of(&pointsman, &servers).lines().last(), Some("    server \"s2\" \"127.0.0.1:82\""));
        let nginx = Rival::peer("nginx", "nginx", Product::Nginx, "tuned");
        assert!(servers_of(&nginx, &servers).contains("server 127.0.0.1:81 max_fails=1 fail_timeout=1s;"));
        let poller = Rival::peer("poller", "a poller", Product::Haproxy, "poller");
        assert!(servers_of(&poller, &servers).contains("server s1 127.0.0.1:81 agent-addr 127.0.0.1 agent-port 91"));
        assert_eq!((name_of(&servers[1]), full_name(&servers[1])), ("s2".to_owned(), "all/s2".to_owned()));
    }

    #[test]
    fn only_those_that_were_named_are_measured_and_strangers_are_refused() {
        let all = [Rival::pointsman("a", "A", ""), Rival::pointsman("b", "B", "")];
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen(&all, &[]).unwrap().len(), 2);
        assert_eq!(chosen(&all, &keys(&["b"])).unwrap(), [all[1]]);
        assert!(chosen(&all, &keys(&["c"])).unwrap_err().to_string().contains("a, b"));
    }
}
