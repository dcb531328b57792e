//! Active checks: whether a server takes a connection, over the same transport that requests use.
//!
//! A check is one attempt; when and how often is the control core's to say.

use std::time::Duration;

use crate::base::time;
use crate::pure::control::CheckFailure;
use crate::pure::proxy_protocol::{Endpoints, Source, Version};
use crate::shared::endpoint::Endpoint;
use crate::transport::dial::{DialError, Dialled, dial};
use crate::transport::proxy_header;

/// Connects to a server and closes the connection again, after the PROXY header that the server waits for, where it does.
/// Returns how long the connect took.
///
/// # Errors
/// [`CheckFailure`]; [`CheckFailure::NotRun`] where the fault is ours.
pub async fn check_connect(
    endpoint: &Endpoint,
    timeout: Duration,
    proxy_protocol: Option<Version>,
) -> Result<Duration, CheckFailure> {
    let begun = time::now();
    match dial(endpoint, timeout).await {
        Ok(connection) => {
            let took = time::now().since(begun);
            if let Some(version) = proxy_protocol {
                // Whether the server takes connections is known by now: the header only spares it an error in its log.
                let _ = proxy_header::send(&connection, version, checker(&connection, version));
            }
            Ok(took)
        }
        Err(DialError::Refused) => Err(CheckFailure::Refused),
        Err(DialError::TimedOut) => Err(CheckFailure::TimedOut),
        Err(DialError::Unreachable(_) | DialError::Unresolved) => Err(CheckFailure::Unreachable),
        Err(
            DialError::Exhausted(_)
            | DialError::Handshake(_)
            | DialError::NotHttp2
            | DialError::Full
            | DialError::Moved,
        ) => Err(CheckFailure::NotRun),
    }
}

/// For whom a check is made: for ourselves. Version 1 can't say so, and names us as the client (proxy-protocol.txt 2.1).
fn checker(connection: &Dialled, version: Version) -> Source {
    match (version, connection.addresses()) {
        (Version::V2, _) => Source::Proxy,
        (Version::V1, Some((client, called))) => Source::Client(Endpoints { client, called }),
        (Version::V1, None) => Source::Unnamed,
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::pure::pool::Address;
    use crate::shared::endpoint::tests::endpoint;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn check(address: &Address, timeout: Duration) -> Result<Duration, CheckFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check_connect(&endpoint(address.clone(), &[]), timeout, None))
    }

    fn bound() -> (Socket, Address) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let address = Address::Socket(socket.local_addr().unwrap().as_socket().unwrap());
        (socket, address)
    }

    #[test]
    fn a_server_that_listens_passes_and_one_that_does_not_is_refused() {
        let (socket, address) = bound();
        assert_eq!(check(&address, TIMEOUT), Err(CheckFailure::Refused));
        socket.listen(16).unwrap();
        assert!(check(&address, TIMEOUT).is_ok());
    }

    #[test]
    fn a_server_whose_queue_is_full_times_out() {
        let (socket, address) = bound();
        socket.listen(0).unwrap();
        let Address::Socket(target) = &address else { panic!("an address") };
        // Nobody accepts: once the queue is full, further connects get no answer.
        let waiting: Vec<_> = (0..16)
            .map(|_| {
                let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                client.set_nonblocking(true).unwrap();
                let _ = client.connect(&(*target).into());
                client
            })
            .collect();
        assert_eq!(check(&address, Duration::from_millis(100)), Err(CheckFailure::TimedOut));
        drop(waiting);
    }

    #[test]
    fn a_name_without_an_address_and_a_missing_unix_socket_are_unreachable() {
        for address in [Address::Name("a.test".to_owned(), 80), Address::Unix("/nowhere/at/all".into())] {
            assert_eq!(check(&address, TIMEOUT), Err(CheckFailure::Unreachable));
        }
    }
}
