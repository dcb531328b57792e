//! The server behind the proxies: nginx with answers from memory, on the core of the load.

use std::time::Duration;

use crate::child::{Child, Recipe};
use crate::client;
use crate::clock;
use crate::failure::{Outcome, While};
use crate::site::Site;
use crate::template;

/// A running origin.
pub struct Origin {
    /// Where it listens.
    pub port: u16,
    _child: Child,
}

impl Origin {
    /// Starts it on `cores` and waits until it answers.
    pub fn start(site: &mut Site, cores: &str) -> Outcome<Self> {
        let port = site.free_port()?;
        let mut values = site.values();
        values.push(("ORIGIN_PORT", port.to_string()));
        let text = template::fill(include_str!("../configurations/origin.conf"), &[], &values);
        site.write("origin.conf", &text.doing(|| "filling origin.conf".to_owned())?)?;
        let mut child = Recipe::new("nginx", cores)
            .argument("-p")
            .argument(site.path(""))
            .arguments(["-e", "stderr", "-c"])
            .argument(site.path("origin.conf"))
            .errors(site.append("origin.stderr")?)
            .start()?;
        clock::wait_for("an answer of the origin", Duration::from_secs(5), || {
            child.still_runs()?;
            Ok(client::answers(port).then_some(()))
        })
        .doing(|| format!("starting the origin (it said: {})", site.tail("origin.stderr")))?;
        Ok(Self { port, _child: child })
    }
}
