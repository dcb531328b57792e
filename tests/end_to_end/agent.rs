//! `pointsman-agent` at work: what it says of its service and when, which orders it obeys, what it starts anew, how it ends.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use pointsman::pure::feedback::acceptance::Refusal;
use pointsman::pure::feedback::report::Service;
use pointsman::pure::feedback::wire::{OrderKind, RestartProgress, SignedOrder, SignedReport, seal_order};

use crate::support::agent::{AGENT, Agent, Balancer, Services, keys_of, wall_clock};
use crate::support::proxy::output_of;

fn is(service: Service) -> impl Fn(&SignedReport) -> bool {
    move |message| message.report.service == service
}

#[test]
fn an_agent_says_how_its_service_is_and_promises_the_next_word() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut balancer = Balancer::new();
    let _agent = Agent::start(folder.path(), &balancer, &["--service-port", &port, "--connections-max", "40"]);
    let (first, counts) = balancer.next();
    assert_eq!((first.heard, counts), (None, Err(Refusal::Unheard)), "it has heard of no balancer");
    assert_eq!(first.report.service, Service::Up);
    let answer = balancer.wait("has heard of this balancer", |_| true);
    assert!(answer.report.boot == first.report.boot && answer.report.sequence > first.report.sequence);
    let _clients: Vec<_> =
        (0..10).map(|_| TcpStream::connect(("127.0.0.1", service.local_addr().unwrap().port()))).collect();
    let later = balancer.wait("counts the connections", |message| message.report.figures.connections == Some(10));
    let later = if later.report.promised_next == Some(Duration::from_millis(500)) { later } else { balancer.next().0 };
    assert_eq!(later.report.promised_next, Some(Duration::from_millis(500)), "2 s × 10 / 40");
    let figures = later.report.figures;
    assert!(figures.cpu.unwrap().capacity > 0.0 && figures.memory.unwrap().part().unwrap() > 0.0);
    assert!(figures.run_queue.is_some() && figures.connections_max == Some(40) && figures.disk.is_none());
}

#[test]
fn an_overload_and_its_end_are_said() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = service.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut balancer = Balancer::new();
    let arguments = ["--service-port", &address.port().to_string(), "--connections-max", "5"];
    let _agent = Agent::start(folder.path(), &balancer, &arguments);
    balancer.wait("is not overloaded", |message| !message.report.is_overloaded);
    let clients: Vec<_> = (0..5).map(|_| TcpStream::connect(address).unwrap()).collect();
    let told = balancer.wait("is overloaded", |message| message.report.is_overloaded);
    assert_eq!(told.report.service, Service::Up, "overload is never treated as death");
    drop(clients);
    drop(service.accept());
    balancer.wait("is not overloaded any more", |message| !message.report.is_overloaded);
}

#[test]
fn a_question_is_answered_and_an_old_nonce_is_not() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut balancer = Balancer::new();
    // Without a bound on connections, classic agents speak only when something changes or somebody asks.
    let _agent = Agent::start(folder.path(), &balancer, &["--service-port", &port, "--classic"]);
    let (first, _) = balancer.next();
    assert_eq!(first.report.promised_next, None);
    let mut last = balancer.wait("answers the introduction", |_| true);
    for _ in 0..3 {
        let question = balancer.order(OrderKind::Question);
        balancer.send(&question);
        let answer = balancer.wait("answers", |_| true);
        assert_eq!(answer.report.sequence, last.report.sequence + 1, "one answer for each question");
        assert_ne!(answer.nonce, last.nonce);
        last = answer;
    }
}

#[test]
fn a_classic_agent_gives_signs_of_life_no_more_often_than_every_tick() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut balancer = Balancer::new();
    let arguments = ["--service-port", &port, "--classic", "--connections-max", "100"];
    let _agent = Agent::start(folder.path(), &balancer, &arguments);
    for _ in 0..4 {
        let message = balancer.wait("is a sign of life", |_| true);
        assert_eq!(message.report.promised_next, Some(Duration::from_millis(200)));
    }
}

#[test]
fn a_service_that_is_killed_is_down_and_up_again_when_somebody_starts_it() {
    let services = Services::new(&["app"]);
    services.run("start", "app");
    let mut balancer = Balancer::new();
    let port = services.port("app").to_string();
    let arguments = ["--service-port", &port, "--pid-file", "app.pid"];
    let _agent = Agent::start(services.folder.path(), &balancer, &arguments);
    let up = balancer.wait("is up", is(Service::Up));
    assert!(up.report.figures.memory.unwrap().amount > 0.0, "that of the process");
    services.kill("app");
    balancer.wait("is down", is(Service::Down));
    services.run("start", "app");
    balancer.wait("is up again", is(Service::Up));
}

#[test]
fn a_failed_service_is_started_anew_with_those_that_need_it_in_order() {
    let services = Services::new(&["database", "app", "proxy"]);
    let check = format!("check \"http://127.0.0.1:{}/\"; needs \"database\"", services.port("app"));
    let file = services.lines("database", "")
        + &services.lines("app", &check)
        + &services.lines("proxy", "needs \"app\"")
        + "alert \"sh\" \"-c\" \"echo $1 $2 >> alerts\" \"alert\"\n";
    std::fs::write(services.path("services.kdl"), file).unwrap();
    for name in ["database", "app", "proxy"] {
        services.run("start", name);
    }
    std::fs::remove_file(services.path("log")).unwrap();
    let mut balancer = Balancer::new();
    let port = services.port("proxy").to_string();
    let arguments = ["--service-port", &port, "--pid-file", "proxy.pid", "--config", "services.kdl"];
    let _agent = Agent::start(services.folder.path(), &balancer, &arguments);
    balancer.wait("is up", is(Service::Up));
    services.kill("database");
    balancer.wait("is not up", |message| message.report.service != Service::Up);
    balancer.wait("is up again", is(Service::Up));
    let order = ["stop proxy", "stop app", "stop database", "start database", "start app", "start proxy"];
    assert_eq!(services.log(), order);
    // One that does not start again is left stopped, and the whole is abnormal.
    std::fs::write(services.path("app.broken"), "").unwrap();
    services.kill("app");
    let alerts = || std::fs::read_to_string(services.path("alerts")).unwrap_or_default();
    crate::support::wait_for("the alert", crate::support::DEADLINE, || alerts().contains("app given-up").then_some(()));
    assert!(alerts().starts_with("database failed\n"), "{}", alerts());
    let log = || Some(services.log()).filter(|log| log.len() >= 10);
    let log = crate::support::wait_for("the last stop", crate::support::DEADLINE, log);
    assert_eq!(log[6..], ["stop proxy", "stop app", "start app", "stop app"]);
    balancer.wait("is not up", |message| message.report.service != Service::Up);
    for _ in 0..20 {
        assert_ne!(balancer.wait("speaks", |_| true).report.service, Service::Up);
    }
}

#[test]
fn a_service_in_another_network_namespace_is_looked_at_there() {
    const LISTEN: &str = "import socket; held = socket.create_server(('0.0.0.0', 8080)); held.accept()";
    let folder = tempfile::tempdir().unwrap();
    let is_root = nix::unistd::geteuid().is_root();
    // It goes there only when it is told to, and the agent has looked at it before.
    let go = if is_root { "--net" } else { "--user --map-root-user --net" };
    let script = format!("read line; exec unshare {go} python3 -c \"$0\"");
    let mut command = std::process::Command::new("sh");
    let mut service = command.args(["-c", &script, LISTEN]).stdin(Stdio::piped()).spawn().unwrap();
    std::fs::write(folder.path().join("pid"), service.id().to_string()).unwrap();
    let mut balancer = Balancer::new();
    let arguments = ["--service-port", "8080", "--pid-file", "pid", "--network-rate", "100MiB"];
    let _agent = Agent::start(folder.path(), &balancer, &arguments);
    balancer.wait("is not up yet", is(Service::Down));
    service.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let up = balancer.wait("is up", is(Service::Up));
    assert_eq!(up.report.figures.connections, Some(0));
    service.kill().unwrap();
    service.wait().unwrap();
    balancer.wait("is down", is(Service::Down));
}

#[test]
fn a_service_in_maintenance_wants_nothing_and_is_not_started_anew() {
    let services = Services::new(&["app"]);
    std::fs::write(services.path("services.kdl"), services.lines("app", "")).unwrap();
    services.run("start", "app");
    let mut balancer = Balancer::new();
    let port = services.port("app").to_string();
    let arguments = ["--service-port", &port, "--config", "services.kdl", "--maintenance-file", "closed"];
    let _agent = Agent::start(services.folder.path(), &balancer, &arguments);
    balancer.wait("is up", is(Service::Up));
    std::fs::write(services.path("closed"), "").unwrap();
    balancer.wait("is in maintenance", is(Service::Maintenance));
    services.run("stop", "app");
    let first = balancer.wait("speaks", |_| true);
    let later = first.report.sequence + 20;
    balancer.wait("speaks later", |message| message.report.sequence >= later);
    let order = balancer.order(OrderKind::Restart);
    balancer.send(&order);
    balancer.wait("refuses", |message| message.restart.is_some_and(|news| news.progress == RestartProgress::Refused));
    assert_eq!(services.log(), ["start app", "stop app"], "whoever works on it is left alone");
    std::fs::remove_file(services.path("closed")).unwrap();
    balancer.wait("is up again", is(Service::Up));
    assert_eq!(services.log(), ["start app", "stop app", "stop app", "start app"]);
}

#[test]
fn a_service_that_answers_badly_is_abnormal_though_it_lives() {
    let services = Services::new(&["app"]);
    services.run("start", "app");
    let mut balancer = Balancer::new();
    let port = services.port("app").to_string();
    let url = format!("http://127.0.0.1:{port}/health");
    let arguments = ["--service-port", &port, "--check", &url];
    let _agent = Agent::start(services.folder.path(), &balancer, &arguments);
    balancer.wait("is up", is(Service::Up));
    std::fs::write(services.path("app.sick"), "").unwrap();
    balancer.wait("is abnormal", is(Service::Abnormal));
    std::fs::remove_file(services.path("app.sick")).unwrap();
    balancer.wait("is up again", is(Service::Up));
}

#[test]
fn a_restart_is_done_when_it_was_ordered_and_never_by_forged_expired_or_repeated_orders() {
    let services = Services::new(&["app"]);
    std::fs::write(services.path("services.kdl"), services.lines("app", "")).unwrap();
    services.run("start", "app");
    let mut balancer = Balancer::new();
    let port = services.port("app").to_string();
    let arguments = ["--service-port", &port, "--pid-file", "app.pid", "--config", "services.kdl"];
    let _agent = Agent::start(services.folder.path(), &balancer, &arguments);
    balancer.wait("is up", is(Service::Up));
    let order = balancer.order(OrderKind::Restart);
    // Signed with another server's key, and with this one's but of an unknown nonce, or too late.
    let [own, other] = [keys_of("origin/o1"), keys_of("origin/o2")];
    balancer.send_raw(&seal_order(own.server(), other.order(), &order).unwrap());
    balancer.send_raw(&seal_order(other.server(), other.order(), &order).unwrap());
    let mut changed =
        seal_order(own.server(), own.order(), &SignedOrder { kind: OrderKind::Question, ..order }).unwrap();
    let at = changed.windows(8).position(|window| window == b"question").unwrap();
    changed.splice(at..at + 8, *b"restart");
    balancer.send_raw(&changed);
    balancer.send(&SignedOrder { nonce: pointsman::pure::feedback::wire::Nonce([0; 16]), ..order });
    let expired = pointsman::base::time::UnixNanos(wall_clock().0 - 1);
    balancer.send(&SignedOrder { expires: expired, ..order });
    balancer.send_raw(b"restart");
    // A question that is answered shows that all of them have been looked at.
    let question = balancer.order(OrderKind::Question);
    balancer.send(&question);
    let answer = balancer.wait("answers", |_| true);
    assert_eq!((answer.restart, services.log().len()), (None, 1), "nothing was obeyed");
    let order = balancer.order(OrderKind::Restart);
    balancer.send(&order);
    balancer.send(&order);
    let of = |progress| move |message: &SignedReport| message.restart.is_some_and(|news| news.progress == progress);
    let news = balancer.wait("says that it is at it", of(RestartProgress::Running));
    assert_eq!(news.restart.unwrap().number, order.number);
    balancer.wait("says that it is done", of(RestartProgress::Done));
    balancer.send(&order);
    balancer.wait("is up", is(Service::Up));
    assert_eq!(services.log(), ["start app", "stop app", "start app"], "once");
}

#[test]
fn an_agent_without_commands_refuses_to_restart() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut balancer = Balancer::new();
    let _agent = Agent::start(folder.path(), &balancer, &["--service-port", &port]);
    balancer.wait("is up", is(Service::Up));
    let order = balancer.order(OrderKind::Restart);
    balancer.send(&order);
    let news = balancer.wait("has news", |message| message.restart.is_some()).restart.unwrap();
    assert_eq!((news.number, news.progress), (order.number, RestartProgress::Refused));
}

#[test]
fn an_agent_that_is_stopped_says_that_it_leaves() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut balancer = Balancer::new();
    let mut agent = Agent::start(folder.path(), &balancer, &["--service-port", &port]);
    balancer.wait("is up", is(Service::Up));
    agent.terminate();
    let farewell = balancer.wait("leaves", is(Service::Leaving));
    assert_eq!(farewell.report.promised_next, None, "there is no next");
    assert!(agent.end().success());
}

#[test]
fn an_agent_whose_pid_file_is_a_fifo_says_that_its_service_is_down_and_ends_when_it_is_told() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&folder.path().join("pid"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut balancer = Balancer::new();
    let mut agent = Agent::start(folder.path(), &balancer, &["--service-port", &port, "--pid-file", "pid"]);
    balancer.wait("is down", is(Service::Down));
    agent.terminate();
    balancer.wait("leaves", is(Service::Leaving));
    assert!(agent.end().success());
}

#[test]
fn an_agent_with_another_servers_key_or_a_wrong_file_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), keys_of("origin/o2").to_text()).unwrap();
    std::fs::write(folder.path().join("own"), keys_of("origin/o1").to_text()).unwrap();
    std::fs::write(folder.path().join("bad.kdl"), "service \"app\" needs=\"database\" port=1\n").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(AGENT);
        command.args(["--report-to", "127.0.0.1:9", "--server", "origin/o1", "--service-port", "80"]).args(arguments);
        command.current_dir(folder.path()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let output = output_of(command.spawn().unwrap(), "pointsman-agent");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["--key-file", "key"]);
    assert!(code == Some(1) && said.contains("the key is that of `origin/o2`"), "{said}");
    let (code, said) = run(&["--key-file", "none"]);
    assert!(code == Some(1) && said.contains("none: No such file"), "{said}");
    let (code, said) = run(&["--key-file", "own", "--config", "bad.kdl"]);
    assert!(code == Some(1) && said.contains("no service `database` stands above"), "{said}");
    assert_eq!(run(&["--key-file", "own", "--pid-file", "a", "--process", "b"]).0, Some(2));
    assert_eq!(run(&["--key-file", "own", "--cgroup", "no/such/group"]).0, Some(1));
}
