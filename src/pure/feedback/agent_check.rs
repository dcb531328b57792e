//! HAProxy's agent-check: a server is asked over TCP, and answers with a line of words. What it is asked, and what its words mean.
//!
//! The words stand between spaces, tabs and commas, in any order and any case; the first line counts, and what follows a `#` is a
//! reason for people. A reply says everything: what it does not say is as usual, so that a server that has said `drain` and
//! then `75%` is not drained any more. (HAProxy leaves unsaid things as they were; a lost reply would then be for ever.) Of words
//! that contradict each other the worst counts. Source: HAProxy Configuration Manual, `agent-check`.
//!
//! It refuses a reply with a word that it does not know, or with none: half a reply is no reply.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::report::{Figures, Report, Service};
use crate::base::letters::without_deceptive;

/// The longest reply that is read, in bytes.
pub const REPLY_MAX: usize = 1024;

/// The longest text that a server is sent, in bytes.
pub const SEND_MAX: usize = 1024;

/// The longest reason that is kept, in letters.
const REASON_MAX: usize = 120;

/// The largest share that a server may ask for, in percent: HAProxy's largest weight over its smallest.
const PERCENT_MAX: u32 = 25_600;

/// How the servers of a pool are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheck {
    /// Between the beginnings of two questions.
    pub every: Duration,
    /// How long a question may take, connect and all.
    pub timeout: Duration,
    /// What the server is sent first; empty: nothing.
    pub send: Arc<[u8]>,
    /// Where each server is asked, by its name.
    pub places: BTreeMap<Arc<str>, AskedAt>,
}

/// Where a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedAt {
    /// The address; `None`: the server's own.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// What a server has answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What it says of itself.
    pub report: Report,
    /// Why, in its words, fit for a line of a log.
    pub reason: Option<String>,
}

/// Why a reply is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// It says nothing.
    #[error("the reply is empty")]
    Empty,
    /// It has no end in the bytes that are read.
    #[error("the reply is longer than {REPLY_MAX} bytes")]
    TooLong,
    /// A word is not known.
    #[error("the reply has the word `{0}`, which is not known")]
    UnknownWord(String),
    /// A number is none, or too large.
    #[error("`{0}` is no number that can be meant")]
    Number(String),
}

/// How bad a service is; the worst word of a reply counts.
const fn rank(service: Service) -> u8 {
    match service {
        Service::Up => 0,
        Service::Leaving => 1,
        Service::Abnormal => 2,
        Service::Down => 3,
        Service::Maintenance => 4,
    }
}

/// Reads a reply: the bytes that came until the server closed, or the first [`REPLY_MAX`] of them.
///
/// # Errors
/// [`ReplyError`].
pub fn parse(bytes: &[u8]) -> Result<Reply, ReplyError> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    if end.is_none() && bytes.len() >= REPLY_MAX {
        return Err(ReplyError::TooLong);
    }
    let line = String::from_utf8_lossy(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default());
    let (words, reason) = match line.split_once('#') {
        Some((words, reason)) => (words, Some(reason)),
        None => (&*line, None),
    };
    let mut figures = Figures::default();
    let mut service = None;
    let mut count = 0;
    for word in words.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        count += 1;
        if let Some(said) = service_of(word) {
            service = service.filter(|known| rank(*known) > rank(said)).or(Some(said));
        } else if let Some(percent) = word.strip_suffix('%') {
            figures.wanted_share = Some(f64::from(number(word, percent, PERCENT_MAX)?) / 100.0);
        } else if let Some(most) = after_prefix(word, "maxconn:") {
            figures.connections_max = Some(number(word, most, u32::MAX)?);
        } else {
            return Err(ReplyError::UnknownWord(plain(word)));
        }
    }
    if count == 0 {
        return Err(ReplyError::Empty);
    }
    let reason = reason.map(plain).filter(|reason| !reason.is_empty());
    let report = Report { figures, service: service.unwrap_or_default(), ..Report::default() };
    Ok(Reply { report, reason })
}

fn service_of(word: &str) -> Option<Service> {
    const WORDS: [(&str, Service); 8] = [
        ("up", Service::Up),
        ("ready", Service::Up),
        ("drain", Service::Leaving),
        ("fail", Service::Abnormal),
        ("failed", Service::Abnormal),
        ("down", Service::Down),
        ("stopped", Service::Down),
        ("maint", Service::Maintenance),
    ];
    WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known)).map(|(_, service)| *service)
}

/// What follows a prefix in any case.
fn after_prefix<'w>(word: &'w str, prefix: &str) -> Option<&'w str> {
    let (head, rest) = word.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn number(word: &str, digits: &str, max: u32) -> Result<u32, ReplyError> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_plain && *number <= max);
    number.ok_or_else(|| ReplyError::Number(plain(word)))
}

/// A text from a server, fit for a line of a log.
fn plain(text: &str) -> String {
    without_deceptive(&text.trim().chars().take(REASON_MAX).collect::<String>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(text: &str) -> Service {
        parse(text.as_bytes()).unwrap().report.service
    }

    #[test]
    fn each_word_means_what_haproxy_means_by_it() {
        for (text, expected) in [
            ("up\n", Service::Up),
            ("ready\n", Service::Up),
            ("75%\n", Service::Up),
            ("drain\n", Service::Leaving),
            ("maint\n", Service::Maintenance),
            ("down\n", Service::Down),
            ("stopped\n", Service::Down),
            ("fail\n", Service::Abnormal),
            ("failed#the disk is full\n", Service::Abnormal),
            ("UP Ready", Service::Up),
        ] {
            assert_eq!(service(text), expected, "{text:?}");
        }
        let reply = parse(b"up,\tready 75%  maxconn:30 # all is well \r\nmore").unwrap();
        assert_eq!(reply.report.figures.wanted_share, Some(0.75));
        assert_eq!(reply.report.figures.connections_max, Some(30));
        assert_eq!(reply.reason.as_deref(), Some("all is well"));
        assert_eq!(parse(b"MAXCONN:1").unwrap().report.figures.connections_max, Some(1));
        assert_eq!(parse(b"0%").unwrap().report.figures.wanted_share, Some(0.0));
    }

    #[test]
    fn a_reply_is_the_whole_state() {
        assert_eq!(service("drain 50%"), Service::Leaving);
        let next = parse(b"75%").unwrap().report;
        assert_eq!((next.service, next.figures.connections_max), (Service::Up, None));
    }

    #[test]
    fn of_contradictions_the_worst_counts_in_any_order() {
        assert_eq!(service("up down"), Service::Down);
        assert_eq!(service("down up"), Service::Down);
        assert_eq!(service("maint ready drain"), Service::Maintenance);
        assert_eq!(service("fail drain up"), Service::Abnormal);
    }

    #[test]
    fn a_reason_that_turns_its_line_is_read_without_that() {
        let reply = parse("up # well \u{202e}nwod si 1a\u{2069}".as_bytes()).unwrap();
        assert_eq!(reply.reason.as_deref(), Some("well ?nwod si 1a?"));
    }

    #[test]
    fn half_a_reply_is_no_reply() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(error(""), ReplyError::Empty);
        assert_eq!(error("\nup"), ReplyError::Empty);
        assert_eq!(error("# a reason alone"), ReplyError::Empty);
        assert_eq!(error("up sideways"), ReplyError::UnknownWord("sideways".to_owned()));
        assert_eq!(error("\u{1b}[2J"), ReplyError::UnknownWord("?[2J".to_owned()));
        assert_eq!(error("a\u{202e}b"), ReplyError::UnknownWord("a?b".to_owned()));
        for wrong in ["%", "-1%", "+5%", "25601%", "99999999999%", "maxconn:", "maxconn:-1", "maxconn:4294967296"] {
            assert_eq!(error(wrong), ReplyError::Number(wrong.to_owned()), "{wrong}");
        }
        assert_eq!(error(&"u".repeat(REPLY_MAX)), ReplyError::TooLong);
        let padded = format!("{}up", " ".repeat(REPLY_MAX - 3));
        assert!(parse(padded.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_upset_it_and_no_share_is_wild(bytes in prop::collection::vec(any::<u8>(), 0..1_200)) {
            if let Ok(reply) = parse(&bytes) {
                let share = reply.report.figures.wanted_share.unwrap_or(1.0);
                prop_assert!((0.0..=256.0).contains(&share));
                prop_assert!(reply.reason.is_none_or(|reason| !reason.contains(char::is_control)));
            }
        }

        #[test]
        fn the_order_of_words_does_not_matter(
            (words, shuffled) in Just(vec!["up", "drain", "60%", "maxconn:9", "fail"])
                .prop_flat_map(|words| (Just(words.clone()), Just(words).prop_shuffle()))
        ) {
            prop_assert_eq!(parse(words.join(" ").as_bytes()), parse(shuffled.join(",").as_bytes()));
        }
    }
}
