//! The tickets of one handshake that carry a session's identity from connection to connection: random, made at the first
//! handshake, sealed in front of what rustls puts into a ticket.
//!
//! rustls gives its resumption data back in TLS 1.3 alone and does not carry it on. So each handshake of a listener that needs
//! identities has tickets of its own: what it opens tells who the client is, and what it seals passes that on, in 1.2 as in
//! 1.3. Keys are apart from those of tickets without an identity: neither opens the other's.
//!
//! It refuses to prove anything: an identity says where a client's state is, not who the client is.

use std::sync::{Arc, OnceLock};

use aws_lc_rs::rand;
use rustls::server::ProducesTickets;

use crate::pure::persistence::SessionIdentity;
use crate::transport::tls::Ticketer;

/// The tickets of one handshake.
#[derive(Debug)]
pub(super) struct SessionTickets {
    inner: Arc<Ticketer>,
    identity: OnceLock<Option<SessionIdentity>>,
}

impl SessionTickets {
    /// Tickets of a handshake that has not begun.
    pub(super) const fn new(inner: Arc<Ticketer>) -> Self {
        Self { inner, identity: OnceLock::new() }
    }

    /// The identity that the client has brought, or a new one. `None`: the system gives no random numbers.
    pub(super) fn identity(&self) -> Option<SessionIdentity> {
        *self.identity.get_or_init(|| {
            let mut identity = SessionIdentity::default();
            rand::fill(&mut identity).ok().map(|()| identity)
        })
    }
}

impl ProducesTickets for SessionTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.inner.encrypt(&[&self.identity()?, plain].concat())
    }

    /// The first ticket that opens tells the identity, of whatever session it is: each was sealed for this client.
    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let opened = self.inner.decrypt(ticket)?;
        let (identity, plain) = opened.split_first_chunk()?;
        self.identity.get_or_init(|| Some(*identity));
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tls::{ClientCertificates, TicketSecret};

    fn handshake(secret: &TicketSecret, policy: ClientCertificates) -> SessionTickets {
        SessionTickets::new(secret.session_ticketer(policy))
    }

    #[test]
    fn an_identity_goes_on_from_ticket_to_ticket_and_to_another_node() {
        let secrets = [TicketSecret::from_bytes(&[1; 32]), TicketSecret::from_bytes(&[1; 32])];
        let first = handshake(&secrets[0], ClientCertificates::None);
        let identity = first.identity();
        let mut ticket = first.encrypt(b"state").unwrap();
        for round in 0..6 {
            let next = handshake(&secrets[round % 2], ClientCertificates::None);
            assert_eq!(next.decrypt(&ticket).as_deref(), Some(&b"state"[..]));
            assert_eq!(next.identity(), identity);
            ticket = next.encrypt(b"state").unwrap();
        }
        assert_ne!(handshake(&secrets[0], ClientCertificates::None).identity(), identity);
    }

    #[test]
    fn a_ticket_of_another_policy_or_without_identity_does_not_open() {
        let secret = TicketSecret::from_bytes(&[1; 32]);
        let none = handshake(&secret, ClientCertificates::None);
        let required = ClientCertificates::Required { authorities: [7; 32] };
        let ticket = none.encrypt(b"state").unwrap();
        assert_eq!(handshake(&secret, required).decrypt(&ticket), None);
        assert_eq!(secret.ticketer(ClientCertificates::None).decrypt(&ticket), None);
        let plain = secret.ticketer(ClientCertificates::None).encrypt(&[9; 100]).unwrap();
        let other = handshake(&secret, ClientCertificates::None);
        assert_eq!(other.decrypt(&plain), None);
        assert_ne!(other.identity(), Some([9; 16]));
    }
}
