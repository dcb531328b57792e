//! Random rules and random requests for them: few names, so that rules overlap and requests meet them, and everything that
//! the rule language has. The same seed gives the same.
//!
//! It knows the language as `docs/rules.md` tells it, and shares no code with the product.

use std::fmt::Write as _;

/// A seeded source of choices (xorshift64*, Vigna 2016).
pub struct Draw(u64);

impl Draw {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of a list.
    pub fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const HOSTS: &[&str] = &["a.test", "b.test", "*.a.test", "*.test", "x.a.test"];
/// Patterns, and the captures that each has.
const PATHS: &[(&str, &[&str])] = &[
    ("/a/{x}", &["x"]),
    ("/{y}/b", &["y"]),
    ("/a/b", &[]),
    ("/{*rest}", &["rest"]),
    ("/a/{*rest}", &["rest"]),
    ("/img/{name}.png", &["name"]),
    ("/v{n}/{*rest}", &["n", "rest"]),
    ("/", &[]),
];
const EXPRESSIONS: &[&str] = &["^/a", "/b$", "^/([a-z]+)/(.*)$", "^/v([0-9])", r"\.(png|css)$"];
const METHODS: &[&str] = &["GET", "POST", "HEAD", "PUT", "OPTIONS"];
const NAMED: &[(&str, &str)] = &[
    ("header", "\"X-A\""),
    ("header", "\"X-A\" \"1\""),
    ("header", "\"x-a\" \"2\" \"*3\""),
    ("header", "\"X-B\" \"1*\""),
    ("cookie", "\"c\" \"1\""),
    ("cookie", "\"d\""),
    ("query", "\"q\" \"1\""),
    ("query", "\"r\""),
];
const TYPES: &[&str] = &["image/*", "text/css", "image/png", "text/*", "application/json", "*/*"];
const CLIENTS: &[&str] = &["127.0.0.1", "127.0.0.2", "127.0.0.0/8", "192.0.2.0/24", "10.0.0.0/8", "::1"];
const KEYS: &[&str] =
    &["path", "uri", "host", "host+path", "client", "media-type", "header:X-A", "cookie:c", "query:q"];

/// `count` rules that send requests to `pools` and name `listeners`.
pub fn rules(draw: &mut Draw, count: usize, pools: &[&str], listeners: &[&str]) -> String {
    (0..count).map(|number| rule(draw, number, pools, listeners)).collect()
}

fn rule(draw: &mut Draw, number: usize, pools: &[&str], listeners: &[&str]) -> String {
    let mut inside = String::new();
    let mut captures: Vec<String> = Vec::new();
    for _ in 0..draw.below(4) {
        predicate(draw, listeners, &mut inside);
    }
    if draw.once_in(2) {
        let (path, names) = draw.one(PATHS);
        let _ = writeln!(inside, "path \"{path}\"");
        captures.extend(names.iter().map(|name| format!("{{{name}}}")));
    } else if draw.once_in(3) {
        let _ = writeln!(inside, "path \"/a/b\" \"{}\" \"/img/{{*all}}\"", draw.one(PATHS).0);
    }
    if draw.once_in(4) {
        let expression = draw.one(EXPRESSIONS);
        let _ = writeln!(inside, "path-regex #\"{expression}\"#");
        if expression.contains("(") && !expression.contains("png") {
            captures.push("$1".to_owned());
        }
    }
    if draw.once_in(6) {
        let mut not = String::new();
        predicate(draw, listeners, &mut not);
        let _ = writeln!(inside, "not {{ {} }}", not.trim());
    }
    let action = action(draw, pools, &captures, &mut inside);
    let inside: Vec<&str> = inside.lines().map(str::trim).collect();
    format!("rule \"r{number}\" {action} {{ {} }}\n", inside.join("; "))
}

fn predicate(draw: &mut Draw, listeners: &[&str], out: &mut String) {
    let line = match draw.below(12) {
        0 | 1 if !out.contains("host ") => format!("host \"{}\" \"{}\"", draw.one(HOSTS), draw.one(HOSTS)),
        2 if !out.contains("method ") => format!("method \"{}\" \"{}\"", draw.one(METHODS), draw.one(METHODS)),
        3 if !out.contains("content-type ") => format!("content-type \"{}\"", draw.one(TYPES)),
        4 if !out.contains("accept ") => format!("accept \"{}\"", draw.one(TYPES)),
        5 if !out.contains("media-type ") => format!("media-type \"{}\"", draw.one(TYPES)),
        6 if !out.contains("client ") => format!("client \"{}\"", draw.one(CLIENTS)),
        7 if !out.contains("sni ") => format!("sni \"{}\"", draw.one(HOSTS)),
        8 if !out.contains("listen ") => format!("listen \"{}\"", draw.one(listeners)),
        _ => {
            let (name, values) = draw.one(NAMED);
            format!("{name} {values}")
        }
    };
    let _ = writeln!(out, "{line}");
}

/// A text with values of the request in it.
fn template(draw: &mut Draw, captures: &[String], built_in: &[&str]) -> String {
    match draw.below(2) {
        0 if !captures.is_empty() => captures[draw.below(captures.len())].clone(),
        _ => draw.one(built_in).to_owned(),
    }
}

fn action(draw: &mut Draw, pools: &[&str], captures: &[String], inside: &mut String) -> String {
    let value = template(draw, captures, &["1", "{host}", "{method} {path}", "{uri}", "{client}", "{scheme}"]);
    if draw.once_in(3) {
        let change = draw.one(&["set-response-header", "add-response-header"]);
        let _ = writeln!(inside, "{change} \"X-Answer\" \"{value}\"");
    }
    match draw.below(9) {
        0 => {
            let to = template(draw, captures, &["{path}", "{uri}", "here"]).replace("{uri}", "x?u={uri}");
            let place = draw.one(&["/to/", "https://new.test/", "{scheme}://{host}/"]);
            return format!("redirect=\"{place}{to}\" status={}", draw.one(&[301, 302, 303, 307, 308]));
        }
        1 => return format!("respond={} body=\"told\"", draw.one(&[200, 403, 404, 503])),
        _ => {}
    }
    let _ = match draw.below(8) {
        0 => writeln!(inside, "strip-prefix \"{}\"", draw.one(&["/a", "/img", "/a/b"])),
        1 => writeln!(inside, "rewrite \"/new/{}\"", template(draw, captures, &["{host}", "{query}", "x?y={uri}"])),
        2 => {
            let (name, value) =
                draw.one(&[("X-A", value.as_str()), ("X-A", ""), ("X-Forwarded-For", &value), ("Host", "new.test")]);
            writeln!(inside, "set-request-header \"{name}\" \"{value}\"")
        }
        3 => writeln!(inside, "add-request-header \"X-New\" \"{value}\"\nremove-request-header \"x-b\""),
        4 => writeln!(inside, "upgrade \"echo\" \"websocket\""),
        5 => writeln!(inside, "body-max \"1KiB\""),
        _ => Ok(()),
    };
    if draw.once_in(3) {
        let key = if draw.once_in(2) { String::new() } else { format!(" key=\"{}\"", template(draw, captures, KEYS)) };
        let (one, other) = (draw.below(pools.len()), draw.below(pools.len() - 1));
        let other = if other >= one { other + 1 } else { other };
        let (one, other) = (pools[one], pools[other]);
        let _ = writeln!(inside, "split{key} {{ use \"{one}\" weight={}; use \"{other}\" }}", draw.below(4));
        return String::new();
    }
    format!("use=\"{}\"", draw.one(pools))
}

/// A request, in the words of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: &'static str,
    /// Host, and maybe a port.
    pub authority: &'static str,
    /// Path and query.
    pub target: String,
    /// The fields beside Host.
    pub fields: Vec<(String, String)>,
    /// The last number of the client's address, 127.0.0.N.
    pub client: u8,
    /// The bytes of its body.
    pub body: usize,
}

impl Request {
    /// Its URL.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}{}", self.authority, self.target)
    }

    /// Its host, without the port.
    pub fn host(&self) -> &str {
        self.authority.split(':').next().unwrap_or_default()
    }

    /// What a client sends.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, self.authority);
        for (name, value) in &self.fields {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text.push_str("\r\n");
        text.push_str(&"x".repeat(self.body));
        text.into_bytes()
    }
}

const AUTHORITIES: &[&str] = &["a.test", "A.Test", "b.test:8080", "x.a.test", "y.x.a.test", "c.test", "none.example"];
const TARGETS: &[&str] = &[
    "/",
    "/a",
    "/a/b",
    "/a/b/",
    "/a/c",
    "/c/b",
    "/a/b/c",
    "/img/logo.png",
    "/img/x.css",
    "/v1/users/7",
    "/v2/",
    "/%61/b",
    "/a/../b",
    "/a/./b",
    "/a%2Fb",
    "/a//b",
    "/..;/a",
    "/a/%2e%2e/img/y.png",
    "/a%5Cb",
    "/caf%c3%a9",
    "/v9",
    "/x.a.png",
    "/a/b%20c",
    "/v%2e/..a",
    "/v.%2e",
    "/v../a",
];
const QUERIES: &[&str] = &["", "", "?q=1", "?q=2&r", "?r=%31&q=1", "?"];
const FIELDS: &[(&str, &str)] = &[
    ("X-A", "1"),
    ("x-a", "2"),
    ("X-A", "33"),
    ("X-B", "12"),
    ("Cookie", "c=1; d=2"),
    ("Cookie", "c=\"2\""),
    ("Accept", "image/avif,image/webp,*/*;q=0.8"),
    ("Accept", "text/html, application/json;q=0.9"),
    ("Accept", "*/*"),
    ("Sec-Fetch-Dest", "image"),
    ("Sec-Fetch-Dest", "style"),
    ("Content-Type", "application/json; charset=utf-8"),
    ("X-Forwarded-For", "192.0.2.9, 10.0.0.1"),
    ("X-Forwarded-For", "junk"),
    ("Forwarded", "for=192.0.2.8;proto=https"),
    ("X-Request-Id", "mine"),
    ("X-Request-Id", ""),
    ("TE", "trailers"),
    ("Via", "1.1 other"),
];

/// A request that a client can send.
pub fn request(draw: &mut Draw) -> Request {
    let method = draw.one(METHODS);
    let mut fields: Vec<(String, String)> = Vec::new();
    for _ in 0..draw.below(5) {
        let (name, value) = draw.one(FIELDS);
        fields.push((name.to_owned(), value.to_owned()));
    }
    let takes_body = matches!(method, "POST" | "PUT");
    let body = if takes_body { draw.one(&[0, 5, 1024, 1025, 5000]) } else { 0 };
    if takes_body {
        fields.push(("Content-Length".to_owned(), body.to_string()));
    } else if draw.once_in(6) {
        fields.push(("Connection".to_owned(), "upgrade, X-B".to_owned()));
        fields.push(("Upgrade".to_owned(), draw.one(&["websocket", "h2c", "echo, websocket", "WebSocket"]).to_owned()));
    }
    Request {
        method,
        authority: draw.one(AUTHORITIES),
        target: format!("{}{}", draw.one(TARGETS), draw.one(QUERIES)),
        fields,
        client: draw.one(&[1, 1, 2, 9]),
        body,
    }
}
