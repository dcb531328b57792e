//! Servers that have a name: resolved at the start and again when the answer's time is over, by a DNS server of the test's
//! own.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::dns::{Dns, Reply};
use crate::support::{Client, DEADLINE, Origin, Proxy, Setup, refused_address, wait_for};

const NAME: &str = "app.test";

/// One pool of servers at these addresses, names asked of `dns`.
fn rules(dns: &Dns, servers: &[String]) -> String {
    let server = |(index, address): (usize, &String)| format!("    server \"o{}\" \"{address}\"\n", index + 1);
    let servers: String = servers.iter().enumerate().map(server).collect();
    format!(
        "workers 1\nresolver \"{}\"\nlisten \"127.0.0.1:0\"\npool \"p\" {{\n{servers}    scheduler \"wlc\" ties=\"first\"\n}}\n\
         rule use=\"p\"\naccess-log \"access.log\"\n",
        dns.address
    )
}

/// An origin at 127.0.0.2, and one at 127.0.0.3 with the same port.
fn two_addresses() -> (Origin, Origin) {
    loop {
        let two = Origin::new_at("127.0.0.2:0".parse().unwrap(), "two");
        let other = SocketAddr::new([127, 0, 0, 3].into(), two.address.port());
        // Somebody else may have that port there.
        if std::net::TcpListener::bind(other).is_ok() {
            return (two, Origin::new_at(other, "three"));
        }
    }
}

fn at_port_of(origin: &Origin) -> String {
    format!("{NAME}:{}", origin.address.port())
}

/// Waits until the name was asked for so often that an answer of now has been taken in.
fn wait_for_another_answer(dns: &Dns) {
    let before = dns.asked(NAME);
    wait_for("the name to be asked for twice more", DEADLINE, || (dns.asked(NAME) >= before + 2).then_some(()));
}

fn wait_for_text(client: &mut Client, text: &str) {
    wait_for(&format!("an answer of {text}"), DEADLINE, || (client.get("/").text() == text).then_some(()));
}

#[test]
fn a_server_whose_address_moves_is_found_again_without_a_restart() {
    let (dns, (two, three)) = (Dns::new(), two_addresses());
    dns.move_to(NAME, two.address.ip());
    let proxy = Proxy::start(&rules(&dns, &[at_port_of(&two)]));
    let mut client = proxy.client();
    assert_eq!(client.get("/").text(), "two", "resolved before the first request");
    dns.move_to(NAME, three.address.ip());
    wait_for_text(&mut client, "three");
    wait_for("the idle connection to the old address to end", DEADLINE, || (two.open_connections() == 0).then_some(()));
    // Nothing that the resolver fails to say takes the address away.
    for reply in [
        Reply::NoSuchName,
        Reply::Failure,
        Reply::Addresses(Vec::new(), 1),
        Reply::Addresses(vec![[0, 0, 0, 0].into()], 1),
    ] {
        dns.say(NAME, reply);
        wait_for_another_answer(&dns);
        assert_eq!(client.get("/").text(), "three");
        dns.move_to(NAME, three.address.ip());
        wait_for_another_answer(&dns);
    }
    proxy.wait_for_error("keeps its addresses 127.0.0.3");
    proxy.wait_for_error("is resolved again");
    dns.say(NAME, Reply::Silence);
    wait_for_another_answer(&dns);
    three.close_connections();
    assert_eq!(client.get("/").text(), "three", "a new connection, while nobody answers for the name");
    assert!(!proxy.errors().iter().any(|line| line.contains("was up")), "{:?}", proxy.errors());
}

/// What was held against the old address is not held against the new one.
#[test]
fn a_server_that_died_and_moves_is_used_as_soon_as_its_new_address_is_known() {
    let (dns, (two, three)) = (Dns::new(), two_addresses());
    dns.move_to(NAME, two.address.ip());
    let other = Origin::new("other");
    let proxy = Proxy::start(&rules(&dns, &[at_port_of(&two), other.address.to_string()]));
    let mut client = proxy.client();
    assert_eq!(client.get("/").text(), "two");
    two.stop();
    wait_for("the server to be given up", DEADLINE, || {
        assert_eq!(client.get("/").text(), "other");
        proxy.errors().iter().any(|line| line.contains("p/o1") && line.contains("down")).then_some(())
    });
    dns.move_to(NAME, three.address.ip());
    wait_for_text(&mut client, "three");
}

#[test]
fn the_addresses_of_a_name_are_tried_in_turn_and_are_one_server() {
    let dns = Dns::new();
    // Nobody listens at 127.0.0.2.
    let three = Origin::new_at("127.0.0.3:0".parse().unwrap(), "three");
    dns.say(NAME, Reply::Addresses(vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()], 60));
    let proxy = Proxy::start(&rules(&dns, &[at_port_of(&three)]));
    let mut client = proxy.client();
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "three");
        three.close_connections();
    }
    let records = proxy.wait_for_records("access.log", 5);
    assert!(records.iter().all(|record| record["attempts"] == 1 && record["server"] == "o1"), "{records:?}");
    assert!(!proxy.errors().iter().any(|line| line.contains("suspect")), "{:?}", proxy.errors());
    assert_eq!(dns.asked(NAME), 1, "a minute is not over");
}

#[test]
fn a_name_that_does_not_resolve_yet_is_no_failure_of_the_start() {
    let (dns, origin, other) = (Dns::new(), Origin::new("named"), Origin::new("other"));
    let proxy = Proxy::start(&rules(&dns, &[at_port_of(&origin)]));
    proxy.wait_for_error("the name app.test is not resolved, its servers are unavailable");
    let answer = proxy.client().get("/");
    assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("1")));
    assert_eq!(proxy.wait_for_records("access.log", 1)[0]["reason"], "name-unresolved");
    // Checks find no way there either.
    let with_other = Proxy::start(&rules(&dns, &[at_port_of(&origin), other.address.to_string()]));
    let mut beside = with_other.client();
    wait_for("the server without an address to be down", DEADLINE, || {
        assert_eq!(beside.get("/").text(), "other");
        with_other.errors().iter().any(|line| line.contains("p/o1") && line.contains("is down")).then_some(())
    });
    dns.move_to(NAME, origin.address.ip());
    wait_for_text(&mut proxy.client(), "named");
    wait_for_text(&mut beside, "named");
}

#[test]
fn a_resolver_that_is_not_there_holds_up_a_start_for_a_moment_only() {
    let (dns, origin) = (Dns::new(), Origin::new("one"));
    dns.say(NAME, Reply::Silence);
    let proxy = Proxy::start(&rules(&dns, &[at_port_of(&origin), origin.address.to_string()]));
    assert_eq!(proxy.client().get("/").text(), "one");
    proxy.wait_for_error("names of some servers are not resolved yet");
}

#[test]
fn the_hosts_file_comes_first_and_names_have_no_case() {
    let (dns, origin) = (Dns::new(), Origin::new("one"));
    let proxy = Proxy::start(&rules(&dns, &[format!("LocalHost:{}", origin.address.port())]));
    assert_eq!(proxy.client().get("/").text(), "one");
    assert_eq!(dns.asked("localhost"), 0);
}

#[test]
fn checks_of_a_server_reach_the_address_of_its_name() {
    let (dns, origin) = (Dns::new(), Origin::new("one"));
    dns.say(NAME, Reply::Addresses(vec![[127, 0, 0, 1].into()], 60));
    let proxy = Proxy::start(&rules(&dns, &[at_port_of(&origin)]));
    let mut client = proxy.client();
    assert_eq!(client.get("/").text(), "one");
    origin.stop();
    wait_for("suspicion", DEADLINE, || {
        client.get("/");
        proxy.errors().iter().any(|line| line.contains("is suspect")).then_some(())
    });
    origin.start();
    proxy.wait_for_error("is up");
    assert_eq!(client.get("/").text(), "one");
}

#[test]
fn check_and_explain_ask_nobody() {
    let (dns, (_keeper, address)) = (Dns::new(), refused_address());
    let setup = Setup::new(&rules(&dns, &[format!("{NAME}:{}", address.port())]).replace(":0\"", ":18080\""));
    assert_eq!(setup.run_to_end(&["check"]).status.code(), Some(0));
    let output = crate::support::pointsman(setup.folder(), &["explain", "rules.kdl", "GET", "http://a.test/"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&format!("{NAME}:{}", address.port())), "{text}");
    assert_eq!(dns.asked(NAME), 0);
}

/// A first address that swallows everything takes its share of the time alone.
#[test]
fn an_address_that_does_not_answer_leaves_time_for_the_next() {
    let dns = Dns::new();
    let three = Origin::new_at("127.0.0.3:0".parse().unwrap(), "three");
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let address = SocketAddr::new([127, 0, 0, 2].into(), three.address.port());
    full.bind(&address.into()).unwrap();
    full.listen(0).unwrap();
    // Nobody accepts: once the queue is full, further connects get no answer.
    let _waiting: Vec<_> = (0..16)
        .map(|_| {
            let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&address.into());
            client
        })
        .collect();
    dns.say(NAME, Reply::Addresses(vec![[127, 0, 0, 2].into(), [127, 0, 0, 3].into()], 60));
    let rules = rules(&dns, &[at_port_of(&three)]).replace("scheduler", "timeout connect=\"1s\"\n    scheduler");
    let proxy = Proxy::start(&rules);
    let mut client = proxy.client();
    client.patience = Duration::from_secs(5);
    assert_eq!(client.get("/").text(), "three");
}
