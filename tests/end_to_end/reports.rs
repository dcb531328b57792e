//! What people met in other reverse proxies, and must not meet here: each symptom, and the test that is named after it.
//!
//! | symptom | test |
//! | --- | --- |
//! | requests stall on old connections after a reload | comes with reload and HTTP/2 |
//! | a sticky cookie pins its client to a dead address | comes with persistence |
//! | a stale idle connection becomes a 502 although another server is up | `a_get_after_its_server_stopped_is_answered_by_the_other`, `retry::two_hundred_requests_at_once_after_a_server_has_stopped_are_all_answered_by_the_other` |
//! | a POST does not fail over, for its body is spent | `retry::the_body_of_a_post_whose_first_server_refuses_comes_exactly_once_and_whole` |
//! | a WebSocket falls over when the server answers at once | `tunnel::an_answer_glued_to_the_101_reaches_the_client_every_time`, and under load |
//! | the last chunk is written twice after an empty HTTP/2 frame | `h2::the_last_chunk_is_written_once_after_an_empty_http2_frame` |
//! | a gRPC call without a body loses its status | comes with HTTP/2 |
//! | a server that leaves moves the keys of those that stay | comes with the schedulers that hash |
//! | weights are forgotten when a server comes back | `weights_are_kept_when_a_server_comes_back` |
//! | one lost probe takes a server out, one good one puts it back | comes with configurable checks; two good checks bring a server back already: `pure::control` |
//! | the wrong wildcard certificate is served | `transport::tls::table`, and the tests of TLS |
//! | renewed certificates are ignored | comes with reload |
//! | `Expect: 100-continue` gets two 100s and no answer | `forwarding::a_client_that_expects_100_gets_exactly_one_and_then_its_answer` |
//! | a server's name is resolved once and for all | `names::a_server_whose_address_moves_is_found_again_without_a_restart` |
//! | a longer catch-all host beats an exact one | `hosts_are_tried_in_file_order_whatever_their_length` |
//! | memory climbs with clients that have gone | `cancellation::memory_and_descriptors_level_out_when_clients_come_and_vanish_for_long` |
//! | a cut body ends as if it were whole | `bodies::an_answer_that_is_cut_short_never_looks_complete_to_a_client`; towards HTTP/2 clients `h2_bodies::a_cut_body_ends_by_a_reset_and_never_as_if_it_were_whole` |
//! | a client removes our forwarding fields through `Connection` | `forwarding::a_client_cannot_remove_host_framing_or_our_own_fields_by_naming_them_in_connection` |
//! | event streams stall | `an_event_stream_begins_with_its_head_and_each_event_comes_before_the_next` |
//! | what a server says on an idle connection becomes somebody's answer | `upstream_pool::an_answer_that_comes_on_an_idle_connection_is_never_anybodys` |
//! | HTTP/1.0 clients get chunks | `an_http_1_0_client_gets_no_chunks_no_interim_answer_and_the_whole_body` |

use std::sync::Arc;

use crate::pools::{Server, all_to, pools_of_one};
use crate::support::deadline::Gate;
use crate::support::{DEADLINE, End, Origin, Proxy, wait_for};

/// One request lands on a server, the server stops by FIN, and the next request comes at once. 200 times over, among others,
/// of which a fifth may be sent again.
#[test]
fn a_get_after_its_server_stopped_is_answered_by_the_other() {
    let origins = [Origin::new("one"), Origin::new("two")];
    let proxy = Proxy::start(&all_to(&origins, ""));
    let mut client = proxy.client();
    for round in 0..200 {
        let last = (0..12).map(|_| client.get("/").text()).last().unwrap();
        let dead = usize::from(last == "two");
        origins[dead].stop();
        let live = if dead == 0 { "two" } else { "one" };
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!((round, answer.status(), answer.text().as_str()), (round, 200, live));
        }
        origins[dead].start();
    }
}

#[test]
fn weights_are_kept_when_a_server_comes_back() {
    let origins = [Origin::new("one"), Origin::new("two")];
    for scheduler in ["scheduler \"wrr\"", "scheduler \"wrr\" mode=\"ipvs\"", "scheduler \"wlc\""] {
        let servers = [Server::with(&origins[0], "weight=3"), Server::with(&origins[1], "weight=1")];
        let proxy = Proxy::start(&all_to(servers, format!("{scheduler}\nslow-start \"0s\"")));
        let mut client = proxy.client();
        let mut count = || (0..400).filter(|_| client.get("/").text() == "one").count();
        // Only requests in flight at the same time make a difference to least connections: alone, all servers are equal.
        let expected = if scheduler.contains("wlc") { count() } else { 300 };
        assert!(count().abs_diff(expected) <= 2);
        origins[0].stop();
        let mut probe = proxy.client();
        wait_for("suspicion", DEADLINE, || {
            probe.get("/");
            proxy.errors().iter().any(|line| line.contains("suspect")).then_some(())
        });
        assert_eq!(count(), 0);
        origins[0].start();
        wait_for("the server's return", DEADLINE, || (probe.get("/").text() == "one").then_some(()));
        let after = count();
        assert!(after.abs_diff(expected) <= 2, "{scheduler}: {after} of 400");
    }
}

#[test]
pub fn hosts_are_tried_in_file_order_whatever_their_length() {
    let (one, two) = (Origin::new("exact"), Origin::new("wildcard"));
    let pools = pools_of_one(&[("exact", &one), ("wildcard", &two)]);
    let exact = "rule host=\"a.test\" use=\"exact\"\n";
    let wildcard = "rule host=\"*.test\" use=\"wildcard\"\n";
    for (rules, expected, is_hidden) in
        [(format!("{exact}{wildcard}"), "exact", false), (format!("{wildcard}{exact}"), "wildcard", true)]
    {
        let rules = format!("workers 1\nlisten \"127.0.0.1:0\"\n{pools}{rules}");
        let proxy = Proxy::start(&rules);
        let mut client = proxy.client();
        assert_eq!(client.get("/").text(), expected);
        let other = client.request("GET / HTTP/1.1\r\nHost: longer.b.test\r\n\r\n");
        assert_eq!(other.text(), "wildcard");
        // `check` warns of a rule that no request can reach.
        let checked = crate::support::Setup::new(&rules).run_to_end(&["check"]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.status.success(), "{said}");
        assert_eq!(said.contains("never"), is_hidden, "{said}");
    }
}

#[test]
pub fn an_event_stream_begins_with_its_head_and_each_event_comes_before_the_next() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let (told, tells) = std::sync::mpsc::channel::<()>();
    let tells = std::sync::Mutex::new(tells);
    let origin = Origin::with(move |exchange| {
        exchange.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        opened.wait();
        let tells = tells.lock().unwrap();
        for number in 0..50 {
            exchange.write(format!("9\r\ndata: {number:02}\n\r\n"));
            // The next event is not sent before the client has this one.
            if tells.recv_timeout(DEADLINE).is_err() {
                return;
            }
        }
        exchange.write("0\r\n\r\n");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\nAccept: text/event-stream\r\nAccept-Encoding: gzip\r\n\r\n");
    let head = client.head();
    assert_eq!((head.field("content-type"), head.field("content-encoding")), (Some("text/event-stream"), None));
    gate.open();
    let mut body = client.body_of(&head, "GET");
    for number in 0..50 {
        assert_eq!(client.piece(&mut body), Ok(Some(format!("data: {number:02}\n").into_bytes())));
        told.send(()).unwrap();
    }
    assert_eq!(client.piece(&mut body), Ok(None));
}

#[test]
pub fn an_http_1_0_client_gets_no_chunks_no_interim_answer_and_the_whole_body() {
    let origin = Origin::with(|exchange| {
        exchange.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        exchange.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..1000 {
            exchange.write("5\r\n01234\r\n");
        }
        exchange.write("0\r\nT: 1\r\n\r\n");
    });
    let proxy = Proxy::start(&all_to([&origin], ""));
    for fields in ["", "Connection: keep-alive\r\n", "Host: a.test\r\nTE: trailers\r\n"] {
        let mut client = proxy.client();
        client.send(format!("GET / HTTP/1.0\r\n{fields}\r\n"));
        let head = client.head();
        assert_eq!((head.status(), head.all("transfer-encoding").len()), (200, 0));
        let (body, end) = client.rest();
        assert_eq!((String::from_utf8(body).unwrap(), end), ("01234".repeat(1000), End::Closed));
    }
}
