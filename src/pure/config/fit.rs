//! Whether a value is of the kind that its place wants, and what to say where it is not.

use kdl::KdlValue;

use super::form::Kind;
use super::node::Value;
use super::problem::{Problem, Problems};
use super::suggest::did_you_mean;
use crate::base::units::{self, Bytes, UnitError, duration_text};

/// Checks `value`, which belongs to `name`, against `kind`.
pub(super) fn check(value: Value<'_>, name: &str, kind: &Kind, problems: &mut Problems) {
    let found = match kind {
        Kind::Text { .. } => check_text(value, name, kind),
        Kind::Word { now, later } => check_word(value, name, kind, now, later),
        Kind::Whole { min, max } => check_whole(value, name, kind, *min, *max),
        Kind::WholeOrOff { .. } if value.text() == Some("off") => None,
        Kind::WholeOrOff { min, max } => check_whole(value, name, kind, *min, *max),
        Kind::Switch => check_switch(value, name, kind),
        Kind::Duration { min, max } => check_unit(value, name, kind, |text| {
            let found = units::parse_duration(text)?;
            let (min, max) = (*min, *max);
            Ok((found < min || found > max).then(|| (duration_text(min), duration_text(max))))
        }),
        Kind::Size { min, max } => check_unit(value, name, kind, |text| {
            let found = units::parse_size(text)?;
            Ok((found < *min || found > *max).then(|| (min.to_string(), max.to_string())))
        }),
    };
    if let Some(problem) = found {
        problems.add(problem);
    }
}

/// What a value of that kind is, in words.
pub(super) fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Text { what } => (*what).to_owned(),
        Kind::Word { now, .. } => match now {
            [one] => format!("\"{one}\""),
            several => {
                format!("one of {}", several.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", "))
            }
        },
        Kind::Whole { min, max } => format!("a whole number from {min} to {max}"),
        Kind::WholeOrOff { min, .. } => format!("a whole number from {min}, or \"off\""),
        Kind::Switch => "#true or #false".to_owned(),
        Kind::Duration { .. } => "a duration such as \"10s\"".to_owned(),
        Kind::Size { .. } => "a size such as \"64KiB\"".to_owned(),
    }
}

fn wrong_kind(value: Value<'_>, name: &str, kind: &Kind) -> Problem {
    let what = match value.kdl.value() {
        KdlValue::String(_) => "a text",
        KdlValue::Integer(_) => "a number",
        KdlValue::Float(_) => "a number with a fraction",
        KdlValue::Bool(_) => "a switch",
        KdlValue::Null => "nothing",
    };
    Problem::at(&value.place(), format!("`{name}` wants {}, and this is {what}", wanted(kind)))
}

fn check_text(value: Value<'_>, name: &str, kind: &Kind) -> Option<Problem> {
    let Some(text) = value.kdl.value().as_string() else {
        let problem = wrong_kind(value, name, kind);
        return Some(match value.kdl.value() {
            // A port alone.
            KdlValue::Integer(port @ 1..=65_535) if name == "listen" => problem.label(format!("write \"*:{port}\"")),
            KdlValue::Integer(port @ 1..=65_535) if name == "server" => {
                problem.label(format!("such as \"10.0.0.1:{port}\""))
            }
            KdlValue::Integer(_) | KdlValue::Float(_) => problem.label(format!("write \"{}\"", value.written())),
            KdlValue::Bool(_) | KdlValue::Null | KdlValue::String(_) => problem.label("a text in quotes goes here"),
        });
    };
    if value.place().text().starts_with('\'') {
        let problem = Problem::at(&value.place(), "single quotes are letters like any other here");
        return Some(problem.label(format!("write \"{}\"", text.trim_matches('\''))));
    }
    None
}

fn check_word(value: Value<'_>, name: &str, kind: &Kind, now: &[&str], later: &[&str]) -> Option<Problem> {
    let Some(word) = value.text() else { return Some(wrong_kind(value, name, kind).label("not this")) };
    if now.contains(&word) {
        return None;
    }
    match (name, known_elsewhere(word)) {
        ("scheduler", Some(ours)) => {
            let problem = Problem::at(&value.place(), format!("`{name}` does not know \"{word}\""));
            return Some(problem.label(format!("write \"{ours}\"")).help(format!("it takes {}", wanted(kind))));
        }
        ("check", _) if word.starts_with('/') => {
            let problem = Problem::at(&value.place(), "`check` says first what is asked, by which protocol");
            return Some(
                problem.label(format!("write \"http\" path=\"{word}\"")).help(format!("it takes {}", wanted(kind))),
            );
        }
        ("upstream", _) => {
            if let Some((label, help)) = upstream_meant(word) {
                let problem = Problem::at(&value.place(), format!("`{name}` does not know \"{word}\""));
                return Some(problem.label(label).help(help));
            }
        }
        _ => {}
    }
    if later.contains(&word) {
        return Some(word_later(value, name, word, kind));
    }
    let problem = Problem::at(&value.place(), format!("`{name}` does not know \"{word}\""));
    let known = now.iter().chain(later).copied();
    let problem = match did_you_mean(word, known) {
        Some(guess) => problem.label(guess),
        None => problem.label("unknown"),
    };
    Some(problem.help(format!("it takes {}", wanted(kind))))
}

fn word_later(value: Value<'_>, name: &str, word: &str, kind: &Kind) -> Problem {
    let problem = Problem::at(&value.place(), format!("`{name} \"{word}\"` is not supported yet"));
    problem.label("not in this version").help(format!("for now, `{name}` takes {}", wanted(kind)))
}

/// What the language has for other names of what servers speak: what to write, and where TLS is said.
fn upstream_meant(word: &str) -> Option<(&'static str, &'static str)> {
    match word.to_ascii_lowercase().as_str() {
        "https" | "tls" | "ssl" => {
            Some((r#"write "http/1.1" { tls }"#, r#"TLS to servers is said in the block: upstream "http/1.1" { tls }"#))
        }
        "http" | "http1" | "h1" | "http/1" => Some((r#"write "http/1.1""#, "it is the default")),
        "http2" | "http/2" | "http/2.0" | "grpc" | "grpcs" => {
            Some((r#"write "h2" or "h2c""#, r#""h2" is HTTP/2 over TLS, "h2c" is HTTP/2 without it"#))
        }
        _ => None,
    }
}

/// What the language has for a scheduler of another proxy.
fn known_elsewhere(word: &str) -> Option<&'static str> {
    match word {
        "least_conn" | "leastconn" | "least-conn" | "least_request" => Some("wlc"),
        "round_robin" | "roundrobin" | "round-robin" => Some("wrr"),
        "ip_hash" | "ip-hash" | "source" => Some("sh"),
        "hash" | "maglev" | "uri" => Some("mh"),
        "ring_hash" | "consistent" => Some("ch-bl"),
        "random" => Some("p2c"),
        "least_time" | "first-byte" => Some("peak-ewma"),
        "first" | "priority" => Some("fo"),
        _ => None,
    }
}

fn check_whole(value: Value<'_>, name: &str, kind: &Kind, min: u64, max: u64) -> Option<Problem> {
    match value.kdl.value() {
        KdlValue::Integer(number) if (i128::from(min)..=i128::from(max)).contains(number) => None,
        KdlValue::Integer(_) => {
            let problem = Problem::at(&value.place(), format!("`{name}` must be from {min} to {max}"));
            Some(problem.label("out of range"))
        }
        KdlValue::String(text) if text.parse::<u64>().is_ok() => {
            let problem = wrong_kind(value, name, kind);
            Some(problem.label(format!("write {text} without quotes")))
        }
        _ => Some(wrong_kind(value, name, kind).label("not a whole number")),
    }
}

fn check_switch(value: Value<'_>, name: &str, kind: &Kind) -> Option<Problem> {
    if value.switch().is_some() {
        return None;
    }
    let problem = wrong_kind(value, name, kind);
    Some(match value.text() {
        Some("true" | "on" | "yes") => problem.label("write #true"),
        Some("false" | "off" | "no") => problem.label("write #false"),
        Some(_) | None => problem.label("not a switch"),
    })
}

/// Checks a number with a unit; `read` answers the range where the number lies outside it.
fn check_unit(
    value: Value<'_>,
    name: &str,
    kind: &Kind,
    read: impl Fn(&str) -> Result<Option<(String, String)>, UnitError>,
) -> Option<Problem> {
    if let KdlValue::Integer(number) = value.kdl.value() {
        let problem = Problem::at(&value.place(), format!("`{name}` needs a unit: {number} of what?"));
        let meant = with_unit(kind, &number.to_string());
        return Some(problem.label(format!("write \"{meant}\", if that is meant")).help(units_of(kind)));
    }
    let Some(text) = value.text() else { return Some(wrong_kind(value, name, kind).label("not this")) };
    let at = |message: String| Problem::at(&value.place(), message);
    match read(text) {
        Ok(None) => None,
        Ok(Some((min, max))) => Some(at(format!("`{name}` must be from {min} to {max}")).label("out of range")),
        Err(UnitError::NoUnit { .. }) => {
            let problem = at(format!("`{name}` needs a unit: {text} of what?"));
            let meant = with_unit(kind, text);
            Some(problem.label(format!("write \"{meant}\", if that is meant")).help(units_of(kind)))
        }
        Err(UnitError::UnknownUnit { unit, .. }) => {
            let number = text.strip_suffix(unit.as_str()).unwrap_or_default();
            let problem = at(format!("`{}` is no unit of `{name}`", unit.trim()));
            let problem = match near_unit(kind, &unit) {
                Some(meant) => problem.label(format!("write \"{number}{meant}\", if that is meant")),
                None => problem.label("unknown unit"),
            };
            Some(problem.help(units_of(kind)))
        }
        Err(UnitError::NoNumber { .. }) => {
            Some(at(format!("`{name}` wants {}", wanted(kind))).label("a whole number and a unit").help(units_of(kind)))
        }
        Err(UnitError::TooLarge) => Some(at(format!("`{name}`: the number is too large")).label("too large")),
    }
}

/// A number with the unit that is probably meant: a size of thousands is one in bytes.
fn with_unit(kind: &Kind, number: &str) -> String {
    match kind {
        Kind::Size { .. } => match number.parse() {
            Ok(count) if count >= 1024 => Bytes(count).to_string(),
            Ok(_) | Err(_) => format!("{number}MiB"),
        },
        _ => format!("{number}s"),
    }
}

fn units_of(kind: &Kind) -> String {
    match kind {
        Kind::Size { .. } => "the units are B, KiB, MiB and GiB".to_owned(),
        _ => "the units are ms, s, m, h and d".to_owned(),
    }
}

/// The unit that another spelling stands for.
fn near_unit(kind: &Kind, written: &str) -> Option<&'static str> {
    let lower = written.trim().to_lowercase();
    if matches!(kind, Kind::Size { .. }) {
        return match lower.as_str() {
            "b" | "byte" | "bytes" => Some("B"),
            "k" | "kb" | "kib" => Some("KiB"),
            "m" | "mb" | "mib" => Some("MiB"),
            "g" | "gb" | "gib" => Some("GiB"),
            _ => None,
        };
    }
    match lower.as_str() {
        "ms" | "msec" | "millis" | "milliseconds" => Some("ms"),
        "s" | "sec" | "secs" | "second" | "seconds" => Some("s"),
        "m" | "min" | "mins" | "minute" | "minutes" => Some("m"),
        "h" | "hr" | "hour" | "hours" => Some("h"),
        "d" | "day" | "days" => Some("d"),
        _ => None,
    }
}
