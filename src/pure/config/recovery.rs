//! `recovery { .. }` of a pool, and `machine ..` of its servers: what may be done to bring dead servers back, and to what. It
//! refuses steps that could never be taken, and two words on one machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::address::is_host_name;
use super::alert::secret;
use super::node::{Node, Value};
use super::places::SecretFile;
use super::pool::is_name;
use super::problem::{Problem, Problems};
use super::source::Place;
use crate::pure::pool::{Address, Server};
use crate::pure::recovery::plan::{Ipmi, MacAddress, Machine, Machines, Plan};

/// The port that magic packets are sent to: discard (RFC 863), as everybody does.
const WAKE_PORT: u16 = 9;
/// The program that is looked for where none is named.
const IPMITOOL: &str = "ipmitool";

/// Machines, with where they are described.
#[derive(Debug, Default)]
pub(super) struct MachineReader {
    /// Read so far.
    pub(super) machines: Machines,
    places: Vec<(Arc<str>, Place)>,
}

/// What may be done for the servers of a pool; `None`: nothing.
pub(super) fn read(pool: Node<'_>, problems: &mut Problems) -> Option<Plan> {
    let Some(node) = pool.child("recovery") else {
        if let Some(machine) = pool.children("server").find_map(|server| server.child("machine")) {
            let problem = Problem::at(&machine.place(), "nothing is ever done with this machine");
            let problem = problem.label("its pool has no `recovery`");
            problems.add(problem.help("write: recovery { wake-on-lan; ipmi } in the pool, or leave `machine` out"));
        }
        return None;
    };
    let switch = |name| node.setting(name).and_then(|value| value.switch());
    let wake_on_lan = node.child("wake-on-lan").and_then(|node| match node.setting("broadcast") {
        Some(value) => read_broadcast(value, problems),
        None => Some(SocketAddr::new(Ipv4Addr::BROADCAST.into(), WAKE_PORT)),
    });
    let ipmi = node.child("ipmi").map(|node| {
        let program = node.setting("program").and_then(|value| Some((value, value.text()?)));
        match program {
            Some((value, text)) if text.contains('/') => value.beside(text),
            Some((_, text)) if !text.is_empty() => text.into(),
            Some(_) | None => IPMITOOL.into(),
        }
    });
    let plan = Plan {
        restart: switch("restart").unwrap_or(true),
        wake_on_lan,
        ipmi,
        is_dry_run: switch("dry-run") == Some(true),
    };
    check_steps(pool, node, &plan, problems);
    Some(plan)
}

/// Whether each step of the plan has something to work on, and each machine a step.
fn check_steps(pool: Node<'_>, node: Node<'_>, plan: &Plan, problems: &mut Problems) {
    if !plan.restart && node.child("wake-on-lan").is_none() && node.child("ipmi").is_none() {
        let problem = Problem::at(&node.place(), "this `recovery` does nothing").label("nothing is left to do");
        problems.add(problem.help("leave `restart #false` out, or add `wake-on-lan` or `ipmi`"));
    }
    let machines = || pool.children("server").filter_map(|server| server.child("machine"));
    for (step, detail, example) in
        [("wake-on-lan", "mac", r#"machine mac="00:1b:21:aa:bb:cc""#), ("ipmi", "ipmi", r#"machine ipmi="10.0.9.1""#)]
    {
        let described = machines().find_map(|machine| machine.setting(detail));
        match (node.child(step), described) {
            (Some(step_node), None) => {
                let message = format!("no server of this pool has a machine with `{detail}`");
                let problem = Problem::at(&step_node.place(), message).label("could never be done");
                problems.add(problem.help(format!("add to a server: {example}")));
            }
            (None, Some(value)) => {
                let message = format!("nothing uses this: the pool's `recovery` has no `{step}`");
                problems
                    .add(Problem::at(&value.place(), message).label("not used").help(format!("add `{step}` there")));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

fn read_broadcast(value: Value<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    let text = value.text()?;
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, WAKE_PORT)).or_else(|_| text.parse());
    let address = address.ok().filter(|address: &SocketAddr| address.port() != 0 && !address.ip().is_unspecified());
    if address.is_none() {
        let problem = Problem::at(&value.place(), format!("`{text}` is no address to send magic packets to"));
        problems.add(problem.label("not this").help("the broadcast address of the machines' network: \"10.0.0.255\""));
    }
    address
}

impl MachineReader {
    /// Reads the machine of a server, what it says of it and where it is.
    pub(super) fn read(
        &mut self,
        node: Node<'_>,
        server: &Server,
        secrets: &mut Vec<SecretFile>,
        problems: &mut Problems,
    ) {
        let machine = node.child("machine");
        let given = machine.and_then(|machine| machine.argument(0));
        let given =
            given.filter(|value| value.text().is_some_and(|text| is_name(text, value.place(), "machine", problems)));
        let name: Arc<str> = given.and_then(|value| value.text()).map_or_else(|| host_of(&server.address), Arc::from);
        self.machines.put(server.id.clone(), &name);
        let Some(node) = machine else { return };
        let read = read_machine(node, &name, secrets, problems);
        let place = node.place();
        if read.mac.is_none() && read.ipmi.is_none() {
            return;
        }
        if let Some(known) = self.machines.get(&name).filter(|known| **known != read) {
            let problem = Problem::at(&place, format!("the machine `{}` is described twice", known.name));
            let problem = problem.label("and differently");
            let first = self.places.iter().find(|(known, _)| *known == name).map(|(_, place)| place);
            let problem = match first {
                Some(first) => problem.also(first, "first here"),
                None => problem,
            };
            problems.add(
                problem.help(
                    "servers with the same machine, or at the same address, are on one machine: describe it once",
                ),
            );
            return;
        }
        self.places.push((name, place));
        self.machines.describe(read);
    }
}

/// The machine at an address, where nothing else is said.
fn host_of(address: &Address) -> Arc<str> {
    match address {
        Address::Socket(address) if address.ip().to_canonical().is_loopback() => "localhost".into(),
        Address::Socket(address) => address.ip().to_canonical().to_string().into(),
        Address::Name(host, _) => host.as_str().into(),
        Address::Unix(_) => "localhost".into(),
    }
}

fn read_machine(node: Node<'_>, name: &Arc<str>, secrets: &mut Vec<SecretFile>, problems: &mut Problems) -> Machine {
    let mac = node.setting("mac").and_then(|value| {
        let text = value.text()?;
        let mac = MacAddress::parse(text);
        if mac.is_none() {
            let problem = Problem::at(&value.place(), format!("`{text}` is no address of a network interface"));
            problems.add(problem.label("not this").help("such as \"00:1b:21:aa:bb:cc\", of one interface"));
        }
        mac
    });
    let password_file = node.setting("password-file").and_then(|value| secret(value, secrets));
    let user = node.setting("user").and_then(|value| Some(value.text()?.to_owned()));
    let board = node.setting("ipmi");
    let ipmi = board.and_then(|value| {
        let text = value.text()?;
        if !is_host_name(text) && text.parse::<IpAddr>().is_err() {
            let problem = Problem::at(&value.place(), format!("`{text}` is no host")).label("not this");
            problems.add(problem.help("the name or the address of the machine's board: \"10.0.9.1\""));
            return None;
        }
        Some(Ipmi { address: text.to_owned(), user: user.clone(), password_file: password_file.clone() })
    });
    for unused in ["user", "password-file"] {
        if let Some(value) = node.setting(unused).filter(|_| board.is_none()) {
            let problem = Problem::at(&value.place(), format!("`{unused}` is for IPMI")).label("`ipmi` is missing");
            problems.add(problem.help("write ipmi=\"10.0.9.1\" beside it"));
        }
    }
    Machine { name: Arc::clone(name), mac, ipmi }
}
