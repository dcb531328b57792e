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
    service: ServiceJson,
    #[serde(default)]
    overloaded: bool,
    #[serde(default)]
    figures: FiguresJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restart: Option<RestartJson>,
}

/// How a service is.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ServiceJson {
    Up,
    Abnormal,
    Down,
    Leaving,
    Maintenance,
}

/// Load figures. A use is a pair: the amount in use and the capacity.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct FiguresJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<(f64, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_queue: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wanted_share: Option<f64>,
}

/// How a restart went.
#[derive(Deserialize, Serialize)]
struct RestartJson {
    number: u64,
    progress: ProgressJson,
}

/// How far a restart is.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ProgressJson {
    Running,
    Done,
    Failed,
    Refused,
}

/// An order.
#[derive(Deserialize, Serialize)]
struct OrderJson {
    order: KindJson,
    number: u64,
    nonce: String,
    challenge: String,
    expires: u64,
}

/// What is ordered.
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum KindJson {
    Question,
    Restart,
}

/// Reads a report.
pub(super) fn read_report(content: &[u8]) -> Result<SignedReport, WireError> {
    let json: ReportJson = read(content)?;
    let promised_next = json.promised_next.map(Duration::from_millis);
    if promised_next.is_some_and(|promise| promise > PROMISE_MAX) {
        return Err(WireError::Member("promised-next"));
    }
    let figures = Figures {
        cpu: json.figures.cpu.map(|pair| checked(pair, "cpu")).transpose()?,
        memory: json.figures.memory.map(|pair| checked(pair, "memory")).transpose()?,
        disk: json.figures.disk.map(|pair| checked(pair, "disk")).transpose()?,
        network: json.figures.network.map(|pair| checked(pair, "network")).transpose()?,
        run_queue: json.figures.run_queue,
        connections: json.figures.connections,
        connections_max: json.figures.connections_max,
        wanted_share: json.figures.wanted_share.map(share).transpose()?,
    };
    let service = match json.service {
        ServiceJson::Up => Service::Up,
        ServiceJson::Abnormal => Service::Abnormal,
        ServiceJson::Down => Service::Down,
        ServiceJson::Leaving => Service::Leaving,
        ServiceJson::Maintenance => Service::Maintenance,
    };
    Ok(SignedReport {
        report: Report {
            boot: json.boot,
            sequence: json.sequence,
            promised_next,
            figures,
            is_overloaded: json.overloaded,
            service,
        },
        sent: UnixNanos(json.sent),
        nonce: Nonce(token(&json.nonce, "nonce")?),
        heard: json.heard.map(|text| token(&text, "heard").map(Challenge)).transpose()?,
        restart: json.restart.map(|news| news.read()),
    })
}

/// Writes a report.
pub(super) fn write_report(message: &SignedReport) -> Result<Vec<u8>, WireError> {
    let report = &message.report;
    let promised_next = report.promised_next.map(|promise| {
        let millis = u64::try_from(promise.as_millis()).unwrap_or(u64::MAX);
        if promise > PROMISE_MAX { Err(WireError::Member("promised-next")) } else { Ok(millis) }
    });
    let figures = FiguresJson {
        cpu: report.figures.cpu.map(|value| pair(value, "cpu")).transpose()?,
        memory: report.figures.memory.map(|value| pair(value, "memory")).transpose()?,
        disk: report.figures.disk.map(|value| pair(value, "disk")).transpose()?,
        network: report.figures.network.map(|value| pair(value, "network")).transpose()?,
        run_queue: report.figures.run_queue,
        connections: report.figures.connections,
        connections_max: report.figures.connections_max,
        wanted_share: report.figures.wanted_share.map(share).transpose()?,
    };
    let service = match report.service {
        Service::Up => ServiceJson::Up,
        Service::Abnormal => ServiceJson::Abnormal,
        Service::Down => ServiceJson::Down,
        Service::Leaving => ServiceJson::Leaving,
        Service::Maintenance => ServiceJson::Maintenance,
    };
    write(&ReportJson {
        boot: report.boot,
        sequence: report.sequence,
        sent: message.sent.0,
        nonce: hex(&message.nonce.0),
        heard: message.heard.map(|challenge| hex(&challenge.0)),
        promised_next: promised_next.transpose()?,
        service,
        overloaded: report.is_overloaded,
        figures,
        restart: message.restart.map(RestartJson::of),
    })
}

/// Reads an order.
pub(super) fn read_order(content: &[u8]) -> Result<SignedOrder, WireError> {
    let json: OrderJson = read(content)?;
    Ok(SignedOrder {
        kind: match json.order {
            KindJson::Question => OrderKind::Question,
            KindJson::Restart => OrderKind::Restart,
        },
        number: json.number,
        nonce: Nonce(token(&json.nonce, "nonce")?),
        challenge: Challenge(token(&json.challenge, "challenge")?),
        expires: UnixNanos(json.expires),
    })
}

/// Writes an order.
pub(super) fn write_order(order: &SignedOrder) -> Result<Vec<u8>, WireError> {
    write(&OrderJson {
        order: match order.kind {
            OrderKind::Question => KindJson::Question,
            OrderKind::Restart => KindJson::Restart,
        },
        number: order.number,
        nonce: hex(&order.nonce.0),
        challenge: hex(&order.challenge.0),
        expires: order.expires.0,
    })
}

impl RestartJson {
    const fn of(news: RestartNews) -> Self {
        let progress = match news.progress {
            RestartProgress::Running => ProgressJson::Running,
            RestartProgress::Done => ProgressJson::Done,
            RestartProgress::Failed => ProgressJson::Failed,
            RestartProgress::Refused => ProgressJson::Refused,
        };
        Self { number: news.number, progress }
    }

    const fn read(&self) -> RestartNews {
        let progress = match self.progress {
            ProgressJson::Running => RestartProgress::Running,
            ProgressJson::Done => RestartProgress::Done,
            ProgressJson::Failed => RestartProgress::Failed,
            ProgressJson::Refused => RestartProgress::Refused,
        };
        RestartNews { number: self.number, progress }
    }
}

fn read<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, WireError> {
    serde_json::from_slice(content).map_err(|error| WireError::Content(error.to_string()))
}

fn write(json: &impl Serialize) -> Result<Vec<u8>, WireError> {
    serde_json::to_vec(json).map_err(|error| WireError::Content(error.to_string()))
}

/// A use that can be: neither negative nor without end.
fn checked((amount, capacity): (f64, f64), member: &'static str) -> Result<Use, WireError> {
    let can_be = |value: f64| value.is_finite() && value >= 0.0;
    if can_be(amount) && can_be(capacity) { Ok(Use { amount, capacity }) } else { Err(WireError::Member(member)) }
}

fn pair(value: Use, member: &'static str) -> Result<(f64, f64), WireError> {
    checked((value.amount, value.capacity), member).map(|value| (value.amount, value.capacity))
}

fn share(value: f64) -> Result<f64, WireError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(WireError::Member("wanted-share")) }
}
