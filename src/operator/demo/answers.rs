//! What the demo's servers answer. Each answer says which server made it, in its body and in `X-Served-By`.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, post};
use http_body_util::channel::Channel;
use serde_json::json;

use crate::operator::demo::websocket;

/// A server's name.
type Name = &'static str;

/// The longest that `/api/slow` waits.
const SLOW_MAX: Duration = Duration::from_secs(30);
/// The time between two events.
const EVENT_PERIOD: Duration = Duration::from_secs(1);

/// A server that has pages.
pub(super) fn pages(name: Name) -> Router {
    signed(Router::new().route("/", get(front_page)).fallback(page), name)
}

/// A server that has images, whatever they are called.
pub(super) fn images(name: Name) -> Router {
    signed(Router::new().fallback(image), name)
}

/// A server that has an API, events and a WebSocket.
pub(super) fn api(name: Name) -> Router {
    let router = Router::new()
        .route("/api/hello", any(hello))
        .route("/api/slow", get(slow))
        .route("/api/echo", post(echo))
        .route("/api/status/{code}", any(status))
        .route("/events", get(events))
        .route("/ws", get(websocket::upgrade));
    signed(router.fallback(no_such_thing), name)
}

fn signed(router: Router<Name>, name: Name) -> Router {
    router.layer(from_fn_with_state(name, sign)).with_state(name)
}

async fn sign(State(name): State<Name>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(HeaderName::from_static("x-served-by"), HeaderValue::from_static(name));
    response
}

async fn front_page(State(name): State<Name>) -> Html<String> {
    Html(include_str!("front_page.html").replace("{server}", name))
}

async fn page(State(name): State<Name>, request: Request) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<title>Pointsman demo</title>\n<p>This is <code>{}</code>, served by <b>{name}</b>.\n",
        escaped(request.uri().path())
    ))
}

/// Text that means nothing to HTML or XML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

async fn image(State(name): State<Name>, request: Request) -> impl IntoResponse {
    let colour = if name.ends_with('1') { "#2a6f97" } else { "#9a3b26" };
    let path = escaped(request.uri().path());
    let image = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="260" height="90" font-family="sans-serif" fill="#fff">
  <rect width="260" height="90" rx="8" fill="{colour}"/>
  <text x="16" y="42" font-size="24">{name}</text>
  <text x="16" y="68" font-size="13">{path}</text>
</svg>
"##
    );
    ([(CONTENT_TYPE, "image/svg+xml")], image)
}

fn json_of(value: &serde_json::Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], format!("{value:#}\n")).into_response()
}

async fn hello(State(name): State<Name>, request: Request) -> Response {
    let fields: serde_json::Map<_, _> = request
        .headers()
        .iter()
        .map(|(field, value)| (field.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
        .collect();
    json_of(&json!({
        "server": name,
        "method": request.method().as_str(),
        "path": request.uri().path(),
        "query": request.uri().query(),
        "fields": fields,
    }))
}

async fn slow(State(name): State<Name>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let millis = query.strip_prefix("ms=").and_then(|millis| millis.parse().ok()).unwrap_or(2_000);
    let wait = Duration::from_millis(millis).min(SLOW_MAX);
    tokio::time::sleep(wait).await;
    json_of(&json!({ "server": name, "waited_ms": wait.as_millis() as u64 }))
}

/// Gives the body back while it still comes in.
async fn echo(request: Request) -> Response {
    let media_type = request.headers().get(CONTENT_TYPE).cloned();
    let media_type = media_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    ([(CONTENT_TYPE, media_type)], request.into_body()).into_response()
}

async fn status(State(name): State<Name>, Path(code): Path<String>) -> Response {
    match code.parse().ok().and_then(|code: u16| StatusCode::from_u16(code).ok()).filter(|code| code.as_u16() >= 200) {
        Some(code) => (code, json_of(&json!({ "server": name, "status": code.as_u16() }))).into_response(),
        None => (StatusCode::BAD_REQUEST, "a status is a number from 200 to 999\n").into_response(),
    }
}

async fn no_such_thing(State(name): State<Name>) -> Response {
    let paths = ["/api/hello", "/api/slow?ms=2000", "/api/echo (POST)", "/api/status/503", "/events", "/ws"];
    (StatusCode::NOT_FOUND, json_of(&json!({ "server": name, "there_is": paths }))).into_response()
}

/// One event a second for as long as the client listens.
async fn events(State(name): State<Name>) -> impl IntoResponse {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(EVENT_PERIOD);
        for number in 1_u64.. {
            ticks.tick().await;
            let event = format!("data: {{\"server\":\"{name}\",\"number\":{number}}}\n\n");
            if sender.send_data(event.into()).await.is_err() {
                return;
            }
        }
    });
    ([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], Body::new(body))
}
