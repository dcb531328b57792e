//! Clients that ask, wait for the answer, think, and ask again: a closed loop. So many clients are so many requests in flight at most, which
//! is what "at a strength of 120 clients" means, and how a server is overloaded by so much and no more.
//!
//! A latency counts from the moment at which the request was meant to be sent. Where a request fails the client waits before it asks again.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::alarm::Alarm;
use crate::catalogue::Ask;
use crate::clock;
use crate::failure::{Outcome, While};
use crate::open_loop::{Arrival, Client, End, Exchange};
use crate::statistics::Numbers;

/// After a refusal.
const PAUSE: Duration = Duration::from_millis(50);

/// Who asks.
#[derive(Clone, Copy)]
pub struct Crowd {
    /// Whom.
    pub address: SocketAddr,
    /// How many they are.
    pub clients: usize,
    /// How long one thinks in the mean, by the exponential law.
    pub thinking: Duration,
    /// What one asks for.
    pub draw: fn(&mut Numbers) -> Ask,
    /// Where everything drawn by lot begins.
    pub seed: u64,
}

impl Crowd {
    /// Asks from `from` to `until`; what became of each request, its time counted from `from`.
    pub async fn ask(self, from: Duration, until: Duration, alarm: Alarm) -> Outcome<Vec<Exchange>> {
        let client = Rc::new(Client::new(self.address, from, &alarm));
        let mut running = JoinSet::new();
        for number in 0..self.clients {
            let numbers = Numbers::new(self.seed ^ (number as u64) << 40);
            running.spawn_local(self.one(client.clone(), numbers, from, until, alarm.clone()));
        }
        let mut exchanges = Vec::new();
        while let Some(ended) = running.join_next().await {
            exchanges.extend(ended.doing(|| "a client".to_owned())?);
        }
        clock::go_on()?;
        Ok(exchanges)
    }

    async fn one(
        self,
        client: Rc<Client>,
        mut numbers: Numbers,
        from: Duration,
        until: Duration,
        alarm: Alarm,
    ) -> Vec<Exchange> {
        let mut exchanges = Vec::new();
        // They don't begin all at once, or they would stay together.
        let mut due = from + self.think(&mut numbers);
        while due < until && !clock::is_interrupted() {
            alarm.until(due).await;
            let arrival = Arrival { at: due - from, ask: (self.draw)(&mut numbers) };
            let exchange = client.clone().exchange(arrival).await;
            let has_failed = !matches!(exchange.end, End::Answered { .. });
            exchanges.push(exchange);
            let pause = if has_failed { PAUSE } else { Duration::ZERO };
            due = alarm.now() + pause.max(self.think(&mut numbers));
        }
        exchanges
    }

    fn think(self, numbers: &mut Numbers) -> Duration {
        if self.thinking.is_zero() { Duration::ZERO } else { self.thinking.mul_f64(-numbers.unit().ln()) }
    }
}
