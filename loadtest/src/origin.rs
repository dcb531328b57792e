//! The servers behind the proxies, on the core of the load: nginx with answers from memory, and one of our own for gRPC.

use std::net::TcpStream;
use std::time::Duration;

use crate::child::{Child, Recipe};
use crate::client;
use crate::clock;
use crate::failure::{Outcome, While};
use crate::site::Site;
use crate::template;

/// Running origins.
pub struct Origin {
    /// Where it listens.
    pub port: u16,
    /// Where it speaks HTTP/2, without TLS.
    pub h2c_port: u16,
    /// Where gRPC is answered.
    pub grpc_port: u16,
    _children: [Child; 2],
}

impl Origin {
    /// Starts them on `cores` and waits until they answer.
    pub fn start(site: &mut Site, cores: &str) -> Outcome<Self> {
        let (port, h2c_port) = (site.free_port()?, site.free_port()?);
        let mut values = site.values();
        values.push(("ORIGIN_PORT", port.to_string()));
        values.push(("ORIGIN_H2C_PORT", h2c_port.to_string()));
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
        let grpc_port = site.free_port()?;
        let own = std::env::current_exe().doing(|| "looking for this program".to_owned())?;
        let grpc = Recipe::new(own, cores).argument("grpc-origin").argument(grpc_port.to_string()).start()?;
        clock::wait_for("the origin of gRPC", Duration::from_secs(5), || {
            Ok(TcpStream::connect(("127.0.0.1", grpc_port)).is_ok().then_some(()))
        })?;
        Ok(Self { port, h2c_port, grpc_port, _children: [child, grpc] })
    }
}
