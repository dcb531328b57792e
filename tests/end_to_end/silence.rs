//! A server that takes requests and says nothing: it is found out, and what it has of requests that may be sent again is answered
//! by another server.

use std::sync::Arc;
use std::thread;

use crate::pools::{Server, all_to};
use crate::support::deadline::Gate;
use crate::support::{Client, Origin, Proxy};

/// One that answers at once until it is told to say nothing, and a second that gets nothing as long as the first is well.
fn scene() -> (Origin, Origin, Proxy) {
    let (first, second) = (Origin::new("first"), Origin::new("second"));
    let servers: [Server; 2] = [Server::with(&first, "weight=9"), Server::from(&second)];
    let proxy = Proxy::start(&all_to(servers, "scheduler \"fo\""));
    let mut client = proxy.client();
    // So that it is known how fast it answers.
    for _ in 0..100 {
        assert_eq!(client.get("/").text(), "first");
    }
    (first, second, proxy)
}

fn falls_silent(origin: &Origin) -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    origin.handle(move |exchange| {
        exchange.read_body();
        opened.wait();
        exchange.respond(200, &[], b"late");
    });
    gate
}

/// As many requests as `methods`, at once, each on a connection of its own; what their answers say.
fn ask_at_once(proxy: &Proxy, methods: &[&'static str]) -> Vec<thread::JoinHandle<String>> {
    let ask = |method: &&'static str| {
        let (mut client, method): (Client, &'static str) = (proxy.client(), method);
        thread::spawn(move || {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"));
            client.response_to(method).text()
        })
    };
    methods.iter().map(ask).collect()
}

#[test]
fn gets_that_a_silent_server_has_are_answered_by_another_and_posts_stay() {
    let (first, second, proxy) = scene();
    let gate = falls_silent(&first);
    let posts = ask_at_once(&proxy, &["POST"; 2]);
    let gets = ask_at_once(&proxy, &["GET"; 8]);
    for get in gets {
        // Nobody has opened the gate: they have not waited for the first.
        assert_eq!(get.join().unwrap(), "second");
    }
    proxy.wait_for_error("suspect");
    assert_eq!(second.requests().len(), 8);
    gate.open();
    for post in posts {
        assert_eq!(post.join().unwrap(), "late");
    }
}
