//! Echo requests to this machine, which answers them, where the system lets a test send any.

use super::*;
use crate::control::probe::ping::ping;

/// What comes of it; `None`: this machine lets us send none.
fn pinged(address: &Address, named: &[SocketAddr]) -> Option<Result<(), CheckFailure>> {
    match run(ping(&endpoint(address.clone(), named), TIMEOUT)) {
        Ok(()) => Some(Ok(())),
        Err(ProbeError::Failed(failure)) => Some(Err(failure)),
        Err(ProbeError::NotRun(NotRun::PingForbidden(cause))) => {
            println!("not tested, for this process may not ping: {cause}");
            None
        }
        Err(ProbeError::NotRun(NotRun::NoWay(_) | NotRun::Unresolved)) => Some(Err(CheckFailure::NotRun)),
        Err(ProbeError::NotRun(other)) => panic!("{other}"),
    }
}

fn at(text: &str) -> Address {
    Address::Socket(text.parse().unwrap())
}

#[test]
fn a_machine_that_lives_answers_whatever_runs_on_it() {
    for address in ["127.0.0.1:1", "127.7.8.9:1", "[::ffff:127.0.0.1]:1"] {
        assert!(matches!(pinged(&at(address), &[]), None | Some(Ok(()))), "{address}");
    }
    // Where there is no IPv6 at all there is no way.
    let by_v6 = pinged(&at("[::1]:1"), &[]);
    assert!(matches!(by_v6, None | Some(Ok(()) | Err(CheckFailure::NotRun))), "{by_v6:?}");
    assert!(matches!(
        run(check_at(&at("127.0.0.1:1"), &[], "check \"icmp\"", TIMEOUT)),
        Ok(()) | Err(CheckFailure::NotRun)
    ));
}

#[test]
fn each_address_of_a_name_is_asked_and_one_without_any_says_nothing() {
    let name = Address::Name("a.test".to_owned(), 80);
    assert_eq!(pinged(&name, &[]), Some(Err(CheckFailure::NotRun)));
    // The system lets nobody send to all machines by mistake.
    let nobody = SocketAddr::from(([255, 255, 255, 255], 80));
    assert!(matches!(pinged(&name, &[nobody, ([127, 0, 0, 1], 80).into()]), None | Some(Ok(()))));
    assert!(matches!(pinged(&name, &[nobody]), None | Some(Err(CheckFailure::NotRun))));
}

#[test]
fn a_machine_that_forbids_it_says_how_to_allow_it_and_nothing_of_the_server() {
    let error = run(super::super::ping::ping_address(([127, 0, 0, 1], 0).into(), &[])).unwrap_err();
    assert_eq!(error.as_failure(), CheckFailure::NotRun);
    let ProbeError::NotRun(cause) = error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("net.ipv4.ping_group_range"), "{cause}");
}

#[test]
fn a_ping_that_our_own_firewall_or_routes_forbid_is_no_sign_of_a_dead_machine() {
    use nix::errno::Errno;
    for (errno, failure) in [
        (Errno::EPERM, CheckFailure::NotRun),
        (Errno::EACCES, CheckFailure::NotRun),
        (Errno::EADDRNOTAVAIL, CheckFailure::NotRun),
        (Errno::ENETUNREACH, CheckFailure::NotRun),
        (Errno::ENOBUFS, CheckFailure::NotRun),
        // Nobody answers there for the address, or the machine says so itself.
        (Errno::EHOSTUNREACH, CheckFailure::Unreachable),
        (Errno::ECONNREFUSED, CheckFailure::Unreachable),
    ] {
        let error = std::io::Error::from_raw_os_error(errno as i32);
        assert_eq!(super::super::ping::classify(error).as_failure(), failure, "{errno}");
    }
}
