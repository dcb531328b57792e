//! What servers say of their load beside their answers: it reaches control, and clients do not see it unless the pool says so.

use super::*;
use crate::pure::feedback::orca::Utilization;

/// A server that says how loaded it is in the head of its answer, or behind it.
async fn serve_loaded(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::task::spawn_local(async move {
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut seen).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            let answer: &[u8] = if seen.starts_with(b"GET /behind") {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nplain\r\n0\r\n\
                  Endpoint-Load-Metrics-Bin: CQAAAAAAANA/\r\nX-Kept: yes\r\n\r\n"
            } else {
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nendpoint-load-metrics: TEXT cpu_utilization=0.5,mem_utilization=0.75\r\n\
                  X-Kept: yes\r\n\r\nplain"
            };
            let _ = stream.write_all(answer).await;
        });
    }
}

/// The answer to a GET of `target` where the pool has `setting`, and what control gets to know.
async fn answer(setting: &str, target: &str, is_http2: bool) -> (String, Option<Utilization>) {
    let (listener, address) = bound().await;
    tokio::task::spawn_local(serve_loaded(listener));
    let settings = if is_http2 { "{ protocols \"h2c\" }" } else { "" };
    let rest = format!("pool \"p\" {{ server \"s\" \"{address}\"; {setting} }}\nrule use=\"p\"\n");
    let bench = Bench::of(settings, &rest).await;
    let text = if is_http2 {
        let (tcp, life) = bench.connect().await;
        tokio::task::spawn_local(life);
        let (client, connection) = ::h2::client::handshake(tcp).await.unwrap();
        let driver = tokio::task::spawn_local(connection);
        let request = http::Request::get(format!("http://a{target}")).body(()).unwrap();
        let (response, _) = client.ready().await.unwrap().send_request(request, true).unwrap();
        let (head, mut body) = response.await.unwrap().into_parts();
        while let Some(piece) = body.data().await {
            piece.unwrap();
        }
        let text = format!("{:?} {:?}", head.headers, body.trailers().await.unwrap());
        driver.abort();
        text
    } else {
        super::ask(&bench, "a", target).await
    };
    let record = Arc::clone(&bench.store.load().pools[0].endpoints[0].record);
    bench.settle(0, target).await;
    (text.to_ascii_lowercase(), record.load_said.after(&mut 0))
}

#[test]
fn a_load_beside_an_answer_reaches_control_and_not_the_client() {
    run(async {
        let (head, behind) = (Some(0.5), Some(0.25));
        for is_http2 in [false, true] {
            for (target, cpu, memory) in [("/head", head, Some(0.75)), ("/behind", behind, None)] {
                let (text, said) = answer("orca", target, is_http2).await;
                assert_eq!(said, Some(Utilization { cpu, memory }), "{target}");
                assert!(!text.contains("endpoint-load") && text.contains("x-kept"), "{text}");
                let (text, said) = answer("orca pass-on=#true", target, is_http2).await;
                assert_eq!(said, Some(Utilization { cpu, memory }), "{target}");
                assert!(text.contains("endpoint-load") && text.contains("x-kept"), "{text}");
                let (text, said) = answer("", target, is_http2).await;
                assert_eq!(said, None, "{target}: the pool has not asked");
                assert!(text.contains("endpoint-load"), "{text}");
            }
        }
    });
}
