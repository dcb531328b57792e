//! Pages, images and an interface (api) behind one pool, and behind a pool for each media type: what it is worth to know what is asked
//! for.
//!
//! Servers and requests are the same in each run. In a shared pool every cache must hold of everything, and whoever asks for a picture
//! waits behind what is computed; in pools of their own neither is so.

use std::fmt::Write;

use super::{KEYS_PER_ENTRY, SERVERS, SLOTS, arrivals, caching, number, salt};
use crate::catalogue::{Ask, Kind};
use crate::contender::{Contender, Pool};
use crate::experiment::{Busy, Ground, Plan, Scene};
use crate::failure::Outcome;
use crate::figures::{self, Figures};
use crate::law::{self, Zipf};
use crate::open_loop::{Arrival, Exchange};
use crate::statistics::Numbers;

/// What is asked for, and how often. Of images there are more than of pages.
const IMAGES: f64 = 0.72;
const PAGES: f64 = 0.2;
const EXPONENT: f64 = 1.0;
/// The rate, as a part of what the shared pool can do without any placement.
const LOAD: f64 = 0.75;

/// What is measured.
pub struct Mixed {
    /// Whether cbr is measured too.
    pub with_cbr: bool,
    /// Images and pages together.
    pub keys: usize,
    /// Where everything drawn by lot begins.
    pub seed: u64,
    /// What happens when; nothing dies.
    pub plan: Plan,
}

/// A way to share out the servers.
struct Layout {
    name: &'static str,
    pools: Vec<Pool>,
}

impl Mixed {
    /// Runs everything; the report. `say` gets a line of progress for each way.
    pub fn run(&self, ground: &mut Ground, mut say: impl FnMut(String)) -> Outcome<String> {
        let (images, pages) = (Zipf::new(self.images(), EXPONENT), Zipf::new(self.keys - self.images(), EXPONENT));
        let rate = LOAD * self.capacity(&images, &pages);
        let arrivals = self.arrivals(&images, &pages, rate);
        let mut busy = Busy::default();
        let mut rows = String::new();
        for layout in self.layouts() {
            let pools = &layout.pools;
            let scene = Scene { pools, servers: SERVERS, arrivals: &arrivals, plan: self.plan, victim: None };
            match ground.run(&scene, caching(self.entries())) {
                Ok(run) => {
                    busy = busy.most(run.busy);
                    rows.push_str(&self.rows(layout.name, &run.exchanges));
                    say(format!("mixed, {}: done", layout.name));
                }
                Err(failure) => {
                    crate::clock::go_on()?;
                    let why = failure.brief();
                    say(format!("mixed, {}: {why}", layout.name));
                    let _ = writeln!(rows, "| {} | not measured: {why} | | | | |", layout.name);
                }
            }
        }
        Ok(format!(
            "\n## Pages, images and an interface\n\n\
             - {rate:.0} requests a second: 72 % for {} images (a hit 1 ms of work, a miss 10 ms), 20 % for {} pages (2 ms, 20 ms), α = \
             {EXPONENT}; 8 % are computed (20 ms)\n\
             - pools of their own: images s1 to s4, pages s5 and s6, the rest s7 and s8; caches of {} entries\n{}\n\n\
             | servers | what | hit rate | p50 ms | p99 ms | mean ms |\n| --- | --- | --- | --- | --- | --- |\n{rows}",
            self.images(),
            self.keys - self.images(),
            self.entries(),
            busy.says()
        ))
    }

    fn images(&self) -> usize {
        self.keys * 7 / 10
    }

    fn entries(&self) -> usize {
        self.keys / KEYS_PER_ENTRY
    }

    /// Requests a second of the shared pool, where each server sees a part of everything.
    #[allow(clippy::cast_precision_loss, reason = "eight servers")]
    fn capacity(&self, images: &Zipf, pages: &Zipf) -> f64 {
        let cached = IMAGES + PAGES;
        let all: Vec<f64> = images
            .shares()
            .map(|share| share * IMAGES / cached)
            .chain(pages.shares().map(|share| share * PAGES / cached))
            .collect();
        let hit_rates = law::hit_rates(&all, self.entries());
        let mut work = (1.0 - cached) * Kind::Api.work().1.as_secs_f64();
        for (place, (share, hit_rate)) in all.iter().zip(hit_rates).enumerate() {
            let (hit, miss) = if place < self.images() { Kind::Image.work() } else { Kind::Page.work() };
            work += share * cached * (hit.as_secs_f64() * hit_rate + miss.as_secs_f64() * (1.0 - hit_rate));
        }
        (SERVERS * SLOTS) as f64 / work
    }

    fn arrivals(&self, images: &Zipf, pages: &Zipf, rate: f64) -> Vec<Arrival> {
        let salt = salt(self.seed);
        arrivals(rate, self.plan.end(), &mut Numbers::new(self.seed), |numbers| {
            let (kind, place) = match numbers.unit() {
                lot if lot < IMAGES => (Kind::Image, images.draw(numbers)),
                lot if lot < IMAGES + PAGES => (Kind::Page, pages.draw(numbers)),
                _ => (Kind::Api, numbers.below(self.keys)),
            };
            Ask::Item { kind, number: number(place), salt }
        })
    }

    fn layouts(&self) -> Vec<Layout> {
        let mut layouts = vec![
            Layout { name: "one pool, wlc", pools: vec![Pool::of_all(SERVERS, Contender::Wlc)] },
            Layout { name: "a pool for each media type, wlc", pools: specialised(Contender::Wlc) },
        ];
        if self.with_cbr {
            layouts.push(Layout { name: "one pool, cbr", pools: vec![Pool::of_all(SERVERS, Contender::Cbr)] });
            layouts.push(Layout { name: "a pool for each media type, cbr", pools: specialised(Contender::Cbr) });
        }
        layouts
    }

    fn rows(&self, name: &str, exchanges: &[Exchange]) -> String {
        let mut text = row(name, "all", &Figures::of(exchanges, self.plan, SERVERS));
        for kind in [Kind::Image, Kind::Page, Kind::Api] {
            let is_kind =
                |exchange: &&Exchange| matches!(exchange.arrival.ask, Ask::Item { kind: found, .. } if found == kind);
            let some: Vec<Exchange> = exchanges.iter().filter(is_kind).copied().collect();
            text.push_str(&row("", kind.name(), &Figures::of(&some, self.plan, SERVERS)));
        }
        text
    }
}

/// What is cached gets `scheduler`; what is computed has no locality and goes to whoever has the fewest requests.
fn specialised(scheduler: Contender) -> Vec<Pool> {
    vec![
        Pool { name: "images", media_type: Some("image/*"), servers: 0..4, scheduler },
        Pool { name: "pages", media_type: Some("text/html"), servers: 4..6, scheduler },
        Pool { name: "rest", media_type: None, servers: 6..8, scheduler: Contender::Wlc },
    ]
}

fn row(layout: &str, what: &str, figures: &Figures) -> String {
    format!(
        "| {layout} | {what} | {} | {} | {} | {} |\n",
        figures::part(figures.hit_rate),
        figures::time(figures.p50),
        figures::time(figures.p99),
        figures::time(figures.mean)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn kinds_are_asked_for_as_often_as_is_said_and_a_shared_pool_can_do_less_than_one_that_always_hits() {
        let plan = Plan {
            warm_up: Duration::from_secs(5),
            steady: Duration::from_secs(15),
            down: Duration::ZERO,
            back: Duration::ZERO,
        };
        let mixed = Mixed { with_cbr: false, keys: 1_000, seed: 3, plan };
        let (images, pages) = (Zipf::new(700, EXPONENT), Zipf::new(300, EXPONENT));
        let all = mixed.arrivals(&images, &pages, 1_000.0);
        let part = |wanted| {
            let is_wanted = |arrival: &&Arrival| matches!(arrival.ask, Ask::Item { kind, .. } if kind == wanted);
            all.iter().filter(is_wanted).count() as f64 / all.len() as f64
        };
        for (kind, expected) in [(Kind::Image, 0.72), (Kind::Page, 0.2), (Kind::Api, 0.08)] {
            assert!((part(kind) - expected).abs() < 0.015, "{kind:?}: {}", part(kind));
        }
        let capacity = mixed.capacity(&images, &pages);
        // If everything hit, 2.72 ms a request; if nothing did, 12.8 ms.
        assert!((8.0 / 0.0128..8.0 / 0.00272).contains(&capacity), "{capacity}");
    }
}
