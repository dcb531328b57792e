//! Tickets over time, over policies, and under attack.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

/// A ticketer whose clock the test sets, in seconds.
fn ticketer(secret: &TicketSecret, policy: ClientCertificates) -> (Ticketer, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1_900_000_000));
    let read = Arc::clone(&seconds);
    let clock = move || SystemTime::UNIX_EPOCH + Duration::from_secs(read.load(Ordering::Relaxed));
    (secret.ticketer_with_clock(policy, false, Box::new(clock)), seconds)
}

fn secret() -> TicketSecret {
    TicketSecret::from_bytes(&[1; 32])
}

#[test]
fn a_ticket_lives_to_the_end_of_the_epoch_after_its_own() {
    let (tickets, seconds) = ticketer(&secret(), ClientCertificates::None);
    let epoch = EPOCH.as_secs();
    let start = seconds.load(Ordering::Relaxed) / epoch * epoch;
    for made in [0, 1, epoch - 1] {
        seconds.store(start + made, Ordering::Relaxed);
        let ticket = tickets.encrypt(b"state").unwrap();
        for (later, opens) in
            [(0, true), (epoch - 1, true), (epoch, true), (2 * epoch - 1, true), (2 * epoch, false), (9 * epoch, false)]
        {
            seconds.store(start + later, Ordering::Relaxed);
            assert_eq!(tickets.decrypt(&ticket).is_some(), opens, "made at {made}, shown at {later}");
        }
        assert!(made + u64::from(tickets.lifetime()) < 2 * epoch, "the promised lifetime is kept");
        // A clock that is set back by an epoch does not open tickets of its future.
        seconds.store(start - epoch, Ordering::Relaxed);
        assert_eq!(tickets.decrypt(&ticket), None);
    }
    assert!(2 * EPOCH <= Duration::from_secs(24 * 60 * 60));
}

#[test]
fn tickets_open_with_the_same_secret_and_policy_alone() {
    let authorities = [3; 32];
    let policies = [
        ClientCertificates::None,
        ClientCertificates::Optional { authorities },
        ClientCertificates::Required { authorities },
        ClientCertificates::Optional { authorities: [4; 32] },
    ];
    for from in policies {
        let ticket = ticketer(&secret(), from).0.encrypt(b"state").unwrap();
        for to in policies {
            let opened = ticketer(&secret(), to).0.decrypt(&ticket);
            assert_eq!(opened.is_some(), from == to, "{from:?} to {to:?}");
        }
        let stranger = TicketSecret::random().unwrap();
        assert_eq!(ticketer(&stranger, from).0.decrypt(&ticket), None);
    }
}

#[test]
fn no_two_tickets_are_the_same() {
    let (tickets, _) = ticketer(&secret(), ClientCertificates::None);
    assert_ne!(tickets.encrypt(b"state"), tickets.encrypt(b"state"));
}

#[test]
fn every_change_of_a_ticket_and_every_cut_closes_it() {
    let (tickets, _) = ticketer(&secret(), ClientCertificates::None);
    let ticket = tickets.encrypt(b"state").unwrap();
    for position in 0..ticket.len() {
        for bit in 0..8 {
            let mut forged = ticket.clone();
            forged[position] ^= 1 << bit;
            assert_eq!(tickets.decrypt(&forged), None, "bit {bit} of byte {position}");
        }
        assert_eq!(tickets.decrypt(&ticket[..position]), None, "cut at {position}");
    }
}

#[test]
fn a_state_that_is_too_large_gets_no_ticket() {
    let (tickets, _) = ticketer(&secret(), ClientCertificates::None);
    let overhead = tickets.encrypt(b"").unwrap().len();
    let largest = tickets.encrypt(&vec![7; TICKET_MAX - overhead]).unwrap();
    assert_eq!(tickets.decrypt(&largest).unwrap().len(), TICKET_MAX - overhead);
    assert_eq!(tickets.encrypt(&vec![7; TICKET_MAX - overhead + 1]), None);
    assert_eq!(tickets.decrypt(&vec![VERSION; TICKET_MAX + 1]), None);
}

#[test]
fn its_debug_form_has_no_secret_in_it() {
    assert_eq!(format!("{:?}", secret()), "TicketSecret");
    let (tickets, _) = ticketer(&secret(), ClientCertificates::None);
    assert_eq!(format!("{tickets:?}"), "Ticketer { policy: None, .. }");
}

proptest! {
    #[test]
    fn what_was_sealed_is_opened(state in prop::collection::vec(any::<u8>(), 0..600)) {
        let (tickets, _) = ticketer(&secret(), ClientCertificates::None);
        prop_assert_eq!(tickets.decrypt(&tickets.encrypt(&state).unwrap()), Some(state));
    }

    #[test]
    fn noise_never_opens(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let (tickets, seconds) = ticketer(&secret(), ClientCertificates::None);
        prop_assert_eq!(tickets.decrypt(&noise), None);
        let mut dressed = vec![VERSION];
        dressed.extend_from_slice(&epoch_at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.load(Ordering::Relaxed))).to_be_bytes());
        dressed.extend_from_slice(&noise);
        prop_assert_eq!(tickets.decrypt(&dressed), None);
    }
}
