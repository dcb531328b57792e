//! The same over HTTP/2: an exchange that panics, whose client gives its stream up, or whose client vanishes, at every step.
//! It costs the stream, or the connection that has gone, and nothing that either held is left.

use ::h2::client::SendRequest;
use bytes::Bytes;
use http::Request;
use tokio::task::JoinHandle;

use super::*;

/// What happens to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamFate {
    Panics,
    IsReset,
    LosesItsConnection,
}

/// Requests by host, path, and pieces of the body; and the answers' bodies.
const SCRIPTS: [(&str, &[&str], &str); 6] = [
    ("http://a/plain", &[], "plain"),
    ("http://a/interim", &[], "interim"),
    ("http://a/upload", &["012", "34567", "89"], "uploaded"),
    ("http://retry/plain", &[], "plain"),
    ("http://refused/plain", &[], "plain"),
    ("http://queued/plain", &[], "plain"),
];

/// A client's connection and what drives it.
async fn open(bench: &Bench) -> (SendRequest<Bytes>, JoinHandle<()>) {
    let (tcp, life) = bench.connect().await;
    tokio::task::spawn_local(life);
    let (client, connection) = ::h2::client::handshake(tcp).await.unwrap();
    let driver = tokio::task::spawn_local(async move {
        let _ = connection.await;
    });
    (client, driver)
}

async fn ask(client: &SendRequest<Bytes>, uri: &str, body: &[&str]) -> Result<String, ::h2::Error> {
    let mut client = client.clone().ready().await?;
    let method = if body.is_empty() { "GET" } else { "PUT" };
    let request = Request::builder().method(method).uri(uri).body(()).unwrap();
    let (response, mut stream) = client.send_request(request, body.is_empty())?;
    for (place, piece) in body.iter().enumerate() {
        tokio::task::yield_now().await;
        if stream.send_data(Bytes::copy_from_slice(piece.as_bytes()), place + 1 == body.len()).is_err() {
            // It was reset meanwhile; the answer says how.
            break;
        }
    }
    let mut body = response.await?.into_body();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece?);
    }
    Ok(String::from_utf8(text).unwrap())
}

/// Plays one script with this fate at this step. False: it did not come to it.
async fn play((uri, body, expects): (&str, &[&str], &str), fate: StreamFate, step: usize) -> bool {
    let what = format!("{uri} {fate:?} at step {step}");
    let bench = Bench::speaking("{ protocols \"h2c\" }").await;
    let (client, driver) = open(&bench).await;
    assert_eq!(ask(&client, "http://a/plain", &[]).await.unwrap(), "plain");
    bench.settle(1, &what).await;
    bench.occupy();

    let given_up = Rc::new(Notify::new());
    match fate {
        StreamFate::Panics => faults::order(step, faults::panic),
        StreamFate::IsReset => {
            let given_up = Rc::clone(&given_up);
            faults::order(step, move || given_up.notify_one());
        }
        StreamFate::LosesItsConnection => {
            let driver = driver.abort_handle();
            faults::order(step, move || driver.abort());
        }
    }
    let answer = tokio::select! {
        answer = ask(&client, uri, body) => Some(answer),
        () = given_up.notified() => None,
    };
    let has_come = faults::was_carried_out();
    let is_connected = fate != StreamFate::LosesItsConnection || !has_come;
    match answer {
        Some(Ok(text)) => assert_eq!(text, expects, "{what}"),
        Some(Err(error)) => {
            assert!(has_come, "{what}: {error}");
            let reason = error.reason();
            assert!(!is_connected || reason == Some(::h2::Reason::INTERNAL_ERROR), "{what}: {error}");
        }
        None => assert!(has_come, "{what}"),
    }
    bench.settle(u32::from(is_connected), &what).await;
    assert_eq!(bench.panics(), u64::from(has_come && fate == StreamFate::Panics), "{what}");
    if is_connected {
        assert_eq!(ask(&client, "http://a/plain", &[]).await.unwrap(), "plain", "{what}");
    }
    drop(client);
    driver.abort();
    bench.settle(0, &what).await;
    assert_eq!(bench.failures(), 0, "{what}");
    has_come
}

fn at_every_step(fate: StreamFate) {
    for script in SCRIPTS {
        let steps = (0..200).take_while(|step| run(play(script, fate, *step))).count();
        println!("{} {fate:?}: {steps} steps", script.0);
        assert!((2..200).contains(&steps), "{} {fate:?}: {steps} steps", script.0);
    }
}

#[test]
fn a_panic_in_an_exchange_over_http2_costs_its_stream_only_and_is_counted_once() {
    at_every_step(StreamFate::Panics);
}

#[test]
fn a_stream_that_its_client_resets_at_any_step_gives_everything_back() {
    at_every_step(StreamFate::IsReset);
}

#[test]
fn an_http2_client_that_vanishes_at_any_step_leaves_nothing_behind() {
    at_every_step(StreamFate::LosesItsConnection);
}
