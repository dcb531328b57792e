//! HTTP/2 towards clients: streams, limits and ends, with the `h2` crate, curl and raw frames as clients.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, Response};

use crate::pools::all_to;
use crate::support::{DEADLINE, Origin, Proxy};

/// Rules for a plain listener that speaks HTTP/2 alone.
fn h2c(origin: &Origin, settings: &str) -> String {
    all_to([origin], "").replacen("via \"off\"", &format!("via \"off\"; protocols \"h2c\"\n{settings}\n"), 1)
}

/// Runs a client to its end, within the deadline of all tests.
fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async { tokio::time::timeout(DEADLINE, client).await.expect("the client ends in time") })
}

/// A connection with prior knowledge, driven in the background.
async fn connect(address: SocketAddr) -> SendRequest<Bytes> {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    client
}

async fn get(client: &mut SendRequest<Bytes>, path: &str) -> Result<(Response<()>, Vec<u8>), h2::Error> {
    let request = Request::get(format!("http://a.test{path}")).body(()).unwrap();
    *client = client.clone().ready().await?;
    let (response, _) = client.send_request(request, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        bytes.extend_from_slice(&piece);
        body.flow_control().release_capacity(piece.len())?;
    }
    Ok((Response::from_parts(head, ()), bytes))
}

#[test]
fn requests_over_http2_reach_http1_servers() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, ""));
    run(async {
        let mut client = connect(proxy.address()).await;
        for _ in 0..3 {
            let (head, body) = get(&mut client, "/a?b").await.unwrap();
            assert_eq!((head.status().as_u16(), body.as_slice()), (200, &b"one"[..]));
        }
    });
    let requests = origin.wait_for_requests(3);
    assert_eq!(requests[0].head.target(), "/a?b");
    assert_eq!(origin.accepted(), 1);
}

#[test]
fn limit_streams_max_is_the_number_of_requests_at_once() {
    let origin = Origin::new("one");
    let proxy = Proxy::start(&h2c(&origin, "limits { streams-max 7 }"));
    run(async {
        let mut client = connect(proxy.address()).await;
        get(&mut client, "/").await.unwrap();
        assert_eq!(client.current_max_send_streams(), 7);
    });
}
