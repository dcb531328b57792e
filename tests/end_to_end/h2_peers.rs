//! HTTP/2 clients that others wrote: curl, nghttp and h2load.

use std::process::{Command, Output};

use crate::h2::h2c;
use crate::pools::all_to;
use crate::support::h2_frames::{END_STREAM, H2Server};
use crate::support::proxy::output_of;
use crate::support::tls::Certificate;
use crate::support::{Origin, Proxy, Setup};

fn ran(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap_or_else(|error| panic!("{program} is needed (see .ci/run): {error}"));
    output_of(child, program)
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Sends the body back, or `one`.
fn echoing() -> Origin {
    Origin::with(|exchange| {
        let mut body = Vec::new();
        while let Some(piece) = exchange.piece() {
            body.extend(piece);
        }
        if body.is_empty() {
            body.extend(b"one");
        }
        exchange.respond(200, &[("X-Origin", "one")], &body);
    })
}

#[test]
fn curl_is_served_over_tls_and_with_prior_knowledge() {
    let origin = echoing();
    let tls = "listen \"127.0.0.1:0\" {\n    tls { certificate \"a.crt\" key=\"a.key\" }\n";
    let rules = all_to([&origin], "").replacen("listen \"127.0.0.1:0\" {", tls, 1);
    let secure = Setup::new(&rules).certificate("a", &Certificate::for_names(&["a.test"])).start();
    let plain = Proxy::start(&h2c(&origin, ""));
    let body = "b".repeat(300_000);
    let shown = "\n%{http_version} %{response_code}";
    for (proxy, scheme, how) in [(&secure, "https", "--http2"), (&plain, "http", "--http2-prior-knowledge")] {
        let folder = proxy.folder().join("body");
        std::fs::write(&folder, &body).unwrap();
        let upload = format!("@{}", folder.display());
        let url = format!("{scheme}://a.test:{}/a?b", proxy.address().port());
        let resolve = format!("a.test:{}:127.0.0.1", proxy.address().port());
        let common = ["-sk", how, "--max-time", "20", "--resolve", &resolve, "-w", shown];
        let output = ran("curl", &[&common[..], &[&url]].concat());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n2 200", "{}", said(&output));
        let output = ran("curl", &[&common[..], &["--data-binary", &upload, &url]].concat());
        assert!(String::from_utf8_lossy(&output.stdout) == format!("{body}\n2 200"), "{}", said(&output).len());
        let chunked = [&common[..], &["-T", folder.to_str().unwrap(), "-H", "Expect:", &url]].concat();
        let output = ran("curl", &chunked);
        assert!(String::from_utf8_lossy(&output.stdout) == format!("{body}\n2 200"), "{}", said(&output).len());
        let output = ran("curl", &[&common[..], &["-I", &url]].concat());
        assert!(said(&output).starts_with("HTTP/2 200"), "{}", said(&output));
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 8);
    assert!(requests.iter().all(|request| request.is_complete && request.head.target() == "/a?b"));
}

#[test]
fn nghttp_is_served_with_trailers_padding_and_continuation() {
    let origin = echoing();
    let proxy = Proxy::start(&h2c(&origin, ""));
    let body = proxy.folder().join("body");
    std::fs::write(&body, "hello").unwrap();
    let url = format!("http://{}/", proxy.address());
    let data = format!("--data={}", body.display());
    let plain = ran("nghttp", &["--timeout=20", &url]);
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "one", "{}", said(&plain));
    let output = ran(
        "nghttp",
        &["--timeout=20", "--padding=100", "--continuation", "--no-content-length", &data, "--trailer=x-sum: 7", &url],
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{}", said(&output));
    let request = origin.requests().pop().unwrap();
    assert_eq!((request.body.as_slice(), request.is_complete), (&b"hello"[..], true));
    assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

#[test]
fn h2load_gets_every_answer() {
    let origin = echoing();
    let proxy = Proxy::start(&h2c(&origin, ""));
    let url = format!("http://{}/", proxy.address());
    let output = ran("h2load", &["-n", "3000", "-c", "8", "-m", "16", "-T", "20", &url]);
    let said = said(&output);
    assert!(said.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{said}");
    assert_eq!(origin.requests().len(), 3000);
}

/// An answer that is over with its head needs no length in HTTP/2, and gRPC's servers say none.
#[test]
fn an_answer_without_a_body_gets_no_length_that_its_server_did_not_say() {
    let server = H2Server::new(&[], |frames, _| {
        while let Some(stream) = frames.request() {
            frames.headers(stream, END_STREAM, &[(":status", "200"), ("grpc-status", "5")]);
        }
    });
    let rules = all_to([server.address], "upstream \"h2c\"");
    let proxy = Proxy::start(&rules.replacen("via \"off\"", "via \"off\"; protocols \"h2c\"", 1));
    let url = format!("http://{}/", proxy.address());
    let output = ran("curl", &["-sv", "--http2-prior-knowledge", "--max-time", "20", &url]);
    let said = said(&output);
    assert!(said.contains("grpc-status: 5") && !said.contains("content-length"), "{said}");
}
