//! What must hold for any PROXY header, whoever made it up.

use std::net::{IpAddr, SocketAddr};

use pointsman::pure::proxy_protocol::{HEADER_MAX, Header, Parsed, Source, Version, parse, push};

/// A PROXY header: pieces make no difference, nor does what follows; a plain reader finds the same; written anew it says the
/// same. Returns whether the input begins with a whole header.
pub fn proxy_protocol(input: &[u8]) -> bool {
    let whole = parse(input);
    let mut told = Ok(Parsed::Partial);
    for end in 0..=input.len().min(HEADER_MAX + 1) {
        let now = parse(&input[..end]);
        assert!(told == Ok(Parsed::Partial) || now == told, "what has been told once stays so");
        told = now;
    }
    assert_eq!(told, whole, "pieces make no difference");
    assert!(input.len() < HEADER_MAX || whole != Ok(Parsed::Partial), "a header is bounded");
    let Ok(Parsed::Complete(header)) = whole else { return false };
    assert!(header.length <= input.len().min(HEADER_MAX));
    assert_eq!(parse(&input[..header.length]), whole, "what follows makes no difference");
    assert_eq!(plainly_read(&input[..header.length]), header.source);
    for version in [Version::V1, Version::V2] {
        let mut written = Vec::new();
        push(&mut written, version, header.source);
        let Ok(Parsed::Complete(again)) = parse(&written) else { panic!("{written:?} is no header") };
        let source = match (version, header.source) {
            (Version::V1, Source::Proxy) => Source::Unnamed,
            (_, source) => source,
        };
        assert_eq!(canonical(again.source), canonical(source));
        assert_eq!(again, Header { source: again.source, length: written.len() });
    }
    true
}

/// What a whole and right header says, read by splitting lines and counting bytes.
fn plainly_read(header: &[u8]) -> Source {
    let named = |client: (IpAddr, u16), called: (IpAddr, u16)| {
        let [client, called] = [client, called].map(|(ip, port)| SocketAddr::new(ip, port));
        Source::Client(pointsman::pure::proxy_protocol::Endpoints { client, called })
    };
    if header[0] == b'P' {
        let text = std::str::from_utf8(header).unwrap();
        let words: Vec<&str> = text.strip_suffix("\r\n").unwrap().split(' ').collect();
        if words[1] == "UNKNOWN" {
            return Source::Unnamed;
        }
        let [client, called] = [2, 3].map(|at| words[at].parse::<IpAddr>().unwrap());
        assert!([client, called].iter().all(|ip| ip.is_ipv4() == (words[1] == "TCP4")));
        return named((client, words[4].parse().unwrap()), (called, words[5].parse().unwrap()));
    }
    assert_eq!(header.len(), 16 + usize::from(header[14]) * 256 + usize::from(header[15]));
    let port = |at: usize| u16::from_be_bytes(header[at..at + 2].try_into().unwrap());
    match (header[12], header[13]) {
        (0x20, _) => Source::Proxy,
        (0x21, 0x11 | 0x12) => {
            let ip = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&header[at..at + 4]).unwrap());
            named((ip(16), port(24)), (ip(20), port(26)))
        }
        (0x21, 0x21 | 0x22) => {
            let ip = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
            named((ip(16), port(48)), (ip(32), port(50)))
        }
        _ => Source::Unnamed,
    }
}

/// The same, where an IPv4 address in IPv6 is one of IPv4.
fn canonical(source: Source) -> Option<[(IpAddr, u16); 2]> {
    match source {
        Source::Client(ends) => Some([ends.client, ends.called].map(|end| (end.ip().to_canonical(), end.port()))),
        Source::Proxy | Source::Unnamed => None,
    }
}
