//! What follows from what a resolver says of a name: which addresses it has, and when to ask again.
//!
//! What was good once stays until something better is known: a resolver that fails, or says that there is no such name,
//! takes no address away. A family (IPv4, IPv6) that could not be asked keeps its own. It refuses to ask.

use std::net::IpAddr;
use std::time::Duration;

/// The most addresses that are kept of one name; those beyond are passed over.
pub const ADDRESSES_MAX: usize = 32;

/// No name is asked for more often.
pub const TTL_MIN: Duration = Duration::from_secs(1);

/// No answer is believed for longer.
pub const TTL_MAX: Duration = Duration::from_secs(300);

/// The longest wait after a failure; the first is [`TTL_MIN`], and each is twice the one before.
pub const RETRY_MAX: Duration = Duration::from_secs(30);

/// What a resolver says of one family of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// These, for so long.
    Found(Vec<IpAddr>, Duration),
    /// The name does not exist, or has no address of this family.
    Nothing,
    /// It can't be said, for this cause.
    Unknown(String),
}

/// What a resolver says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its IPv4 addresses.
    pub v4: Said,
    /// Its IPv6 addresses.
    pub v6: Said,
}

impl Answer {
    /// The answer of a hosts file: these addresses, of whichever family, until it is looked at again.
    pub fn of_hosts(addresses: &[IpAddr], ttl: Duration) -> Self {
        let said = |is_v4: bool| {
            let of_family: Vec<_> = addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4).collect();
            if of_family.is_empty() { Said::Nothing } else { Said::Found(of_family, ttl) }
        };
        Self { v4: said(true), v6: said(false) }
    }
}

/// A name, as it is known.
#[derive(Clone, Debug, Default)]
pub struct Name {
    addresses: Vec<IpAddr>,
    failures: u32,
}

/// What an answer brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether the addresses are others than before.
    pub has_changed: bool,
    /// When to ask again.
    pub wait: Duration,
    /// Why there was no good answer, where that is new.
    pub trouble: Option<String>,
    /// Whether there is a good answer again after one that was not.
    pub is_over_trouble: bool,
    /// Whether the resolver says that the name does not exist, or has no address.
    pub is_denied: bool,
}

impl Name {
    /// Its addresses, IPv4 first, each family in the resolver's order; the last good ones.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Takes an answer in.
    pub fn take(&mut self, answer: Answer) -> Step {
        let (v4, v6) = match (answer.v4, answer.v6) {
            (Said::Found(v4, ttl), Said::Found(v6, other)) => (Some((v4, ttl)), Some((v6, other))),
            (Said::Found(v4, ttl), Said::Nothing) => (Some((v4, ttl)), Some((Vec::new(), ttl))),
            (Said::Nothing, Said::Found(v6, ttl)) => (Some((Vec::new(), ttl)), Some((v6, ttl))),
            (Said::Found(v4, ttl), Said::Unknown(_)) => (Some((v4, ttl.min(RETRY_MAX))), None),
            (Said::Unknown(_), Said::Found(v6, ttl)) => (None, Some((v6, ttl.min(RETRY_MAX)))),
            (Said::Nothing, Said::Nothing) => {
                let step = self.fail("it does not exist, or has no address".to_owned());
                return Step { is_denied: true, ..step };
            }
            (Said::Unknown(cause), _) | (_, Said::Unknown(cause)) => return self.fail(cause),
        };
        let ttl = v4.iter().chain(&v6).map(|(_, ttl)| *ttl).min().unwrap_or(TTL_MIN);
        let mut addresses = Vec::new();
        for (found, is_v4) in [(v4, true), (v6, false)] {
            let kept = self.addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4);
            for address in found.map_or_else(|| kept.collect(), |(found, _)| found) {
                if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        let is_same =
            addresses.len() == self.addresses.len() && addresses.iter().all(|one| self.addresses.contains(one));
        if !is_same {
            self.addresses = addresses;
        }
        let is_over_trouble = std::mem::take(&mut self.failures) > 0;
        Step {
            has_changed: !is_same,
            wait: ttl.clamp(TTL_MIN, TTL_MAX),
            trouble: None,
            is_over_trouble,
            is_denied: false,
        }
    }

    fn fail(&mut self, cause: String) -> Step {
        let wait = TTL_MIN.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
        let is_new = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        Step { has_changed: false, wait, trouble: is_new.then_some(cause), is_over_trouble: false, is_denied: false }
    }
}

/// The addresses of `host` in the text of a hosts file (hosts(5)), in its order.
pub fn addresses_in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let of_line = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|name| name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(host)).then_some(address)
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn v4(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    fn found(lasts: &[u8], seconds: u64) -> Said {
        Said::Found(lasts.iter().map(|last| v4(*last)).collect(), Duration::from_secs(seconds))
    }

    fn only_v4(said: Said) -> Answer {
        Answer { v4: said, v6: Said::Nothing }
    }

    #[test]
    fn the_last_good_addresses_outlive_failure_and_nxdomain() {
        let mut name = Name::default();
        let first = name.take(only_v4(found(&[2], 0)));
        assert_eq!((first.has_changed, first.wait), (true, TTL_MIN));
        let nothing = name.take(only_v4(Said::Nothing));
        assert!(!nothing.has_changed && nothing.trouble.is_some() && nothing.is_denied);
        let unknown = || Said::Unknown("no answer".to_owned());
        let again = name.take(Answer { v4: unknown(), v6: unknown() });
        assert_eq!((again.has_changed, again.trouble, again.wait), (false, None, Duration::from_secs(2)));
        assert_eq!(name.addresses(), [v4(2)]);
        let good = name.take(only_v4(found(&[2], 3600)));
        assert_eq!((good.has_changed, good.is_over_trouble, good.wait), (false, true, TTL_MAX));
        assert_eq!(name.take(only_v4(unknown())).wait, TTL_MIN, "failures are counted anew");
        assert!((0..100).map(|_| name.take(only_v4(unknown())).wait).all(|wait| wait <= RETRY_MAX));
    }

    #[test]
    fn a_family_that_can_not_be_asked_keeps_its_addresses() {
        let mut name = Name::default();
        let v6 = Said::Found(vec!["::1".parse().unwrap()], TTL_MAX);
        name.take(Answer { v4: found(&[2], 9), v6 });
        name.take(Answer { v4: found(&[3], 9), v6: Said::Unknown(String::new()) });
        assert_eq!(name.addresses(), [v4(3), "::1".parse().unwrap()]);
        name.take(only_v4(found(&[3], 9)));
        assert_eq!(name.addresses(), [v4(3)]);
    }

    #[test]
    fn another_order_is_no_change() {
        let mut name = Name::default();
        name.take(only_v4(found(&[2, 3], 9)));
        assert!(!name.take(only_v4(found(&[3, 2], 9))).has_changed);
        assert_eq!(name.addresses(), [v4(2), v4(3)]);
    }

    #[test]
    fn a_hosts_file_is_read_by_name_and_alias_without_comments() {
        let text = "# 127.0.0.9 a.test\n127.0.0.1\tlocalhost loop # a.test\n::1 localhost\n\nnonsense a.test\n127.0.0.2 A.test";
        assert_eq!(addresses_in_hosts(text, "localhost"), [v4(1), "::1".parse().unwrap()]);
        assert_eq!(addresses_in_hosts(text, "a.test."), [v4(2)]);
        assert_eq!(addresses_in_hosts(text, "b.test"), [] as [IpAddr; 0]);
        let answer = Answer::of_hosts(&[v4(1)], TTL_MAX);
        assert_eq!(answer, only_v4(found(&[1], 300)));
    }

    fn said(is_v4: bool) -> impl Strategy<Value = Said> {
        let address =
            move |last: u8| if is_v4 { v4(last) } else { IpAddr::from([0, 0, 0, 0, 0, 0, 0, u16::from(last)]) };
        prop_oneof![
            Just(Said::Nothing),
            Just(Said::Unknown("lost".to_owned())),
            (prop::collection::vec(1u8..60, 1..50), 0u64..1000).prop_map(move |(lasts, seconds)| {
                Said::Found(lasts.into_iter().map(address).collect(), Duration::from_secs(seconds))
            }),
        ]
    }

    proptest! {
        /// Addresses never become none, are never too many or twice there, and come from the last answers of their family.
        #[test]
        fn what_is_known_comes_from_the_last_good_answers(
            answers in prop::collection::vec((said(true), said(false)), 1..20),
        ) {
            let mut name = Name::default();
            for (v4, v6) in answers {
                let before: BTreeSet<IpAddr> = name.addresses().iter().copied().collect();
                let step = name.take(Answer { v4: v4.clone(), v6: v6.clone() });
                let after: BTreeSet<IpAddr> = name.addresses().iter().copied().collect();
                prop_assert_eq!(after.len(), name.addresses().len());
                prop_assert!(after.len() <= ADDRESSES_MAX);
                prop_assert!(before.is_empty() || !after.is_empty());
                prop_assert_eq!(step.has_changed, before != after);
                prop_assert!(step.wait >= TTL_MIN && step.wait <= TTL_MAX);
                let is_good = matches!(v4, Said::Found(..)) || matches!(v6, Said::Found(..));
                prop_assert!(is_good || before == after);
                for address in &after {
                    let said = if address.is_ipv4() { &v4 } else { &v6 };
                    let is_said = match said {
                        Said::Found(found, _) => found.contains(address),
                        Said::Unknown(_) => before.contains(address),
                        Said::Nothing => !is_good && before.contains(address),
                    };
                    prop_assert!(is_said);
                }
            }
        }
    }
}
