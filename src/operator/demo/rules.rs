//! The demo's rule file, written to be read: an example of the language as much as a configuration.

use std::fmt::Write as _;

use crate::operator::demo::Ports;
use crate::operator::demo::servers::{Pool, Servers};

/// The certificate's file name.
pub(super) const CERTIFICATE: &str = "demo.crt";
/// The key's file name.
pub(super) const KEY: &str = "demo.key";

/// The rule file for these ports and servers.
pub(super) fn text(ports: Ports, servers: &Servers) -> String {
    let Ports { http, https } = ports;
    let pools: String = servers.pools.iter().map(pool).collect();
    format!(
        r#"// The rules of `pointsman demo`. The first rule that matches a request decides what happens to it.

listen "127.0.0.1:{http}"
listen "127.0.0.1:{https}" {{
    tls {{ certificate "{CERTIFICATE}" key="{KEY}" }}
}}
access-log "-" format="json"

// Three pools of servers. A server with twice the weight gets twice the requests.
{pools}
// Pointsman can answer by itself: it redirects, or refuses.
rule "moved" path="/old/{{*rest}}" redirect="/{{rest}}"
rule "closed" path="/secret" respond=403 body="This door is closed.\n"

// By path: the API, its events, and a WebSocket that may stay quiet for an hour.
rule "api" path="/api/{{*rest}}" use="api"
rule "events" path="/events" use="api"
rule "websocket" path="/ws" use="api" upgrade="websocket"

// By media type: what ends in .png or .svg, and what a browser asks for as an image, however it is called.
rule "images" media-type="image/*" use="images"

// Everything else.
rule "pages" use="pages"

// Tests that live beside the rules: `pointsman check` runs them.
expect "GET http://127.0.0.1:{http}/" use="pages"
expect "GET https://localhost:{https}/about" use="pages" listen="127.0.0.1:{https}"
expect "GET http://127.0.0.1:{http}/img/one.svg" use="images"
expect "GET http://127.0.0.1:{http}/two" use="images" {{ header "Accept" "image/avif,image/webp,image/*" }}
expect "GET http://127.0.0.1:{http}/api/hello.png" use="api"
expect "GET http://127.0.0.1:{http}/events" rule="events"
expect "GET http://127.0.0.1:{http}/ws" rule="websocket"
expect "GET http://127.0.0.1:{http}/old/about" redirect="/about"
expect "GET http://127.0.0.1:{http}/secret" respond=403
"#
    )
}

fn pool(pool: &Pool) -> String {
    let mut text = format!("pool \"{}\" {{\n", pool.name);
    for (position, (name, address)) in pool.servers.iter().enumerate() {
        let weight = if pool.name == "pages" && position == 0 { " weight=2" } else { "" };
        // Writing to a String can't fail.
        let _ = writeln!(text, "    server \"{name}\" \"{address}\"{weight}");
    }
    let settings = match pool.name {
        "api" => {
            "    scheduler \"wlc\"                        // to the server with the fewest requests in flight\n    timeout tunnel=\"1h\"\n"
        }
        _ => "    scheduler \"wrr\"                        // in turn, by weight\n",
    };
    text.push_str(settings);
    text.push_str("}\n");
    text
}
