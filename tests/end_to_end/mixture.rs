//! Everything at once: many clients with requests of all kinds, of which some go away half-way, and servers that answer in
//! all ways, some of them bad. No answer and no body ever belongs to somebody else, and nothing is left at the end.
//!
//! Random by a seed that is printed, so that a failure's traffic can be made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::pools::all_to;
use crate::support::{Client, DEADLINE, Exchange, Origin, Proxy, wait_for};

/// A small generator (xorshift): the tests share no code with the product.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The body that belongs to a request: its own name, over and over.
fn body_of(name: &str, length: usize) -> Vec<u8> {
    name.bytes().cycle().take(length).collect()
}

/// How a server answers, by a field of the request.
fn answer(exchange: &mut Exchange<'_>, wrong: &AtomicUsize) {
    let field = |name: &str| exchange.head.field(name).unwrap_or_default().to_owned();
    let (name, manner) = (field("x-name"), field("x-manner"));
    let length: usize = field("x-answer").parse().unwrap();
    if manner == "early" {
        exchange.respond(200, &[("X-Name", &name)], &body_of(&name, length));
        exchange.read_body();
        return;
    }
    let mut read = Vec::new();
    while let Some(piece) = exchange.piece() {
        read.extend_from_slice(&piece);
    }
    if read != body_of(&name, read.len()) {
        wrong.fetch_add(1, Ordering::SeqCst);
    }
    let body = body_of(&name, length);
    match manner.as_str() {
        "reset" => exchange.reset(),
        "cut" => {
            let cut = &body[..length / 2];
            exchange.write(format!("HTTP/1.1 200 OK\r\nX-Name: {name}\r\nContent-Length: {}\r\n\r\n", length + 1));
            exchange.write(cut);
            exchange.close();
        }
        "chunked" => {
            exchange.write("HTTP/1.1 103 Early Hints\r\n\r\n");
            exchange.write(format!("HTTP/1.1 200 OK\r\nX-Name: {name}\r\nTransfer-Encoding: chunked\r\n\r\n"));
            for piece in body.chunks(3000) {
                exchange.write([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            exchange.write("0\r\nT: 1\r\n\r\n");
        }
        "until-close" => {
            exchange.write(format!("HTTP/1.0 200 OK\r\nX-Name: {name}\r\n\r\n"));
            exchange.write(body);
            exchange.close();
        }
        "close" => {
            exchange.respond(200, &[("X-Name", &name), ("Connection", "close")], &body);
            exchange.close();
        }
        "silent-close" => {
            exchange.respond(200, &[("X-Name", &name)], &body);
            exchange.close();
        }
        "surplus" => {
            // In one piece with the answer: what comes later than that can't be told from the next answer.
            let stray = b"HTTP/1.1 200 OK\r\nX-Name: stray\r\nContent-Length: 5\r\n\r\nstray";
            let head = format!("HTTP/1.1 200 OK\r\nX-Name: {name}\r\nContent-Length: {length}\r\n\r\n");
            exchange.write([head.as_bytes(), &body, stray].concat());
            exchange.close();
        }
        _ => {
            exchange.respond(200, &[("X-Name", &name)], &body);
        }
    }
}

const MANNERS: [&str; 14] = [
    "plain",
    "plain",
    "plain",
    "plain",
    "chunked",
    "chunked",
    "chunked",
    "early",
    "close",
    "silent-close",
    "until-close",
    "cut",
    "reset",
    "surplus",
];

/// One request with its body.
fn request(dice: &mut Dice, name: &str) -> Vec<u8> {
    let manner = MANNERS[usize::try_from(dice.roll(MANNERS.len() as u64)).unwrap()];
    let answer = dice.roll(40_000);
    let method = ["GET", "POST", "PUT", "PATCH"][usize::try_from(dice.roll(4)).unwrap()];
    let length = usize::try_from(dice.roll(3) * dice.roll(30_000)).unwrap();
    let mut request = format!(
        "{method} /{name} HTTP/1.1\r\nHost: a.test\r\nX-Name: {name}\r\nX-Manner: {manner}\r\nX-Answer: {answer}\r\n"
    )
    .into_bytes();
    let body = body_of(name, length);
    if dice.roll(2) == 0 && length > 0 {
        request.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
        request.extend_from_slice(&body);
    } else if length > 0 {
        request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        let size = 1 + usize::try_from(dice.roll(20_000)).unwrap();
        for piece in body.chunks(size) {
            request.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            request.extend_from_slice(piece);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"0\r\n\r\n");
    } else {
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// Sends requests on a connection until it ends, checks each answer, and sometimes leaves. Gives back how many were whole.
fn play(address: std::net::SocketAddr, seed: u64) -> usize {
    let mut dice = Dice(seed);
    let mut whole = 0;
    for connection in 0..6 {
        let mut client = Client::connect(address);
        for round in 0..8 {
            let count = 1 + dice.roll(2);
            let names: Vec<String> = (0..count).map(|index| format!("n{seed}-{connection}-{round}-{index}")).collect();
            let sent: Vec<u8> = names.iter().flat_map(|name| request(&mut dice, name)).collect();
            let leaves = dice.roll(12) == 0;
            let sent = if leaves { &sent[..usize::try_from(dice.roll(sent.len() as u64)).unwrap()] } else { &sent[..] };
            let step = 1 + usize::try_from(dice.roll(20_000)).unwrap();
            // A connection that ends under us ends this round: its answers, as far as they came, are looked at.
            let is_sent = sent.chunks(step).all(|piece| client.try_send(piece).is_ok());
            if leaves {
                if dice.roll(2) == 0 {
                    client.reset();
                }
                break;
            }
            let mut ends = !is_sent;
            for name in &names {
                let Ok(answer) = client.try_response_to("GET") else {
                    ends = true;
                    break;
                };
                if answer.status() == 200 {
                    assert_eq!(answer.field("x-name"), Some(name.as_str()), "seed {seed}");
                    assert!(answer.body == body_of(name, answer.body.len()), "the body of {name}, seed {seed}");
                    whole += usize::from(answer.is_complete());
                } else {
                    assert!(matches!(answer.status(), 502), "seed {seed}: {} for {name}", answer.status());
                }
                if !answer.is_complete() || answer.field("connection") == Some("close") {
                    ends = true;
                    break;
                }
            }
            if ends {
                break;
            }
        }
    }
    whole
}

#[test]
pub fn no_answer_and_no_body_ever_belongs_to_somebody_else() {
    let wrong = Arc::new(AtomicUsize::new(0));
    let origins: Vec<Origin> = (0..2)
        .map(|_| {
            let wrong = Arc::clone(&wrong);
            Origin::with(move |exchange| answer(exchange, &wrong))
        })
        .collect();
    let rules = all_to(&origins, "upstream \"http/1.1\" idle-timeout=\"200ms\"").replace("workers 1", "workers 2");
    let proxy = Proxy::start(&rules);
    let seed = u64::from(std::process::id()) << 8;
    println!("seed {seed}");
    let address = proxy.address();
    let clients: Vec<_> = (1..=12).map(|number| thread::spawn(move || play(address, seed + number))).collect();
    let whole: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    println!("{whole} whole answers");
    assert!(whole > 50, "only {whole} whole answers");
    assert_eq!(wrong.load(Ordering::SeqCst), 0, "bodies that belong to another request");
    for origin in &origins {
        wait_for("the servers' connections to end", DEADLINE, || (origin.open_connections() == 0).then_some(()));
    }
    assert_eq!(
        proxy.client().request("GET /n HTTP/1.1\r\nHost: a.test\r\nX-Name: n\r\nX-Answer: 5\r\n\r\n").text(),
        "nnnnn"
    );
}
