//! Listening: families, ports, workers and descriptors; a start that fails leaves nothing half-started; and what a
//! connection gets before any server is asked.

use std::net::{SocketAddr, TcpListener};
use std::process::Output;
use std::time::Duration;

use crate::support::proxy::output_of;
use crate::support::tls::Certificate;
use crate::support::{Client, DEADLINE, End, Origin, Proxy, Setup, refused_address, wait_for};

/// Rules that send host `a.test` to `origin`.
fn rules(listen: &str, origin: &Origin) -> String {
    format!(
        "{listen}\npool \"o\" {{ server \"o1\" \"{}\"; }}\nrule host=\"a.test\" use=\"o\"\naccess-log \"access.log\"\n",
        origin.address
    )
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn one_family_and_both_are_listened_on() {
    let origin = Origin::new("one");
    for (listen, reaches) in [
        ("127.0.0.1:0", [true, false]),
        ("0.0.0.0:0", [true, false]),
        ("[::1]:0", [false, true]),
        ("[::]:0", [true, true]),
        ("*:0", [true, true]),
    ] {
        let proxy = Proxy::start(&rules(&format!("listen \"{listen}\""), &origin));
        let port = proxy.address().port();
        for (from, is_reached) in ["127.0.0.1", "::1"].into_iter().zip(reaches) {
            let address = SocketAddr::new(from.parse().unwrap(), port);
            let connected = crate::support::client::Options::default().try_connect(address);
            let Ok(mut client) = connected else {
                assert!(!is_reached, "{listen} is not reached at {address}");
                continue;
            };
            assert!(is_reached, "{listen} is reached at {address}");
            assert_eq!(client.get("/").text(), "one");
            // An IPv4 client of a socket for both families is an IPv4 client.
            assert_eq!(origin.requests().last().unwrap().head.field("x-forwarded-for"), Some(from));
        }
        for record in proxy.wait_for_records("access.log", reaches.iter().filter(|reached| **reached).count()) {
            let client = record["client"].as_str().unwrap();
            assert!(["127.0.0.1", "::1"].contains(&client), "{client}");
        }
    }
}

#[test]
fn every_worker_is_a_thread_that_gets_its_part_of_the_connections() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("listen \"127.0.0.1:0\"\nworkers 3", &origin));
    // A thread has its name a moment after it was made.
    let names = ["access-log", "control", "pointsman", "worker-0", "worker-1", "worker-2"];
    wait_for("a thread for each worker", DEADLINE, || (proxy.threads() == names).then_some(()));
    let mut clients: Vec<Client> = (0..60).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").text(), "one"));
    let mut polled = proxy.polled_descriptors();
    polled.sort_unstable();
    let busy = polled.iter().rev().take_while(|count| **count > 6).count();
    assert_eq!(busy, 3, "descriptors of the event loops: {polled:?}");
}

#[test]
fn there_is_a_worker_for_each_processor_where_nothing_is_said() {
    let proxy = Proxy::start("listen \"127.0.0.1:0\"\nrule respond=200");
    let processors = std::thread::available_parallelism().unwrap().get();
    let workers = || proxy.threads().iter().filter(|name| name.starts_with("worker-")).count();
    wait_for("a thread for each processor", DEADLINE, || (workers() == processors).then_some(()));
}

#[test]
fn a_port_in_use_is_said_and_ends_the_start_with_3() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = Proxy::start("listen \"127.0.0.1:0\"\nrule respond=200");
    for address in [taken.local_addr().unwrap(), other.address()] {
        let output = Setup::new(&format!(
            "listen \"127.0.0.1:0\"\nlisten \"{address}\"\nrule respond=200\naccess-log \"access.log\""
        ))
        .run_to_end(&["run"]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("can't listen on {address}")) && said.contains("in use"), "{said}");
        assert!(!said.contains("listening on"), "{said}");
    }
    assert_eq!(other.client().get("/").status(), 200);
}

#[test]
fn an_address_that_is_not_ours_is_said_and_ends_the_start_with_3() {
    let output = Setup::new("listen \"192.0.2.1:80\"\nrule respond=200").run_to_end(&["run"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains("can't listen on 192.0.2.1:80"), "{}", said(&output));
}

#[test]
fn a_broken_rule_file_starts_nothing() {
    let origin = Origin::new("one");
    let broken = rules("listen \"127.0.0.1:0\"", &origin) + "rul use=\"o\"\nlimits { header-timeout 3 }\n";
    let setup = Setup::new(&broken);
    let output = setup.run_to_end(&["run"]);
    let said = said(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    for part in ["rules.kdl:5", "`rul`", "`rule`", "rules.kdl:6", "header-timeout"] {
        assert!(said.contains(part), "no {part} in\n{said}");
    }
    assert!(!said.contains("listening on") && !setup.folder().join("access.log").exists(), "{said}");
}

#[test]
fn a_rule_file_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = crate::support::pointsman(folder.path(), &["run", "missing.kdl"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("missing.kdl"), "{}", said(&output));
}

#[test]
fn a_certificate_that_can_not_be_used_is_named_and_nothing_starts() {
    let (one, other) = (Certificate::for_names(&["a.test"]), Certificate::for_names(&["b.test"]));
    let with_files = |files: &[(&str, &str)]| {
        let listen = "listen \"127.0.0.1:0\" { tls { certificate \"certs/site.crt\" key=\"certs/site.key\"; } }";
        let setup =
            Setup::new(&format!("listen \"127.0.0.1:0\"\n{listen}\nrule respond=200\naccess-log \"access.log\""));
        files.iter().fold(setup, |setup, (name, content)| setup.file(name, content))
    };
    let (site, key) = ("certs/site.crt", "certs/site.key");
    for (files, named) in [
        (vec![], site),
        (vec![(site, one.certificate.as_str())], key),
        (vec![(site, "no certificate"), (key, one.key.as_str())], site),
        (vec![(site, one.certificate.as_str()), (key, "no key")], key),
        (vec![(site, one.certificate.as_str()), (key, other.key.as_str())], key),
    ] {
        for command in ["run", "check"] {
            let setup = with_files(&files);
            let output = setup.run_to_end(&[command]);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{command}: {said}");
            assert!(said.contains(named), "{command}: no {named} in\n{said}");
            assert!(!said.contains("listening on") && !setup.folder().join("access.log").exists(), "{said}");
        }
    }
}

#[test]
fn an_access_log_that_can_not_be_opened_is_named_and_ends_the_start_with_3() {
    let output = Setup::new("listen \"127.0.0.1:0\"\nrule respond=200\naccess-log \"no/such/folder/access.log\"")
        .run_to_end(&["run"]);
    assert_eq!(output.status.code(), Some(3));
    let said = said(&output);
    assert!(said.contains("no/such/folder/access.log") && !said.contains("listening on"), "{said}");
}

#[test]
fn the_descriptor_limit_is_raised_and_said() {
    let proxy = Setup::new("listen \"127.0.0.1:0\"\nrule respond=200").descriptors(64, 300).start();
    proxy.wait_for_error("300 descriptors");
    assert_eq!(proxy.descriptor_limit(), 300);
}

#[test]
fn running_out_of_descriptors_is_said_and_waited_for_without_spinning() {
    let rules = "listen \"127.0.0.1:0\"\nworkers 1\nlimits { connections-max 1000; }\nrule respond=200";
    let proxy = Setup::new(rules).descriptors(64, 64).start();
    let mut first = proxy.client();
    assert_eq!(first.get("/").status(), 200);
    let mut clients: Vec<Client> = (0..100).map(|_| proxy.client()).collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    proxy.wait_for_error("accepting on 127.0.0.1");
    // Those that are in are served meanwhile.
    assert_eq!(first.get("/").status(), 200);
    let before = proxy.processor_ticks();
    let last = clients.last_mut().unwrap();
    last.patience = Duration::from_secs(1);
    assert_eq!(last.try_head(), Err(End::TimedOut));
    let used = proxy.processor_ticks() - before;
    assert!(used < 20, "{used} hundredths of a second of processor time in one second");
    assert_eq!(proxy.errors().iter().filter(|line| line.contains("accepting on")).count(), 1, "said once");
    clients.truncate(100);
    let mut last = clients.pop().unwrap();
    drop(clients);
    last.patience = DEADLINE;
    assert_eq!(last.response().status(), 200);
    assert_eq!(proxy.client().get("/").status(), 200);
}

#[test]
fn a_start_without_descriptors_is_said_and_ends_with_3() {
    for limit in [5, 10, 14, 16] {
        let setup = Setup::new("listen \"127.0.0.1:0\"\nworkers 1\nrule respond=200").descriptors(limit, limit);
        let output = output_of(setup.spawn(), "a start without descriptors");
        assert_eq!(output.status.code(), Some(3), "{limit}: {}", said(&output));
        assert!(said(&output).contains("Too many open files"), "{limit}: {}", said(&output));
        assert!(!said(&output).contains("listening on"), "{limit}: {}", said(&output));
    }
}

/// That there is no descriptor for a connection to a server says nothing about the server.
#[test]
fn running_out_of_descriptors_is_not_held_against_a_server() {
    let origin = Origin::new("one");
    let proxy = Setup::new(&format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nlimits {{ connections-max 1000; }}\naccess-log \"access.log\"\n\
         pool \"o\" {{ server \"o1\" \"{}\"; }}\nrule path=\"/own\" respond=204\nrule use=\"o\"\n",
        origin.address
    ))
    .descriptors(64, 64)
    .start();
    let mut first = proxy.client();
    assert_eq!(first.get("/own").status(), 204);
    let clients: Vec<Client> = (0..100).map(|_| proxy.client()).collect();
    proxy.wait_for_error("accepting on 127.0.0.1");
    for _ in 0..6 {
        assert_eq!(first.get("/").status(), 502);
    }
    assert!(origin.requests().is_empty());
    drop(clients);
    wait_for("descriptors to be free", DEADLINE, || (first.get("/").status() == 200).then_some(()));
    let records = proxy.wait_for_records("access.log", 8);
    assert!(records[1..7].iter().all(|record| record["reason"] == "no-descriptors"), "{records:?}");
    assert!(records[1..7].iter().all(|record| record["attempts"] == 1), "repeated in vain: {records:?}");
    assert!(!proxy.errors().iter().any(|line| line.contains("server")), "{:?}", proxy.errors());
}

/// An idle connection to one server is given up for a request to another.
#[test]
fn running_out_of_descriptors_fails_no_request_while_idle_connections_hold_some() {
    let (one, two) = (Origin::new("one"), Origin::new("two"));
    let proxy = Setup::new(&format!(
        "listen \"127.0.0.1:0\"\nworkers 1\nlimits {{ connections-max 1000; }}\n\
         pool \"a\" {{ server \"o1\" \"{}\"; }}\npool \"b\" {{ server \"o2\" \"{}\"; }}\n\
         rule path=\"/one\" use=\"a\"\nrule use=\"b\"\n",
        one.address, two.address
    ))
    .descriptors(64, 64)
    .start();
    let mut first = proxy.client();
    assert_eq!(first.get("/one").text(), "one");
    let _clients: Vec<Client> = (0..100).map(|_| proxy.client()).collect();
    proxy.wait_for_error("accepting on 127.0.0.1");
    assert_eq!(first.get("/two").text(), "two");
    wait_for("the idle connection to end", DEADLINE, || (one.open_connections() == 0).then_some(()));
}

#[test]
fn every_answer_of_its_own_says_what_it_is() {
    let (_keeper, refused) = refused_address();
    let proxy = Proxy::start(&format!(
        "listen \"127.0.0.1:0\"\npool \"gone\" {{ server \"g\" \"{refused}\"; }}\n\
         rule path=\"/gone\" use=\"gone\"\nrule path=\"/no\" respond=403 body=\"go away\"\n\
         rule path=\"/empty\" respond=204\nrule path=\"/old\" redirect=\"https://a.test/new\" status=308\n"
    ));
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
    for (request, status, body) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, "400 Bad Request\n"),
        (get("/..;/"), 400, "400 Bad Request\n"),
        (get("/no"), 403, "go away"),
        (get("/x"), 404, "404 Not Found\n"),
        (get(&format!("/{}", "x".repeat(70_000))), 414, "414 URI Too Long\n"),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nExpect: x\r\n\r\n".to_owned(), 417, "417 Expectation Failed\n"),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(70_000)), 431, "431 Request Header Fields Too Large\n"),
        ("CONNECT a.test:1 HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned(), 501, "501 Not Implemented\n"),
        (get("/gone"), 502, "502 Bad Gateway\n"),
        ("GET / HTTP/3.0\r\nHost: a.test\r\n\r\n".to_owned(), 505, "505 HTTP Version Not Supported\n"),
        (get("/old"), 308, "308 Permanent Redirect\n"),
    ] {
        let answer = proxy.client().request(&request);
        assert_eq!((answer.status(), answer.text().as_str()), (status, body));
        assert_eq!(answer.field("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.field("content-length"), Some(body.len().to_string().as_str()));
        assert!(answer.field("date").unwrap().ends_with(" GMT"));
    }
    assert_eq!(proxy.client().get("/old").field("location"), Some("https://a.test/new"));
    let mut client = proxy.client();
    let empty = client.get("/empty");
    assert_eq!((empty.status(), empty.field("content-length"), empty.field("content-type")), (204, None, None));
    let head = client.request("HEAD /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((head.status(), head.field("content-length"), head.body.len()), (404, Some("14"), 0));
    // The body that HEAD leaves out is not taken for the next answer.
    assert_eq!(client.get("/no").text(), "go away");
}

#[test]
fn a_request_without_a_rule_is_answered_once_and_the_next_one_as_well() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("listen \"127.0.0.1:0\"", &origin));
    let mut client = proxy.client();
    client.send("GET /x HTTP/1.1\r\nHost: b.test\r\n\r\nGET /..;/ HTTP/1.1\r\nHost: a.test\r\n\r\n");
    client.send("GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let none = client.response();
    assert_eq!((none.status(), none.field("content-type")), (404, Some("text/plain; charset=utf-8")));
    assert_eq!(none.text(), "404 Not Found\n");
    assert_eq!(client.response().status(), 400);
    assert_eq!(client.response().text(), "one");
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);
    let records = proxy.wait_for_records("access.log", 3);
    assert_eq!(records.iter().map(|record| record["status"].as_u64()).collect::<Vec<_>>(), [404, 400, 200].map(Some));
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let origin = Origin::with(|exchange| {
        exchange.read_body();
        let body = exchange.head.target().to_owned();
        exchange.respond(200, &[], body.as_bytes());
    });
    let proxy = Proxy::start(&rules("listen \"127.0.0.1:0\"", &origin));
    let mut client = proxy.client();
    let mut all = String::new();
    for at in 0..100 {
        all += &match at % 5 {
            0 => format!("GET /{at} HTTP/1.1\r\nHost: b.test\r\n\r\n"),
            1 => format!("POST /{at} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"),
            2 => format!("HEAD /{at} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
            3 => format!(
                "POST /{at} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
            ),
            _ => format!("\r\nGET /{at} HTTP/1.1\r\nHost: a.test\r\n\r\n"),
        };
    }
    client.send(&all);
    for at in 0..100 {
        let answer = client.response_to(if at % 5 == 2 { "HEAD" } else { "GET" });
        let expected = match at % 5 {
            0 => (404, "404 Not Found\n".to_owned()),
            2 => (200, String::new()),
            _ => (200, format!("/{at}")),
        };
        assert_eq!((answer.status(), answer.text()), expected, "answer {at}");
    }
    client.finish_writing();
    assert_eq!(client.end(), End::Closed);
    assert!(origin.requests().iter().all(|request| request.is_complete));
}

#[test]
fn a_malformed_request_costs_its_connection_alone() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&rules("listen \"127.0.0.1:0\"\nworkers 1", &origin));
    let mut other = proxy.client();
    assert_eq!(other.get("/").text(), "one");
    for bytes in ["\0\0\0\0", "GET / HTTP/1.1\nHost: a.test\n\n", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}"]
    {
        let mut client = proxy.client();
        client.send(bytes);
        client.send(GET);
        let answer = client.response();
        assert_eq!((answer.status(), answer.field("connection")), (400, Some("close")), "{bytes:?}");
        assert_eq!(client.end(), End::Closed);
        assert_eq!(other.get("/").text(), "one");
    }
    assert_eq!(origin.accepted(), 1);
    wait_for("the connections to end", DEADLINE, || (origin.open_connections() == 1).then_some(()));
}

/// A user who is in a group besides their own, and that group's number, by /etc/group.
fn user_of_two_groups() -> Option<(String, u32)> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members] = fields[..] else { return None };
        let member = members.split(',').find(|member| !member.is_empty() && *member != "root")?;
        Some((member.to_owned(), number.parse().ok()?))
    })
}

/// Only root can become another user, and only where there is such a user.
#[test]
fn the_user_it_becomes_keeps_its_groups() {
    let Some((user, group)) = user_of_two_groups().filter(|_| nix::unistd::Uid::effective().is_root()) else { return };
    let proxy = Proxy::start(&format!("user \"{user}\"\nlisten \"127.0.0.1:0\"\nrule respond=204\n"));
    assert!(proxy.groups().contains(&group), "{user} is in {group}, the proxy in {:?}", proxy.groups());
}

#[test]
fn a_user_that_it_is_already_is_no_obstacle() {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).unwrap().unwrap();
    let groups: Vec<u32> = nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
    let proxy = Proxy::start(&format!("user \"{}\"\nlisten \"127.0.0.1:0\"\nrule respond=204\n", user.name));
    assert_eq!(proxy.groups(), groups);
}
