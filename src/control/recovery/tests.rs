//! Steps over real sockets and programs: what is sent, what is run, and that every end is told.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::control::agent_orders::agent_orders;
use crate::pure::pool::SchedulerConfig;
use crate::pure::recovery::plan::{Ipmi, MacAddress};
use crate::shared::endpoint::tests::endpoint;
use crate::shared::snapshot::tests::pool_of;

const PATIENCE: Duration = Duration::from_secs(20);
const MAC: MacAddress = MacAddress([0x02, 0x1b, 0x21, 0xaa, 0xbb, 0xcc]);

fn target(address: SocketAddr, plan: Plan, machine: Option<Machine>) -> Target {
    let endpoint = Arc::new(endpoint(Address::Socket(address), &[]));
    let pool = pool_of("p", SchedulerConfig::default(), &[]);
    Target { endpoint, pool, plan: Arc::new(plan), machine }
}

const fn nothing() -> Plan {
    Plan { restart: true, wake_on_lan: None, ipmi: None, is_dry_run: false }
}

/// How a step ends.
fn end_of(step: Step, target: Target, passwords: Passwords, orders: Option<AgentOrders>) -> Result<(), StepFailure> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    let (mut steps, mut results) = Steps::new(passwords, orders, &Connectors::default());
    runtime.block_on(async {
        steps.begin(StepId(7), step, target);
        let (id, result) = tokio::time::timeout(PATIENCE, results.recv()).await.unwrap().unwrap();
        assert_eq!(id, StepId(7));
        result
    })
}

fn nowhere() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

#[test]
fn the_magic_packet_on_the_wire_is_six_times_ff_and_sixteen_times_the_address() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let plan = Plan { wake_on_lan: Some(receiver.local_addr().unwrap()), ..nothing() };
    let machine = Machine { name: "m".into(), mac: Some(MAC), ipmi: None };
    assert_eq!(end_of(Step::WakeOnLan, target(nowhere(), plan, Some(machine)), Passwords::default(), None), Ok(()));
    let mut buffer = [0; 256];
    let length = receiver.recv(&mut buffer).unwrap();
    let mut expected = vec![0xFF; 6];
    (0..16).for_each(|_| expected.extend(MAC.0));
    assert_eq!(&buffer[..length], expected);
}

#[test]
fn a_machine_without_an_address_is_not_woken() {
    let plan = Plan { wake_on_lan: Some(nowhere()), ..nothing() };
    let end = end_of(Step::WakeOnLan, target(nowhere(), plan, None), Passwords::default(), None);
    assert!(matches!(end, Err(StepFailure::NotDone(_))), "{end:?}");
}

/// A program that notes how it was called, and then does as told.
fn recorder(folder: &Path, then: &str) -> std::path::PathBuf {
    let program = folder.join("recorder");
    let log = folder.join("calls");
    let script = format!("#!/bin/sh\necho \"$* password=$IPMI_PASSWORD\" >> '{}'\n{then}\n", log.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// How a power cycle by that recorder ends, and how it was called.
fn power_cycle(then: &str, timeout: Duration) -> (Result<(), StepFailure>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "pass word\n").unwrap();
    let mut config = crate::pure::config::load_text("listen \"127.0.0.1:1\"\nrule respond=404\n").unwrap();
    let place = config.places.rules[0].node.clone();
    config.places.secret_files.push(crate::pure::config::SecretFile { file: file.clone(), place });
    let passwords = Passwords::read(&config).unwrap();
    let board = Ipmi { address: "10.0.9.1".to_owned(), user: Some("admin".to_owned()), password_file: Some(file) };
    let machine = Machine { name: "m".into(), mac: None, ipmi: Some(board) };
    let plan = Plan { ipmi: Some(recorder(folder.path(), then)), ..nothing() };
    let target = target(nowhere(), plan, Some(machine));
    let end = ipmi::Order::new(&target, &passwords, timeout).and_then(|order| order.power_cycle());
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    (end, calls.lines().map(str::to_owned).collect())
}

#[test]
fn ipmitool_gets_its_password_from_the_environment_and_switches_off_and_on() {
    let (end, calls) = power_cycle("echo Chassis Power is on", PATIENCE);
    assert_eq!(end, Ok(()));
    let call = |action| format!("-I lanplus -H 10.0.9.1 -U admin -E chassis power {action} password=pass word");
    assert_eq!(calls, [call("status"), call("cycle")]);
    let (end, calls) = power_cycle("echo Chassis Power is off", PATIENCE);
    assert_eq!((end, &calls[1]), (Ok(()), &call("on")), "a machine that is off is switched on");
}

#[test]
fn power_is_not_switched_where_the_machine_came_back_while_its_board_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    // The board answers when the machine has come back.
    let gate = folder.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let then = format!("read answer < '{}'; echo Chassis Power is on", gate.display());
    let plan = Plan { ipmi: Some(recorder(folder.path(), &then)), ..nothing() };
    let board = Ipmi { address: "10.0.9.1".to_owned(), user: None, password_file: None };
    let machine = Machine { name: "m".into(), mac: None, ipmi: Some(board) };
    let target = target(nowhere(), plan, Some(machine));
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let (mut steps, mut results) = Steps::new(Passwords::default(), None, &Connectors::default());
        steps.begin(StepId(7), Step::PowerCycle, target);
        steps.call_off(|step| step == StepId(7));
        steps.call_off(|_| false);
        std::fs::write(&gate, "on\n").unwrap();
        let (_, result) = tokio::time::timeout(PATIENCE, results.recv()).await.unwrap().unwrap();
        let Err(StepFailure::NotDone(why)) = result else { panic!("{result:?}") };
        assert!(why.contains("came back"), "{why}");
    });
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap();
    assert_eq!(calls.lines().count(), 1, "{calls}");
}

#[test]
fn what_ipmitool_says_of_its_failure_is_told_and_its_password_is_not() {
    let (end, calls) = power_cycle("echo Unable to establish LAN session >&2; exit 3", PATIENCE);
    let Err(StepFailure::NotDone(why)) = end else { panic!("{end:?}") };
    assert!(why.contains("Unable to establish LAN session") && why.contains("exit status: 3"), "{why}");
    assert!(!why.contains("pass word"));
    assert_eq!(calls.len(), 1, "nothing is switched of which nothing is known");
}

#[test]
fn a_program_that_does_not_end_is_killed_with_what_it_started() {
    let (end, _) = power_cycle("sleep 1000 & sleep 1000", Duration::from_millis(300));
    let Err(StepFailure::NotDone(why)) = end else { panic!("{end:?}") };
    assert!(why.contains("took too long"), "{why}");
}

#[test]
fn a_program_that_says_too_much_does_not_wait_for_us() {
    let (end, calls) = power_cycle("yes | head -c 1000000", PATIENCE);
    assert_eq!((end, calls.len()), (Ok(()), 2));
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let plan = Plan { ipmi: Some("/nowhere/at/all".into()), ..nothing() };
    let board = Ipmi { address: "10.0.9.1".to_owned(), user: None, password_file: None };
    let machine = Machine { name: "m".into(), mac: None, ipmi: Some(board) };
    let end = end_of(Step::PowerCycle, target(nowhere(), plan, Some(machine)), Passwords::default(), None);
    let Err(StepFailure::NotDone(why)) = end else { panic!("{end:?}") };
    assert!(why.starts_with("/nowhere/at/all can't be run"), "{why}");
}

#[test]
fn agents_are_told_through_their_queue_and_a_full_one_is_a_failure() {
    let (orders, given) = agent_orders();
    let restart = |orders| end_of(Step::AgentRestart, target(nowhere(), nothing(), None), Passwords::default(), orders);
    while orders.try_send((crate::base::id::ServerSlot(0), AgentOrder::Question)).is_ok() {}
    assert_eq!(restart(Some(orders.clone())), Err(StepFailure::NotDone("too many orders wait".to_owned())));
    drop(given);
    assert!(restart(Some(orders)).is_err() && restart(None).is_err());
}

#[test]
fn a_restart_is_not_done_when_it_is_ordered_but_when_its_agent_says_so() {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let (orders, mut given) = agent_orders();
        let (mut steps, mut results) = Steps::new(Passwords::default(), Some(orders), &Connectors::default());
        for (step, end, is_good) in [
            (StepId(7), RestartProgress::Done, true),
            (StepId(8), RestartProgress::Failed, false),
            (StepId(9), RestartProgress::Refused, false),
        ] {
            steps.begin(step, Step::AgentRestart, target(nowhere(), nothing(), None));
            assert_eq!(given.recv().await.map(|(_, order)| order), Some(AgentOrder::Restart(step)));
            tokio::task::yield_now().await;
            assert!(results.try_recv().is_err(), "ordered, and not done");
            steps.restart_news(StepId(6), RestartProgress::Failed);
            steps.restart_news(step, RestartProgress::Running);
            tokio::task::yield_now().await;
            assert!(results.try_recv().is_err(), "begun, and not done");
            steps.restart_news(step, end);
            let (ended, result) = tokio::time::timeout(PATIENCE, results.recv()).await.unwrap().unwrap();
            assert_eq!((ended, result.is_ok()), (step, is_good));
        }
        // When the time is over, one of which there is no news has failed, and one that its agent is at goes on.
        let soon = Duration::from_millis(20);
        let end_with = |last| restarted(watch::channel(last).1, soon);
        assert!(matches!(end_with(None).await, Err(StepFailure::NotDone(_))));
        assert_eq!(end_with(Some(RestartProgress::Running)).await, Ok(()));
    });
}

#[test]
fn a_check_tells_whether_the_port_is_open() {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let check = || end_of(Step::Check, target(address, nothing(), None), Passwords::default(), None);
    assert_eq!(check(), Err(StepFailure::No("connection refused".to_owned())));
    socket.listen(4).unwrap();
    assert_eq!(check(), Ok(()));
}
