//! Servers that stand by and servers that come back: backups are used only where nobody else is, and the share of a server
//! that was away rises slowly.

use crate::h2;
use crate::queue::proxy;
use crate::support::{Origin, Proxy};

/// How many of so many requests each origin answers.
fn answers(proxy: &Proxy, count: usize, names: &[&str]) -> Vec<usize> {
    let mut client = proxy.client();
    let answers: Vec<String> = (0..count).map(|_| client.get("/").text()).collect();
    names.iter().map(|name| answers.iter().filter(|answer| answer == name).count()).collect()
}

#[test]
fn a_backup_is_used_while_the_others_are_down_and_only_then() {
    let (one, other, spare) = (Origin::new("one"), Origin::new("other"), Origin::new("spare"));
    let servers = [(&spare, "backup=#true"), (&one, ""), (&other, "")];
    let proxy = proxy(1, "{ protocols \"http/1.1\" \"h2c\" }", &servers, "retry count=3; slow-start \"0s\"");
    let names = ["one", "other", "spare"];
    assert_eq!(answers(&proxy, 20, &names), [10, 10, 0]);
    one.stop();
    proxy.ask_until_it_says("/", "p/s1 was suspect and is down");
    assert_eq!(answers(&proxy, 20, &names), [0, 20, 0]);
    other.stop();
    // From the first request on: what fails is repeated at the backup.
    assert_eq!(answers(&proxy, 20, &names), [0, 0, 20]);
    proxy.ask_until_it_says("/", "p/s2 was suspect and is down");
    h2::run(async {
        let mut client = h2::connect(proxy.address()).await;
        assert_eq!(h2::get(&mut client, "/").await.unwrap().1, b"spare");
    });
    one.start();
    proxy.wait_for_error("p/s1 was down and is up");
    assert_eq!(answers(&proxy, 20, &names), [20, 0, 0]);
}

#[test]
fn a_server_that_comes_back_begins_with_a_tenth_of_its_share() {
    let (one, other) = (Origin::new("one"), Origin::new("other"));
    let proxy = proxy(1, "{ protocols \"http/1.1\" \"h2c\" }", &[(&one, ""), (&other, "")], "slow-start \"1h\"");
    let names = ["one", "other"];
    assert_eq!(answers(&proxy, 20, &names), [10, 10], "not at a start");
    other.stop();
    proxy.ask_until_it_says("/", "p/s1 was suspect and is down");
    other.start();
    proxy.wait_for_error("p/s1 was down and is recovering");
    let shares = answers(&proxy, 110, &names);
    assert!((99..=101).contains(&shares[0]) && shares[0] + shares[1] == 110, "{shares:?}");
    let mut of_other = 0;
    h2::run(async {
        let mut client = h2::connect(proxy.address()).await;
        for _ in 0..110 {
            of_other += usize::from(h2::get(&mut client, "/").await.unwrap().1 == b"other");
        }
    });
    assert!((9..=11).contains(&of_other), "{of_other}");
    // One failure, and it is what it was.
    other.stop();
    proxy.wait_for_error("p/s1 was recovering and is suspect");
    proxy.ask_until_it_says("/", "p/s1 was suspect and is down");
}

#[test]
fn the_share_of_a_server_that_is_well_rises_to_the_whole() {
    let (one, other) = (Origin::new("one"), Origin::new("other"));
    let proxy = proxy(1, "", &[(&one, ""), (&other, "")], "slow-start \"300ms\"; scheduler \"wrr\"");
    other.stop();
    proxy.ask_until_it_says("/", "p/s1 was suspect and is");
    other.start();
    proxy.wait_for_error("p/s1 was recovering and is up: its slow start is over");
    assert_eq!(answers(&proxy, 20, &["one", "other"]), [10, 10]);
}
