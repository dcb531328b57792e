//! What a request shows of whom its client belongs to, and when a choice is made anew.

use std::sync::Arc;

use super::*;
use crate::base::id::ServerId;
use crate::pure::pool::{Address, Load, Share};
use crate::pure::rule::find::tests::Head;

const NOW: UnixTime = UnixTime(1_800_000_000);
const HOUR: u64 = 3600;

fn servers(weights: &[(&str, u16)]) -> Vec<Arc<Server>> {
    let server = |(name, weight): &(&str, u16)| {
        Arc::new(Server {
            id: ServerId { pool: "p".into(), server: (*name).into() },
            address: Address::Name((*name).to_owned(), 1),
            weight: *weight,
            max: None,
            is_backup: false,
        })
    };
    weights.iter().map(server).collect()
}

/// The candidates of these servers; their slots count from 10.
fn candidates(servers: &[Arc<Server>]) -> Vec<Candidate> {
    let candidate = |(slot, server): (u32, &Arc<Server>)| Candidate {
        server: Arc::clone(server),
        slot: ServerSlot(slot),
        incarnation: 0,
        state: State::Up,
        share: Share::of(server.weight),
        max: None,
        load: Arc::new(Load::default()),
    };
    (10..).zip(servers).map(candidate).collect()
}

fn shown<'a>(head: &'a Head, path: &'a str, client: &str) -> Shown<'a> {
    Shown { fields: head.fields(), raw_path: path.as_bytes(), client: client.parse().unwrap(), session: None }
}

/// Tokens of tests are a server's name and its age in hours.
fn open(token: &[u8]) -> Option<Content> {
    let text = std::str::from_utf8(token).ok()?;
    let (name, hours) = text.split_once('~')?;
    let issued = UnixTime(NOW.0 - hours.parse::<u64>().ok()? * HOUR);
    Some(Content { server: ServerTag::of(name), issued })
}

#[test]
fn a_cookie_names_a_server_of_the_pool_and_is_due_at_half_its_life() {
    let servers = servers(&[("a", 1), ("b", 1)]);
    let mut pool = Persistence::new("p", &servers);
    pool.cookie = Some(CookieForm::named("N"));
    let read = |cookie: &str| {
        let head = Head::new(&[("Cookie", cookie)]);
        read_claim(&pool, &shown(&head, "/", "192.0.2.1"), &candidates(&servers), NOW, 1, open).cookie
    };
    assert_eq!(read("N=b~1"), Some((ServerSlot(11), false)));
    assert_eq!(read("N=a~5"), Some((ServerSlot(10), true)));
    assert_eq!((read("N=a~8"), read("N=gone~1"), read("N=junk"), read("M=a~1")), (None, None, None, None));
    assert_eq!(read("N=junk; N=a~9; N=b~1"), Some((ServerSlot(11), false)), "the first that is one");
    assert_eq!(read("N=x; N=x; N=x; N=x; N=b~1"), None, "so many are looked at");
}

#[test]
fn each_form_knows_its_client_and_no_other() {
    let servers = servers(&[("a", 1)]);
    let mut pool = Persistence::new("p", &servers);
    let named = |name: &str| Some(NamedForm { name: name.to_owned(), ttl: Duration::from_secs(60) });
    (pool.learn, pool.header) = (named("S"), named("X-User"));
    let read = |cookie: &str, user: &str, path: &str, seed: u64| {
        let head = Head::new(&[("Cookie", cookie), ("X-User", user)]);
        read_claim(&pool, &shown(&head, path, "192.0.2.1"), &candidates(&servers), NOW, seed, open)
    };
    let claim = read("S=1", "1", "/", 5);
    let (learned, header) = (claim.key(Form::Learn).unwrap(), claim.key(Form::Header).unwrap());
    assert_ne!(learned.hash, header.hash, "the same value in two forms");
    assert_eq!((claim.key(Form::Source), claim.key(Form::Cookie)), (None, None));
    assert_eq!(learned, learned_key(pool.learn.as_ref().unwrap(), b"1", 5), "as its answer taught it");
    assert_eq!(read("", "2", "/a;s=1", 5).key(Form::Learn), Some(learned), "the path names it too");
    assert!(read("S=2", "2", "/a;s=1", 5).key(Form::Learn).is_some_and(|key| key != learned));
    assert_ne!(read("S=1", "1", "/", 6).key(Form::Learn), Some(learned), "another seed");
    assert_eq!(read("S=", "", "/", 5).keys, [None; 4], "what is empty is nobody");
}

#[test]
fn clients_of_one_network_are_one_client() {
    let servers = servers(&[("a", 1)]);
    let mut pool = Persistence::new("p", &servers);
    pool.source = Some(SourceForm { mask: 24, mask6: 56, ttl: Duration::from_secs(60) });
    let head = Head::new::<&str, &str>(&[]);
    let key = |client: &str| {
        let claim = read_claim(&pool, &shown(&head, "/", client), &candidates(&servers), NOW, 1, open);
        claim.key(Form::Source).unwrap().hash
    };
    assert_eq!(key("192.0.2.1"), key("192.0.2.254"));
    assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.9"));
    assert_ne!(key("192.0.2.1"), key("192.0.3.1"));
    assert_eq!(key("2001:db8:0:1::1"), key("2001:db8:0:ff::2"));
    assert_ne!(key("2001:db8:0:1::1"), key("2001:db8:0:100::1"));
    for (mask, mask6, is_same) in [(0, 0, true), (32, 128, false)] {
        let form = SourceForm { mask, mask6, ttl: Duration::ZERO };
        let same = |one: &str, other: &str| {
            network_of(one.parse().unwrap(), form).as_slice() == network_of(other.parse().unwrap(), form).as_slice()
        };
        assert_eq!((same("192.0.2.1", "10.0.0.2"), same("::1", "2001:db8::1")), (is_same, is_same));
        assert!(!same("::", "0.0.0.0"), "no address of one kind is one of the other");
    }
}

/// The name of the server that a session with this number belongs to.
fn home(servers: &[Arc<Server>], number: u64) -> Option<String> {
    let mut identity = SessionIdentity::default();
    identity[..8].copy_from_slice(&number.to_le_bytes());
    let candidates = candidates(servers);
    let slot = home_of(&Persistence::new("p", servers), &identity, &candidates)?;
    let candidate = candidates.iter().find(|candidate| candidate.slot == slot)?;
    Some(candidate.server.id.server.to_string())
}

#[test]
fn sessions_have_homes_by_weight_and_name_alone() {
    let one = servers(&[("a", 3), ("b", 1), ("c", 0)]);
    let other = servers(&[("c", 0), ("b", 1), ("a", 3)]);
    let mut of_a = 0;
    for number in 0..10_000 {
        let here = home(&one, number);
        assert_eq!(here, home(&other, number), "the order in the file means nothing");
        of_a += usize::from(here.as_deref() == Some("a"));
    }
    assert!((7_300..7_700).contains(&of_a), "{of_a} of 10000 where three quarters are due");
    assert_eq!(home(&servers(&[("a", 0)]), 0), None);
    // A backup is home where there is nobody else.
    let mut one = servers(&[("b", 1), ("c", 0), ("a", 3)]);
    let spare = |server: &mut Arc<Server>| Arc::make_mut(server).is_backup = true;
    one.iter_mut().skip(2).for_each(spare);
    assert!((0..100).all(|number| home(&one, number).as_deref() == Some("b")));
    one.iter_mut().for_each(spare);
    assert!((0..100).any(|number| home(&one, number).as_deref() == Some("a")));
}

#[test]
fn a_restart_with_weight_0_moves_the_sessions_of_that_server_and_no_others() {
    let (before, after) = (servers(&[("a", 2), ("b", 1), ("c", 1)]), servers(&[("a", 2), ("b", 0), ("c", 1)]));
    for number in 0..1_000 {
        let (old, new) = (home(&before, number), home(&after, number));
        assert_eq!(old != new, old.as_deref() == Some("b"), "session {number} from {old:?} to {new:?}");
    }
}

#[test]
fn a_choice_moves_from_a_server_that_is_gone_down_or_in_maintenance() {
    let states = [
        (State::Up, false),
        (State::Recovering, false),
        (State::Suspect { by_overload: true }, false),
        (State::Suspect { by_overload: false }, false),
        (State::Drained, false),
        (State::Down, true),
        (State::Maintenance, true),
    ];
    for (state, moves) in states {
        assert_eq!(is_moved(Some(state)), moves, "{state}");
    }
    assert!(is_moved(None));
}
