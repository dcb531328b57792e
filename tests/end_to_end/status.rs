//! The admin socket of a running proxy, and `pointsman status` that asks it.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Output;
use std::sync::Mutex;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::message::latin1;
use crate::support::{DEADLINE, Origin, Proxy, Setup, pointsman, wait_for};

const KEYS: u64 = 40;
const ROUNDS: u64 = 5;

/// A server that says whether it had the path already.
fn caching() -> Origin {
    let seen = Mutex::new(HashSet::new());
    Origin::with(move |exchange| {
        let is_new = seen.lock().unwrap().insert(exchange.head.target().to_owned());
        exchange.respond(200, &[("X-Cache", if is_new { "MISS" } else { "HIT" })], b"image");
    })
}

fn rules(images: &[Origin], app: &Origin) -> String {
    let servers =
        images.iter().enumerate().map(|(number, origin)| format!("server \"i{number}\" \"{}\"\n", origin.address));
    format!(
        "workers 2\nlisten \"127.0.0.1:0\"\nadmin \"unix:admin.sock\"\naccess-log \"access.log\"\n\
         pool \"images\" {{ {} scheduler \"cbr\" key=\"path\" }}\n\
         pool \"app\" {{ server \"a0\" \"{}\" weight=2 max=5 }}\n\
         rule path=\"/img/{{*rest}}\" use=\"images\"\nrule use=\"app\"\n",
        servers.collect::<String>(),
        app.address
    )
}

fn ask(proxy: &Proxy, arguments: &[&str]) -> Output {
    pointsman(proxy.folder(), &[&["status"], arguments].concat())
}

/// The status, once so many requests have been answered and none is in flight.
fn settled(proxy: &Proxy, requests: u64) -> Value {
    wait_for("the requests to be counted", DEADLINE, || {
        let status = proxy.status();
        let servers =
            || status["pools"].as_array().unwrap().iter().flat_map(|pool| pool["servers"].as_array().unwrap());
        let sum = |name: &str| servers().map(|server| server[name].as_u64().unwrap()).sum::<u64>();
        let answered = servers().map(|server| server["answers"]["2xx"].as_u64().unwrap()).sum::<u64>();
        (answered == requests && sum("in_flight") == 0).then_some(status)
    })
}

/// What a raw request to the admin socket is answered with.
fn raw(proxy: &Proxy, request: &str) -> String {
    let mut stream = UnixStream::connect(proxy.path("admin.sock")).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // The rest of a request that was refused is not read.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    latin1(&answer)
}

#[test]
fn figures_after_known_traffic() {
    let images = [caching(), caching(), caching()];
    let app = Origin::new("app");
    let proxy = Proxy::start(&rules(&images, &app));
    let mut client = proxy.client();
    for _ in 0..ROUNDS {
        for number in 0..KEYS {
            assert_eq!(client.get(&format!("/img/{number}.png?x")).status(), 200);
        }
    }
    for _ in 0..3 {
        assert_eq!(client.get("/page").status(), 200);
    }
    let status = settled(&proxy, KEYS * ROUNDS + 3);
    let process = &status["process"];
    assert_eq!((process["pid"].as_u64(), process["workers"].as_u64()), (Some(proxy.pid().into()), Some(2)));
    assert_eq!((process["connections"].as_u64(), process["panics"].as_u64()), (Some(1), Some(0)), "{process}");
    assert!(process["access_log"]["dropped"] == 0 && process["snapshots_alive"].as_u64() > Some(0), "{process}");

    let pool = &status["pools"][0];
    assert_eq!((&pool["name"], &pool["scheduler"], &pool["key"]), (&"images".into(), &"cbr".into(), &"path".into()));
    let mut keys = 0;
    for (server, origin) in pool["servers"].as_array().unwrap().iter().zip(&images) {
        let got = origin.requests();
        let different: HashSet<&str> = got.iter().map(|request| request.head.target()).collect();
        assert_eq!((&server["state"], &server["weight"], &server["share"]), (&"up".into(), &1.into(), &1.0.into()));
        assert_eq!(server["requests"].as_u64(), Some(got.len() as u64), "{server}");
        assert_eq!(server["answers"]["2xx"].as_u64(), Some(got.len() as u64), "{server}");
        assert_eq!(server["keys"].as_u64(), Some(different.len() as u64), "{server}");
        assert!(server["latency_us"].is_u64() && server["capacity_per_second"].is_f64(), "{server}");
        let content = got.len() as u64 * "image".len() as u64;
        assert_eq!((&server["bytes_to_server"], &server["bytes_to_client"]), (&0.into(), &content.into()), "{server}");
        keys += different.len() as u64;
    }
    let locality = &pool["locality"];
    let hits = KEYS * ROUNDS - keys;
    assert!((KEYS - 1..=KEYS + 1).contains(&locality["distinct_keys"].as_u64().unwrap()), "{locality}");
    assert!((1.0..1.2).contains(&locality["replicas_per_key"].as_f64().unwrap()), "{locality}");
    assert_eq!((locality["hits"].as_u64(), locality["misses"].as_u64()), (Some(hits), Some(keys)), "{locality}");
    let rate = hits as f64 / (KEYS * ROUNDS) as f64;
    assert!((locality["hit_rate"].as_f64().unwrap() - rate).abs() < 1e-3, "{locality}");
    assert_eq!((&locality["table"]["keys"], &locality["moved"]), (&KEYS.into(), &Value::Null), "{locality}");
    let top = locality["top_keys"].as_array().unwrap();
    assert!(top.len() == 10 && top[0]["share"].as_f64().unwrap() <= 2.0 / KEYS as f64, "{locality}");
    // Two keys may want the place of one name.
    let names: Vec<&str> = top.iter().filter_map(|key| key["name"].as_str()).collect();
    assert!(
        names.len() >= 8 && names.iter().all(|name| name.starts_with("/img/") && name.ends_with(".png")),
        "{locality}"
    );

    let pool = &status["pools"][1];
    let server = &pool["servers"][0];
    assert_eq!((&pool["key"], &pool["locality"]), (&Value::Null, &Value::Null));
    assert_eq!((&server["requests"], &server["max"], &server["keys"]), (&3.into(), &5.into(), &Value::Null));

    let text = latin1(&ask(&proxy, &["--socket", "admin.sock"]).stdout);
    for part in ["2 workers, 1 of ", "pool `images`: cbr by path, 3 servers", "  table: 40 of 65536 keys\n", "0 of 5  "]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn failures_and_states_are_told() {
    let origin = Origin::new("app");
    let proxy = Proxy::start(
        &rules(&[], &origin)
            .replace("pool \"images\" {  scheduler \"cbr\" key=\"path\" }\n", "")
            .replace("rule path=\"/img/{*rest}\" use=\"images\"\n", ""),
    );
    let mut client = proxy.client();
    assert_eq!(client.get("/").status(), 200);
    origin.stop();
    wait_for("suspicion", DEADLINE, || {
        assert_eq!(client.get("/").status(), 502);
        (proxy.status()["pools"][0]["servers"][0]["state"] == "suspect").then_some(())
    });
    let server = &proxy.status()["pools"][0]["servers"][0];
    assert!(server["failures"]["connect_errors"].as_u64() >= Some(3), "{server}");
    assert!(server["failures"]["connects_in_a_row"].as_u64() >= Some(3), "{server}");
}

#[test]
fn only_get_is_answered_and_only_the_owner_may_ask() {
    let app = Origin::new("app");
    let mut proxy = Proxy::start(&rules(&[caching()], &app));
    let socket = proxy.path("admin.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let begins = |request: &str, status: &str| {
        let answer = raw(&proxy, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        answer.to_ascii_lowercase()
    };
    let answer = begins("GET /status HTTP/1.1\r\nHost: x\r\n\r\n", "200");
    assert!(
        answer.contains("content-type: application/json\r\n") && answer.contains("connection: close\r\n"),
        "{answer}"
    );
    begins("GET /status?x=1 HTTP/1.0\r\n\r\n".replace("1.0", "1.1\r\nHost: x").as_str(), "200");
    for target in ["/", "/statuses", "/status/", "/metrics"] {
        begins(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"), "404");
    }
    for method in ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let answer = begins(&format!("{method} /status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), "405");
        assert!(answer.contains("\r\nallow: get\r\n"), "{answer}");
    }
    begins(&format!("GET /status HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(20_000)), "431");
    begins("NONSENSE\r\n\r\n", "400");
    // Who connects and says nothing does not keep others out.
    let _idle: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(proxy.status()["pools"][0]["name"], "images");
    proxy.signal(Signal::SIGTERM);
    assert!(proxy.wait_for_exit().success());
    assert!(!socket.exists());
}

#[test]
fn the_admin_socket_of_a_dead_process_is_replaced_and_that_of_a_living_one_is_not() {
    let app = Origin::new("app");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let rules = rules(&[caching()], &app).replace("unix:admin.sock", &format!("unix:{}", socket.display()));
    let mut first = Setup::new(&rules).start();
    let second = Setup::new(&rules).run_to_end(&["run"]);
    let said = latin1(&second.stderr);
    assert_eq!(second.status.code(), Some(3), "{said}");
    assert!(said.contains("admin.sock") && said.contains("somebody listens there already"), "{said}");
    first.signal(Signal::SIGKILL);
    first.wait_for_exit();
    assert!(socket.exists(), "nobody was left to remove it");
    let third = Setup::new(&rules).start();
    assert_eq!(third.status()["process"]["pid"].as_u64(), Some(third.pid().into()));
}

/// Only root may become somebody else.
#[test]
fn the_admin_socket_belongs_to_the_user_that_the_process_becomes() {
    let Some(user) =
        nix::unistd::User::from_name("nobody").unwrap().filter(|_| nix::unistd::Uid::effective().is_root())
    else {
        return;
    };
    let app = Origin::new("app");
    let proxy = Proxy::start(&format!("user \"nobody\"\n{}", rules(&[caching()], &app)));
    let metadata = std::fs::metadata(proxy.path("admin.sock")).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (user.uid.as_raw(), 0o600));
    assert_eq!(proxy.status()["pools"][1]["name"], "app");
}

#[test]
fn exit_codes_of_status() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = pointsman(folder.path(), &[&["status"], arguments].concat());
        assert!(output.stdout.is_empty(), "{}", latin1(&output.stdout));
        (output.status.code(), latin1(&output.stderr))
    };
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("none.kdl", "listen \"127.0.0.1:0\"\nrule respond=404\n");
    write("some.kdl", "listen \"127.0.0.1:0\"\nrule respond=404\nadmin \"unix:a.sock\"\n");
    write("wrong.kdl", "lsten \"127.0.0.1:0\"\n");
    let expect = |arguments: &[&str], code: i32, part: &str| {
        let (found, said) = run(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    };
    expect(&["none.kdl"], 1, "there is no `admin`");
    expect(&["wrong.kdl"], 1, "lsten");
    expect(&["some.kdl"], 3, "a.sock");
    expect(&["--socket", "b.sock", "--json"], 3, "can't ask the proxy at b.sock");
    expect(&["--socket", "b.sock", "some.kdl"], 2, "cannot be used with");
    // Somebody who listens and is no proxy.
    let impostor = UnixListener::bind(folder.path().join("b.sock")).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = impostor.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nI am none").unwrap();
        let mut rest = Vec::new();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_to_end(&mut rest).unwrap();
    });
    expect(&["--socket", "b.sock"], 3, "does not tell its status");
    answering.join().unwrap();
}
