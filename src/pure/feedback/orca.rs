//! ORCA (Open Request Cost Aggregation): what a server says of its load beside an answer, in the field or trailer
//! `endpoint-load-metrics`.
//!
//! The value is `JSON {..}`, `TEXT name=value,..` or `BIN` with the message `xds.data.orca.v3.OrcaLoadReport` in base64; without
//! a word before it, its first letter says which. `endpoint-load-metrics-json` and `endpoint-load-metrics-bin` carry those two
//! forms alone (gRPC: <https://github.com/grpc/proposal/blob/master/A51-custom-backend-metrics.md>). Requests and errors per
//! second, costs and metrics by other names are left out: Pointsman counts the first itself and knows no use for the others.
//!
//! What is too long, or broken, or no number from 0 on, is no report at all. It refuses to keep anything.

use serde::Deserialize;

use super::report::{Figures, Report, Use};
use crate::pure::protobuf::{Fields, Value};

/// The longest value that is read; a report with many metrics of its own has some hundred bytes.
pub const VALUE_MAX: usize = 8 * 1024;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As its first word says.
    Named,
    /// JSON.
    Json,
    /// The message in base64.
    Binary,
}

impl Form {
    /// The form of a field of that name; `None`: it says nothing of a load.
    pub const fn of(name: &[u8]) -> Option<Self> {
        // By length first: every field of an answer is looked at.
        match name.len() {
            21 if name.eq_ignore_ascii_case(b"endpoint-load-metrics") => Some(Self::Named),
            26 if name.eq_ignore_ascii_case(b"endpoint-load-metrics-json") => Some(Self::Json),
            25 if name.eq_ignore_ascii_case(b"endpoint-load-metrics-bin") => Some(Self::Binary),
            _ => None,
        }
    }
}

/// What a server says of its load: parts in use, 1 being all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Utilization {
    /// Of what the application goes by, where it says so, else of its processors. It may be more than 1.
    pub cpu: Option<f64>,
    /// Of its memory.
    pub memory: Option<f64>,
}

impl From<Utilization> for Report {
    fn from(said: Utilization) -> Self {
        let of = |amount: f64| Use { amount, capacity: 1.0 };
        let figures = Figures { cpu: said.cpu.map(of), memory: said.memory.map(of), ..Figures::default() };
        Self { figures, ..Self::default() }
    }
}

/// The metrics that count, as they come.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Metrics {
    #[serde(alias = "cpuUtilization")]
    cpu_utilization: Option<f64>,
    #[serde(alias = "memUtilization")]
    mem_utilization: Option<f64>,
    #[serde(alias = "applicationUtilization")]
    application_utilization: Option<f64>,
}

impl Metrics {
    fn utilization(self) -> Option<Utilization> {
        let Self { cpu_utilization, mem_utilization, application_utilization } = self;
        let is_sound = |value: &Option<f64>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
        let all = [cpu_utilization, mem_utilization, application_utilization];
        // To say that an application is busy by 0 is how some say that they don't know.
        let application = application_utilization.filter(|value| *value > 0.0);
        let said = Utilization { cpu: application.or(cpu_utilization), memory: mem_utilization };
        (all.iter().all(is_sound) && said != Utilization::default()).then_some(said)
    }
}

/// Reads the value of a field; `None`: it is no report, or says nothing that counts.
pub fn read(form: Form, value: &[u8]) -> Option<Utilization> {
    let value = value.trim_ascii();
    if value.len() > VALUE_MAX {
        return None;
    }
    let metrics = match form {
        Form::Json => json(value),
        Form::Binary => binary(value),
        Form::Named => {
            let (word, rest) = value.split_at_checked(5).unwrap_or((value, &[]));
            match word {
                _ if word.eq_ignore_ascii_case(b"JSON ") => json(rest.trim_ascii()),
                _ if word.eq_ignore_ascii_case(b"TEXT ") => text(rest),
                _ if word.len() > 4 && word.get(..4)?.eq_ignore_ascii_case(b"BIN ") => {
                    binary(value.get(4..)?.trim_ascii())
                }
                _ if value.first() == Some(&b'{') => json(value),
                _ => text(value),
            }
        }
    };
    metrics?.utilization()
}

/// What lines of trailers say.
pub fn read_trailers(lines: &[u8]) -> Option<Utilization> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let form = Form::of(line.get(..colon)?)?;
        read(form, line.get(colon + 1..)?)
    })
}

fn json(value: &[u8]) -> Option<Metrics> {
    serde_json::from_slice(value).ok()
}

fn text(value: &[u8]) -> Option<Metrics> {
    let mut metrics = Metrics::default();
    for pair in std::str::from_utf8(value).ok()?.split(',') {
        let (name, value) = pair.split_once(['=', ':'])?;
        let metric = match name.trim() {
            "cpu_utilization" => &mut metrics.cpu_utilization,
            "mem_utilization" => &mut metrics.mem_utilization,
            "application_utilization" => &mut metrics.application_utilization,
            _ => continue,
        };
        // One that is given twice is not to be trusted.
        if metric.replace(value.trim().parse().ok()?).is_some() {
            return None;
        }
    }
    Some(metrics)
}

/// Reads the message: three doubles of it.
fn binary(value: &[u8]) -> Option<Metrics> {
    let message = from_base64(value)?;
    let mut metrics = Metrics::default();
    for field in Fields::of(&message) {
        let (number, Value::Fixed64(bytes)) = field.ok()? else { continue };
        let metric = match number {
            1 => &mut metrics.cpu_utilization,
            2 => &mut metrics.mem_utilization,
            9 => &mut metrics.application_utilization,
            _ => continue,
        };
        // The last one counts, and 0 is what is left out.
        *metric = Some(f64::from_le_bytes(bytes)).filter(|value| *value != 0.0);
    }
    Some(metrics)
}

/// The bytes that a text in base64 stands for, with padding or without.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.trim_ascii_end();
    let padding = digits.iter().rev().take_while(|digit| **digit == b'=').count();
    let digits = digits.get(..digits.len() - padding)?;
    if padding > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend(bits.to_be_bytes().into_iter().skip(1).take(group.len() - 1));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pure::websocket::base64;

    fn said(value: &str) -> Option<(Option<f64>, Option<f64>)> {
        read(Form::Named, value.as_bytes()).map(|said| (said.cpu, said.memory))
    }

    #[test]
    fn each_form_is_read() {
        let expected = Some((Some(0.25), Some(0.5)));
        assert_eq!(
            said("TEXT cpu_utilization=0.25, mem_utilization=0.5,named_metrics.kv=0.9,rps_fractional=10"),
            expected
        );
        assert_eq!(said("cpu_utilization:0.25,mem_utilization:0.5"), expected);
        assert_eq!(
            said(r#"JSON {"cpu_utilization": 0.25, "mem_utilization": 0.5, "named_metrics": {"a": 1}}"#),
            expected
        );
        assert_eq!(said(r#"{"cpuUtilization": 0.25, "memUtilization": 0.5}"#), expected);
        // 09 00 00 00 00 00 00 D0 3F, 11 00 00 00 00 00 00 E0 3F: two doubles.
        assert_eq!(said("BIN CQAAAAAAANA/EQAAAAAAAOA/"), expected);
        assert_eq!(read(Form::Binary, b"CQAAAAAAANA/EQAAAAAAAOA/"), read(Form::Named, b"BIN CQAAAAAAANA/EQAAAAAAAOA/"));
        assert_eq!(said("TEXT cpu_utilization=0"), Some((Some(0.0), None)), "it has nothing to do");
    }

    #[test]
    fn what_the_application_goes_by_comes_before_its_processors() {
        assert_eq!(said("TEXT cpu_utilization=0.1,application_utilization=1.5"), Some((Some(1.5), None)));
        assert_eq!(said("TEXT cpu_utilization=0.1,application_utilization=0"), Some((Some(0.1), None)));
        let report = Report::from(read(Form::Named, b"TEXT application_utilization=1.5").unwrap());
        assert_eq!(report.figures.cpu.and_then(Use::part), Some(1.0), "it is full");
    }

    #[test]
    fn what_is_broken_says_nothing() {
        for value in [
            "",
            "TEXT",
            "TEXT ",
            "TEXT cpu_utilization",
            "TEXT cpu_utilization=x",
            "TEXT cpu_utilization=-0.1",
            "TEXT cpu_utilization=NaN",
            "TEXT cpu_utilization=inf",
            "TEXT cpu_utilization=0.1,cpu_utilization=0.9",
            "TEXT rps_fractional=3",
            "JSON {\"cpu_utilization\": \"high\"}",
            "JSON {\"cpu_utilization\": 0.5",
            "JSON []",
            "BIN CQAAAAAAANA",
            "BIN !!!!",
            "BIN A",
            "BIN =",
        ] {
            assert_eq!(said(value), None, "{value}");
        }
        let long = format!("TEXT cpu_utilization=0.5,{}a=1", "a=1,".repeat(VALUE_MAX / 4));
        assert_eq!(said(&long), None);
    }

    #[test]
    fn messages_with_other_fields_are_stepped_over() {
        // rps (a varint), a cost (a map's entry), a float of somebody else's, then the application's figure.
        let mut message = vec![0x18, 0xAC, 0x02, 0x22, 0x03, b'a', b'b', b'c', 0x55, 0, 0, 0, 0, 0x49];
        message.extend_from_slice(&0.75f64.to_le_bytes());
        assert_eq!(said(&format!("BIN {}", to_base64(&message))), Some((Some(0.75), None)));
    }

    #[test]
    fn trailers_are_read_line_by_line() {
        let lines = b"grpc-status: 0\r\nEndpoint-Load-Metrics-Bin: CQAAAAAAANA/\r\nX: y\r\n";
        assert_eq!(read_trailers(lines), Some(Utilization { cpu: Some(0.25), memory: None }));
        assert_eq!(read_trailers(b"grpc-status: 0\r\n"), None);
        assert_eq!(read_trailers(b""), None);
    }

    fn to_base64(bytes: &[u8]) -> String {
        base64(bytes).trim_end_matches('=').to_owned()
    }

    proptest! {
        #[test]
        fn base64_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(from_base64(base64(&bytes).as_bytes()), Some(bytes.clone()));
            prop_assert_eq!(from_base64(to_base64(&bytes).as_bytes()), Some(bytes));
        }

        /// Whatever comes, it is a report of numbers or none, and nothing breaks.
        #[test]
        fn nothing_that_a_server_says_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), word in 0..4usize) {
            let value = [["", "TEXT ", "JSON ", "BIN "][word].as_bytes(), &bytes].concat();
            for form in [Form::Named, Form::Json, Form::Binary] {
                if let Some(said) = read(form, &value) {
                    let numbers = [said.cpu, said.memory];
                    prop_assert!(numbers.into_iter().flatten().all(|number| number.is_finite() && number >= 0.0));
                }
            }
            let encoded = format!("BIN {}", to_base64(&bytes));
            let _ = read(Form::Named, encoded.as_bytes());
            let _ = read_trailers(&bytes);
        }
    }
}
