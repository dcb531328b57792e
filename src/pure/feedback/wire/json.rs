//! The JSON inside of a datagram, member by member, and its bounds. It refuses to read what was not signed.
//!
//! Members that are not known are passed over, so that a newer agent can speak to an older balancer; a change of what is
//! there takes another version of the whole form.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Challenge, Nonce, OrderKind, PROMISE_MAX, RestartNews, RestartProgress, SignedOrder, SignedReport, WireError, token,
};
use crate::base::hex::hex;
use crate::base::time::UnixNanos;
use crate::pure::feedback::report::{Figures, Report, Service, Use};

/// A report. Times are in nanoseconds since 1970, `promised-next` is in milliseconds.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ReportJson {
    boot: u64,
    sequence: u64,
    sent: u64,
    nonce: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heard: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promised_next: Option<u64>,
    #[serde(with = "ServiceJson")]
    service: Service,
    #[serde(default)]
    overloaded: bool,
    #[serde(default, with = "FiguresJson")]
    figures: Figures,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart: Option<RestartJson>,
}

/// How a service is.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Service", rename_all = "kebab-case")]
enum ServiceJson {
    Up,
    Abnormal,
    Down,
    Leaving,
    Maintenance,
}

/// Load figures.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Figures", rename_all = "kebab-case")]
struct FiguresJson {
    #[serde(default, with = "pair", skip_serializing_if = "Option::is_none")]
    cpu: Option<Use>,
    #[serde(default, with = "pair", skip_serializing_if = "Option::is_none")]
    memory: Option<Use>,
    #[serde(default, with = "pair", skip_serializing_if = "Option::is_none")]
    disk: Option<Use>,
    #[serde(default, with = "pair", skip_serializing_if = "Option::is_none")]
    network: Option<Use>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_queue: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted_share: Option<f64>,
}

/// A use as a pair: the amount in use and the capacity.
mod pair {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Use;

    pub(super) fn serialize<S: Serializer>(value: &Option<Use>, to: S) -> Result<S::Ok, S::Error> {
        value.map(|value| (value.amount, value.capacity)).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Use>, D::Error> {
        let pair = Option::<(f64, f64)>::deserialize(from)?;
        Ok(pair.map(|(amount, capacity)| Use { amount, capacity }))
    }
}

/// How a restart went.
#[derive(Deserialize, Serialize)]
struct RestartJson {
    number: u64,
    #[serde(with = "ProgressJson")]
    progress: RestartProgress,
}

/// How far a restart is.
#[derive(Deserialize, Serialize)]
#[serde(remote = "RestartProgress", rename_all = "kebab-case")]
enum ProgressJson {
    Running,
    Done,
    Failed,
    Refused,
}

/// An order.
#[derive(Deserialize, Serialize)]
struct OrderJson {
    #[serde(with = "KindJson")]
    order: OrderKind,
    number: u64,
    nonce: String,
    challenge: String,
    expires: u64,
}

/// What is ordered.
#[derive(Deserialize, Serialize)]
#[serde(remote = "OrderKind", rename_all = "kebab-case")]
enum KindJson {
    Question,
    Restart,
}

/// Reads a report.
pub(super) fn read_report(content: &[u8]) -> Result<SignedReport, WireError> {
    let json: ReportJson = read(content)?;
    let report = Report {
        boot: json.boot,
        sequence: json.sequence,
        promised_next: json.promised_next.map(Duration::from_millis),
        figures: json.figures,
        is_overloaded: json.overloaded,
        service: json.service,
    };
    check(&report)?;
    Ok(SignedReport {
        report,
        sent: UnixNanos(json.sent),
        nonce: Nonce(token(&json.nonce, "nonce")?),
        heard: json.heard.map(|text| token(&text, "heard").map(Challenge)).transpose()?,
        restart: json.restart.map(|RestartJson { number, progress }| RestartNews { number, progress }),
    })
}

/// Writes a report.
pub(super) fn write_report(message: &SignedReport) -> Result<Vec<u8>, WireError> {
    let Report { boot, sequence, promised_next, figures, is_overloaded, service } = message.report;
    check(&message.report)?;
    write(&ReportJson {
        boot,
        sequence,
        sent: message.sent.0,
        nonce: hex(&message.nonce.0),
        heard: message.heard.map(|challenge| hex(&challenge.0)),
        promised_next: promised_next.map(|promise| u64::try_from(promise.as_millis()).unwrap_or(u64::MAX)),
        service,
        overloaded: is_overloaded,
        figures,
        restart: message.restart.map(|RestartNews { number, progress }| RestartJson { number, progress }),
    })
}

/// Reads an order.
pub(super) fn read_order(content: &[u8]) -> Result<SignedOrder, WireError> {
    let json: OrderJson = read(content)?;
    Ok(SignedOrder {
        kind: json.order,
        number: json.number,
        nonce: Nonce(token(&json.nonce, "nonce")?),
        challenge: Challenge(token(&json.challenge, "challenge")?),
        expires: UnixNanos(json.expires),
    })
}

/// Writes an order.
pub(super) fn write_order(order: &SignedOrder) -> Result<Vec<u8>, WireError> {
    write(&OrderJson {
        order: order.kind,
        number: order.number,
        nonce: hex(&order.nonce.0),
        challenge: hex(&order.challenge.0),
        expires: order.expires.0,
    })
}

fn read<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, WireError> {
    serde_json::from_slice(content).map_err(|error| WireError::Content(error.to_string()))
}

fn write(json: &impl Serialize) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(json).map_err(|error| WireError::Content(error.to_string()))
}

/// Whether a report says what can be: no promise too far, no use that is negative or without end, a share from 0 to 1.
fn check(report: &Report) -> Result<(), WireError> {
    let Figures { cpu, memory, disk, network, wanted_share, .. } = report.figures;
    let is_size = |value: f64| value.is_finite() && value >= 0.0;
    let is_use = |value: Option<Use>| value.is_none_or(|value| is_size(value.amount) && is_size(value.capacity));
    let members = [
        ("promised-next", report.promised_next.is_none_or(|promise| promise <= PROMISE_MAX)),
        ("cpu", is_use(cpu)),
        ("memory", is_use(memory)),
        ("disk", is_use(disk)),
        ("network", is_use(network)),
        ("wanted-share", wanted_share.is_none_or(|share| (0.0..=1.0).contains(&share))),
    ];
    members.iter().find(|(_, can_be)| !can_be).map_or(Ok(()), |(member, _)| Err(WireError::Member(member)))
}
