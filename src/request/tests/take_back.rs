//! Requests that are taken back from a server that takes them and says nothing: those that may be sent again are answered by
//! another, and the others stay.

use socket2::{Domain, Socket, Type};
use tokio::task::JoinHandle;

use super::*;
use crate::base::id::ServerSlot;
use crate::base::time::Timestamp;

/// The first server of the first pool.
const SILENT: ServerSlot = ServerSlot(0);

/// A server that reads requests and answers none until it is told to.
#[derive(Clone, Default)]
struct Silent {
    /// The requests that it has got whole.
    got: Rc<Cell<usize>>,
    speaks: Rc<Notify>,
}

impl Silent {
    /// Serves HTTP/1.1. To a target that begins with `/interim` it says 103, and with `/begun` half a head.
    async fn serve(self, listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let silent = self.clone();
            tokio::task::spawn_local(async move {
                let mut seen = Vec::new();
                // The bodies of these tests end in a dot, and heads without one in an empty line.
                while !seen.ends_with(b".") && (!seen.ends_with(b"\r\n\r\n") || seen.starts_with(b"P")) {
                    if stream.read_buf(&mut seen).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let target = String::from_utf8_lossy(&seen).split(' ').nth(1).unwrap_or_default().to_owned();
                if target.starts_with("/interim") {
                    stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.unwrap();
                } else if target.starts_with("/begun") {
                    stream.write_all(b"HTTP/1.1 200 ").await.unwrap();
                }
                silent.got.set(silent.got.get() + 1);
                silent.speaks.notified().await;
                let rest: &[u8] = if target.starts_with("/begun") { b"OK" } else { b"HTTP/1.1 200 OK" };
                let _ = stream.write_all(&[rest, b"\r\nContent-Length: 4\r\n\r\nlate"].concat()).await;
            });
        }
    }

    /// The same over HTTP/2.
    async fn serve_h2(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let silent = self.clone();
            tokio::task::spawn_local(async move {
                let mut connection = ::h2::server::handshake(stream).await.unwrap();
                let mut held = Vec::new();
                while let Some(Ok(stream)) = connection.accept().await {
                    silent.got.set(silent.got.get() + 1);
                    held.push(stream);
                }
            });
        }
    }

    async fn has(&self, requests: usize) {
        while self.got.get() < requests {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A pool whose requests all go to the silent server, as long as it may get any.
fn pool(servers: &[SocketAddr], more: &str) -> String {
    let servers = servers
        .iter()
        .zip([9, 1])
        .zip(["silent", "good"])
        .map(|((address, weight), name)| format!("server \"{name}\" \"{address}\" weight={weight}; "));
    format!("pool \"p\" {{ {} scheduler \"fo\"; {more} }}\nrule use=\"p\"\n", servers.collect::<String>())
}

/// A request on a connection of its own; its answer, or what there is of it.
fn ask(bench: &Rc<Bench>, method: &str, target: &str, body: &str) -> JoinHandle<String> {
    let bench = Rc::clone(bench);
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{length}\r\n{body}");
    tokio::task::spawn_local(async move {
        let (mut client, life) = bench.connect().await;
        tokio::task::spawn_local(life);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    })
}

/// Lets everybody on this thread who was woken look around.
async fn take_turns() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

struct Scene {
    bench: Rc<Bench>,
    silent: Silent,
}

impl Scene {
    async fn new(more: &str) -> Self {
        let (listener, silent_address) = bound().await;
        let (good, good_address) = bound().await;
        let silent = Silent::default();
        tokio::task::spawn_local(silent.clone().serve(listener));
        tokio::task::spawn_local(serve(good));
        let bench = Bench::of("", &pool(&[silent_address, good_address], more)).await;
        Self { bench: Rc::new(bench), silent }
    }

    /// What the silent server has in flight, and what was taken back from it.
    fn silent(&self) -> (u32, u64) {
        let record = Arc::clone(&self.bench.store.load().pools[0].endpoints[0].record);
        (record.load.active(), record.figures().taken_back)
    }

    /// Waits until the silent server has been heard later than then.
    async fn hears_after(&self, before: Timestamp) -> Timestamp {
        let record = Arc::clone(&self.bench.store.load().pools[0].endpoints[0].record);
        while record.load.heard() <= before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        record.load.heard()
    }

    async fn silent_becomes(&self, active: u32) {
        while self.silent().0 != active {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[test]
fn what_may_be_sent_again_is_answered_by_another_server_and_the_rest_stays() {
    run(async {
        let scene = Scene::new("").await;
        let bench = &scene.bench;
        let began = ask(bench, "GET", "/interim", "");
        let first_heard = scene.hears_after(Timestamp::ZERO).await;
        let half_begun = ask(bench, "GET", "/begun", "");
        scene.hears_after(first_heard).await;
        let moves = [
            ask(bench, "GET", "/plain", ""),
            ask(bench, "GET", "/plain", ""),
            ask(bench, "DELETE", "/plain", ""),
            ask(bench, "PUT", "/upload", "012345679."),
        ];
        let stays = [ask(bench, "POST", "/plain", "012345678."), began, half_begun];
        scene.silent.has(7).await;
        assert_eq!(bench.store.load().pools[0].endpoints[0].record.load.outstanding(), 7);
        bench.worker.take_back(SILENT);
        for (answer, end) in moves.into_iter().zip(["plain", "plain", "plain", "uploaded"]) {
            let answer = answer.await.unwrap();
            assert!(answer.ends_with(end), "{answer}");
        }
        scene.silent_becomes(3).await;
        assert_eq!(scene.silent().1, 4);
        assert_eq!(bench.store.load().pools[0].endpoints[1].record.figures().retries, 4);
        scene.silent.speaks.notify_waiters();
        for answer in stays {
            let answer = answer.await.unwrap();
            assert!(answer.ends_with("late"), "{answer}");
        }
    });
}

#[test]
fn a_request_whose_connection_does_not_come_about_goes_elsewhere_whatever_its_method() {
    run(async {
        // Its queue of connections is full, and the system drops what comes then.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        let _fills = TcpStream::connect(address).await.unwrap();
        let (good, good_address) = bound().await;
        tokio::task::spawn_local(serve(good));
        let bench = Rc::new(Bench::of("", &pool(&[address, good_address], "timeout connect=\"1h\"")).await);
        let answer = ask(&bench, "POST", "/plain", "012345678.");
        while bench.active() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bench.worker.take_back(SILENT);
        let answer = answer.await.unwrap();
        assert!(answer.contains("plain"), "{answer}");
    });
}

#[test]
fn requests_stay_where_they_are_if_there_is_nowhere_to_go_or_they_were_sent_often_enough() {
    run(async {
        for (more, has_other) in [("retry count=0", true), ("", false)] {
            let scene = Scene::new(more).await;
            if !has_other {
                let state = crate::pure::pool::State::Maintenance;
                let change = crate::shared::snapshot::StateChange::new(ServerSlot(1), state);
                scene.bench.store.set_states(&[change]);
            }
            let answer = ask(&scene.bench, "GET", "/plain", "");
            scene.silent.has(1).await;
            scene.bench.worker.take_back(SILENT);
            take_turns().await;
            assert_eq!(scene.silent(), (1, 0), "{more}");
            scene.silent.speaks.notify_waiters();
            assert!(answer.await.unwrap().ends_with("late"), "{more}");
        }
    });
}

#[test]
fn what_is_asked_of_another_server_is_not_taken_back() {
    run(async {
        let scene = Scene::new("").await;
        let answer = ask(&scene.bench, "GET", "/plain", "");
        scene.silent.has(1).await;
        scene.bench.worker.take_back(ServerSlot(1));
        take_turns().await;
        assert_eq!(scene.silent(), (1, 0));
        scene.silent.speaks.notify_waiters();
        assert!(answer.await.unwrap().ends_with("late"));
    });
}

#[test]
fn streams_to_a_silent_server_of_http2_are_cancelled_and_sent_elsewhere() {
    run(async {
        let (listener, silent_address) = bound().await;
        let (good, good_address) = bound().await;
        let silent = Silent::default();
        tokio::task::spawn_local(silent.clone().serve_h2(listener));
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = good.accept().await {
                tokio::task::spawn_local(async move {
                    let mut connection = ::h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((_, mut respond))) = connection.accept().await {
                        let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                        body.send_data("plain".into(), true).unwrap();
                    }
                });
            }
        });
        let pool = pool(&[silent_address, good_address], "upstream \"h2c\"");
        let bench = Rc::new(Bench::of("", &pool).await);
        let answers = [ask(&bench, "GET", "/", ""), ask(&bench, "GET", "/", "")];
        let stays = ask(&bench, "POST", "/", "012345678.");
        silent.has(3).await;
        bench.worker.take_back(SILENT);
        for answer in answers {
            let answer = answer.await.unwrap();
            assert!(answer.contains("plain"), "{answer}");
        }
        assert_eq!(bench.active(), 1, "the POST stays");
        stays.abort();
    });
}

/// A client that sends its request slowly, an answer that streams and a tunnel are no sign that a server is silent.
#[test]
fn requests_that_the_server_need_not_answer_now_are_not_outstanding() {
    run(async {
        let bench = Bench::new().await;
        let load = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
        let outstanding = async |expected: (u32, u32)| {
            for _ in 0..2_000 {
                if (load.load.active(), load.load.outstanding()) == expected {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            panic!("{} in flight, {} outstanding", load.load.active(), load.load.outstanding());
        };
        let begin = async |text: &[u8]| {
            let (mut client, life) = bench.connect().await;
            tokio::task::spawn_local(life);
            client.write_all(text).await.unwrap();
            client
        };
        let mut slow = begin(b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n012").await;
        outstanding((1, 0)).await;
        let tunnel = b"GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let tunnel = begin(tunnel).await;
        outstanding((2, 0)).await;
        slow.write_all(b"3456789").await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"uploaded") {
            slow.read_buf(&mut seen).await.unwrap();
        }
        outstanding((1, 0)).await;
        drop(tunnel);
        outstanding((0, 0)).await;
    });
}
