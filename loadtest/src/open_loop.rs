//! A client that asks when it is time to, and not when the last answer has come: an open loop.
//!
//! A latency counts from the moment at which the request was meant to be sent. A client that waits for answers stops asking while a
//! server hangs, and so sees one slow answer where users would have seen hundreds ("coordinated omission", Tene 2013).
//! Requests in flight, and with them connections and memory, are bounded: what comes above is noted as not sent.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, spawn_local};

use crate::alarm::Alarm;
use crate::catalogue::{Ask, Source};
use crate::clock;
use crate::failure::{Failure, Outcome, While};

/// Requests in flight, and so connections, at a time.
const IN_FLIGHT_MAX: usize = 1_000;
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request to be sent at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// From the first moment of the load.
    pub at: Duration,
    /// What it asks for.
    pub ask: Ask,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// The request.
    pub arrival: Arrival,
    /// Its end.
    pub end: End,
}

impl Exchange {
    /// How long it took, where it was answered.
    pub fn latency(&self) -> Option<Duration> {
        match self.end {
            End::Answered { latency, .. } => Some(latency),
            End::Failed | End::NotSent => None,
        }
    }

    /// How much later it was begun than meant, where it was answered.
    pub fn lateness(&self) -> Option<Duration> {
        match self.end {
            End::Answered { late, .. } => Some(late),
            End::Failed | End::NotSent => None,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// With an answer.
    Answered {
        /// From when it was meant to be sent until all of the answer had come.
        latency: Duration,
        /// How much later it was begun than meant: the client's own fault.
        late: Duration,
        /// Who answered.
        server: usize,
        /// Where from.
        source: Source,
    },
    /// With an error of the proxy, or with none in time.
    Failed,
    /// It was one too many.
    NotSent,
}

/// So many arrivals a second for the same, from the first moment until `end`.
pub fn evenly(rate: u32, end: Duration, ask: Ask) -> Vec<Arrival> {
    let step = Duration::from_secs(1) / rate.max(1);
    let at = (0_u32..).map(|number| step * number).take_while(|at| *at < end);
    at.map(|at| Arrival { at, ask }).collect()
}

/// Sends all `arrivals` to 127.0.0.1:`port`, each at its time after `from`, and returns what became of them, in the order of their ends.
pub async fn offer(port: u16, arrivals: &[Arrival], from: Duration, alarm: &Alarm) -> Outcome<Vec<Exchange>> {
    let client = Rc::new(Client::new((Ipv4Addr::LOCALHOST, port).into(), from, alarm));
    let mut running = JoinSet::new();
    let mut exchanges = Vec::with_capacity(arrivals.len());
    for arrival in arrivals.iter().copied() {
        alarm.until(from + arrival.at).await;
        clock::go_on()?;
        while let Some(ended) = running.try_join_next() {
            exchanges.push(ended.doing(|| "a request".to_owned())?);
        }
        if running.len() < IN_FLIGHT_MAX {
            running.spawn_local(client.clone().exchange(arrival));
        } else {
            exchanges.push(Exchange { arrival, end: End::NotSent });
        }
    }
    while let Some(ended) = running.join_next().await {
        exchanges.push(ended.doing(|| "a request".to_owned())?);
    }
    Ok(exchanges)
}

/// Whether there is an answer from behind a proxy at `port`.
pub async fn is_served(port: u16, alarm: &Alarm) -> bool {
    let client = Rc::new(Client::new((Ipv4Addr::LOCALHOST, port).into(), alarm.now(), alarm));
    matches!(client.exchange(Arrival { at: Duration::ZERO, ask: Ask::Ping }).await.end, End::Answered { .. })
}

/// Asks one server or proxy, over connections that it keeps.
pub struct Client {
    address: SocketAddr,
    from: Duration,
    alarm: Alarm,
    /// Connections without a request, at most as many as there were requests in flight. The last that was used is the first to be used.
    idle: RefCell<Vec<Sender>>,
}

type Sender = SendRequest<Empty<Bytes>>;

impl Client {
    /// One that asks at `address`; its arrivals count from `from`.
    pub fn new(address: SocketAddr, from: Duration, alarm: &Alarm) -> Self {
        Self { address, from, alarm: alarm.clone(), idle: RefCell::default() }
    }

    /// Asks once; the latency counts from the arrival's time.
    pub async fn exchange(self: Rc<Self>, arrival: Arrival) -> Exchange {
        let meant = self.from + arrival.at;
        let late = self.alarm.now().saturating_sub(meant);
        let answered = tokio::time::timeout(PATIENCE, self.ask(&arrival.ask.path())).await;
        let end = match answered {
            Ok(Ok((server, source))) => {
                let latency = self.alarm.now().saturating_sub(meant);
                End::Answered { latency, late, server, source }
            }
            Ok(Err(_)) | Err(_) => End::Failed,
        };
        Exchange { arrival, end }
    }

    /// Asks for a path; the server and its source, where that went well.
    pub async fn ask(&self, path: &str) -> Outcome<(usize, Source)> {
        match self.fetch(path).await? {
            (StatusCode::OK, Some(told)) => Ok(told),
            (status, _) => Err(Failure::new(format!("answered with {status}"))),
        }
    }

    /// Asks for a path; the status of the answer, and what one of our servers says in it.
    pub async fn fetch(&self, path: &str) -> Outcome<(StatusCode, Option<(usize, Source)>)> {
        let mut sender = self.connection().await?;
        let request = Request::builder().uri(path).header("host", "loadtest.test").body(Empty::new());
        let request = request.doing(|| "making a request".to_owned())?;
        let answer = sender.send_request(request).await.doing(|| "asking".to_owned())?;
        let status = answer.status();
        let told = answer.headers().get("cache-status").and_then(|value| Source::parse(value.to_str().ok()?));
        answer.into_body().collect().await.doing(|| "reading an answer".to_owned())?;
        if !sender.is_closed() {
            self.idle.borrow_mut().push(sender);
        }
        Ok((status, told))
    }

    /// An idle connection that is still open, or a new one.
    async fn connection(&self) -> Outcome<Sender> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let Some(mut sender) = idle else { break };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(self.address).await.doing(|| "connecting".to_owned())?;
        stream.set_nodelay(true).doing(|| "setting up a socket".to_owned())?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.doing(|| "starting HTTP/1.1".to_owned())?;
        // What breaks it breaks the request on it, which tells.
        spawn_local(async move { drop(connection.await) });
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_at_a_fixed_rate_until_the_end() {
        let two_seconds = |rate| evenly(rate, Duration::from_secs(2), Ask::Ping);
        for (rate, count) in [(50, 100), (200, 400), (2_000, 4_000)] {
            let arrivals = two_seconds(rate);
            assert_eq!(arrivals.len(), count);
            assert!(arrivals.last().unwrap().at < Duration::from_secs(2));
        }
        let arrivals = two_seconds(200);
        assert_eq!(arrivals.last().map(|arrival| arrival.at), Some(Duration::from_millis(1_995)));
        assert_eq!(arrivals[1].at, Duration::from_millis(5));
    }
}
