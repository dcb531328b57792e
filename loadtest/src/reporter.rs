//! Agents beside the servers of an experiment: the real `pointsman-agent`, each a process of its own with the key of its server.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::backend::{Backend, Place};
use crate::child::Child;
use crate::experiment::Ground;
use crate::failure::{Failure, Outcome, While};
use crate::rival::full_name;

/// The keys of an experiment: one from which those of all servers follow.
pub struct Keys {
    /// The file that the proxy reads.
    pub master: PathBuf,
    pointsman: PathBuf,
    agent: PathBuf,
}

/// An agent; it ends when this is dropped.
pub struct Agent {
    child: Child,
}

impl Keys {
    /// Makes a new one.
    pub fn make(ground: &Ground) -> Outcome<Self> {
        let pointsman = ground.setting.pointsman.clone();
        let agent = pointsman.with_file_name("pointsman-agent");
        if !agent.is_file() {
            let missing = agent.display();
            return Err(Failure::new(format!("{missing} is missing: cargo build --release --bin pointsman-agent")));
        }
        let master = ground.site.path("feedback.key");
        if !master.is_file() {
            let mut key = [0; 32];
            aws_lc_rs::rand::fill(&mut key).doing(|| "drawing a key".to_owned())?;
            let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            write_secret(&master, &format!("{key}\n"))?;
        }
        Ok(Self { master, pointsman, agent })
    }

    /// The file with the keys of one server.
    fn of(&self, server: &str) -> Outcome<PathBuf> {
        let said =
            Command::new(&self.pointsman).arg("agent-key").arg(server).arg("--key-file").arg(&self.master).output();
        let said = said.doing(|| "starting pointsman agent-key".to_owned())?;
        if !said.status.success() {
            let why = String::from_utf8_lossy(&said.stderr).into_owned();
            return Err(Failure::new(format!("pointsman agent-key does not make a key: {why}")));
        }
        let file = self.master.with_file_name(format!("{}.key", server.replace('/', ".")));
        write_secret(&file, &String::from_utf8_lossy(&said.stdout))?;
        Ok(file)
    }

    /// Starts the agent of `backend`, as `wanted`.
    pub fn start_agent(&self, backend: &Backend, wanted: &Wanted<'_>, ground: &Ground) -> Outcome<Agent> {
        let server = full_name(&backend.serve);
        let name = server.replace('/', ".");
        let mut recipe = wanted
            .place
            .recipe(&self.agent)
            .arguments(["--report-to".to_owned(), wanted.to.to_string(), "--server".to_owned(), server.clone()])
            .argument("--key-file")
            .argument(self.of(&server)?)
            .arguments(["--service-port".to_owned(), backend.serve.address.port().to_string()])
            .arguments(["--connections-max".to_owned(), wanted.connections_max.to_string()])
            .errors(ground.site.append(&format!("{}.{name}.agent.stderr", wanted.to.port()))?);
        if wanted.is_classic {
            recipe = recipe.argument("--classic");
        }
        recipe = match (backend.group(), backend.process()) {
            (Some(group), _) => recipe.argument("--cgroup").argument(group),
            (None, Some(process)) => {
                let file = format!("{name}.pid");
                ground.site.write(&file, &format!("{process}\n"))?;
                recipe.argument("--pid-file").argument(ground.site.path(&file))
            }
            (None, None) => recipe,
        };
        let child = recipe.start().doing(|| format!("starting the agent of {server}"))?;
        Ok(Agent { child })
    }
}

/// What an agent is to be.
pub struct Wanted<'a> {
    /// Whom it reports to.
    pub to: SocketAddr,
    /// How many connections its server takes at a time.
    pub connections_max: usize,
    /// Whether it reports by the papers' rules.
    pub is_classic: bool,
    /// Where it lives.
    pub place: &'a Place,
}

impl Agent {
    /// Fails if it has ended.
    pub fn still_runs(&mut self) -> Outcome<()> {
        self.child.still_runs()
    }
}

fn write_secret(file: &PathBuf, text: &str) -> Outcome<()> {
    fs::write(file, text).doing(|| format!("writing {}", file.display()))?;
    fs::set_permissions(file, Permissions::from_mode(0o600)).doing(|| format!("closing {}", file.display()))
}
