//! Weights from reports: the dynamic feedback paper's formulas. Amounts in use become uses in 0 to 1, uses a load, and load
//! and capacities a weight. No time in here: when weights are made, and how fast they may move, is
//! [`crate::pure::control`]'s.

use super::report::{Figures, Use};

/// How a pool follows the reports of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackConfig {
    /// What a weight means.
    pub mode: FeedbackMode,
    /// How much each use counts.
    pub factors: Factors,
    /// H1: the load above which a server has too much to do, in percent.
    pub load_max: u8,
    /// H2: the same of any single use, in percent.
    pub use_max: u8,
    /// What becomes of a server that has too much to do.
    pub on_threshold: OnThreshold,
    /// Whether weights are computed and shown, and not used.
    pub is_dry_run: bool,
}

/// What a weight made of reports means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeedbackMode {
    /// It scales the configured weight, and with it what `fb-wlc` has seen.
    #[default]
    Capacity,
    /// It takes the configured weight's place: the paper's way.
    Classic,
}

/// What becomes of a server above a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnThreshold {
    /// Its weight is halved.
    #[default]
    Halve,
    /// It gets nothing: the paper's way.
    Exclude,
}

/// K1 to K4: how much each use counts, in percent; together 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// Of the processor.
    pub cpu: u8,
    /// Of memory.
    pub memory: u8,
    /// Of the disk.
    pub disk: u8,
    /// Of the network.
    pub network: u8,
}

impl Factors {
    /// For web servers.
    pub const WEB: Self = Self { cpu: 35, memory: 25, disk: 20, network: 20 };
    /// For servers of files, whose network matters most.
    pub const FTP: Self = Self { cpu: 15, memory: 15, disk: 30, network: 40 };

    /// How much all count together.
    pub fn sum(self) -> u32 {
        [self.cpu, self.memory, self.disk, self.network].into_iter().map(u32::from).sum()
    }

    fn of(self) -> [f64; 4] {
        [self.cpu, self.memory, self.disk, self.network].map(|factor| f64::from(factor) / 100.0)
    }
}

impl FeedbackConfig {
    /// The settings of a mode that says nothing more.
    pub const fn of(mode: FeedbackMode) -> Self {
        Self {
            mode,
            factors: Factors::WEB,
            load_max: 70,
            use_max: 75,
            on_threshold: match mode {
                FeedbackMode::Capacity => OnThreshold::Halve,
                FeedbackMode::Classic => OnThreshold::Exclude,
            },
            is_dry_run: false,
        }
    }
}

impl Default for FeedbackConfig {
    fn default() -> Self {
        Self::of(FeedbackMode::default())
    }
}

/// What is compared of a server, in the order of [`Factors`].
fn uses(figures: &Figures) -> [Option<Use>; 4] {
    [figures.cpu, figures.memory, figures.disk, figures.network]
}

/// The largest capacities of a pool, each of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Largest([f64; 4]);

impl Largest {
    /// Those of these servers.
    pub fn among<'a>(servers: impl Iterator<Item = &'a Figures>) -> Self {
        let mut largest = [0.0f64; 4];
        for figures in servers {
            for (most, one) in largest.iter_mut().zip(uses(figures)) {
                *most = most.max(one.map_or(0.0, |one| one.capacity));
            }
        }
        Self(largest)
    }
}

/// What of a server's figures a weight comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rating {
    /// GP: what it can do beside the others of its pool, 0 to 1.
    pub performance: f64,
    /// L: how much of that is in use, 0 to 1.
    pub load: f64,
    /// The highest single use, 0 to 1.
    pub highest: f64,
}

/// Rates a server; `None`: it has said nothing to rate it by. What it does not say counts for nothing, and the rest for more.
pub fn rate(figures: &Figures, largest: &Largest, factors: Factors) -> Option<Rating> {
    let (mut weight, mut performance, mut load, mut highest) = (0.0, 0.0, 0.0, 0.0f64);
    for ((one, most), factor) in uses(figures).into_iter().zip(largest.0).zip(factors.of()) {
        let Some((one, part)) = one.and_then(|one| Some((one, one.part()?))) else { continue };
        weight += factor;
        performance += factor * if most > 0.0 { one.capacity / most } else { 1.0 };
        load += factor * part;
        highest = highest.max(part);
    }
    (weight > 0.0).then(|| Rating { performance: performance / weight, load: load / weight, highest })
}

/// The paper's weight, 0 to 100: **W = 100·GP·(1 − L)**, not below 1 while L is at most H1; above a threshold what the
/// configuration says.
pub fn weight(rating: Rating, config: &FeedbackConfig) -> f64 {
    let free = match config.mode {
        FeedbackMode::Classic => rating.performance * (1.0 - rating.load),
        // How fast it is, `fb-wlc` sees for itself.
        FeedbackMode::Capacity => 1.0 - rating.load,
    };
    let (load_max, use_max) = (f64::from(config.load_max) / 100.0, f64::from(config.use_max) / 100.0);
    let weight = (100.0 * free).clamp(0.0, 100.0);
    if rating.highest > use_max || rating.load > load_max {
        return match config.on_threshold {
            OnThreshold::Exclude => 0.0,
            OnThreshold::Halve => (weight / 2.0).max(1.0),
        };
    }
    weight.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(cpu: (f64, f64), memory: (f64, f64), disk: (f64, f64), network: (f64, f64)) -> Figures {
        let of = |(amount, capacity)| Some(Use { amount, capacity });
        Figures { cpu: of(cpu), memory: of(memory), disk: of(disk), network: of(network), ..Figures::default() }
    }

    const CLASSIC: FeedbackConfig = FeedbackConfig::of(FeedbackMode::Classic);

    fn weight_of(figures: &Figures, largest: &Largest, config: &FeedbackConfig) -> f64 {
        weight(rate(figures, largest, config.factors).unwrap(), config)
    }

    /// Worked by hand: two servers, the second with half the processor and memory of the first.
    #[test]
    fn weights_of_two_servers_are_those_worked_by_hand() {
        let big = server((1000.0, 4000.0), (2.0, 8.0), (10.0, 100.0), (0.0, 50.0));
        let small = server((1000.0, 2000.0), (1.0, 4.0), (10.0, 100.0), (5.0, 50.0));
        let largest = Largest::among([&big, &small].into_iter());
        // Big: GP 1, L = .35·.25 + .25·.25 + .2·.1 + 0 = .17.
        assert!((weight_of(&big, &largest, &CLASSIC) - 83.0).abs() < 1e-9);
        // Small: GP = .175 + .125 + .2 + .2 = .7, L = .35·.5 + .25·.25 + .2·.1 + .2·.1 = .2775.
        assert!((weight_of(&small, &largest, &CLASSIC) - 70.0 * 0.7225).abs() < 1e-9);
        // With the weights of file servers: GP = .075 + .075 + .3 + .4 = .85, L = .075 + .0375 + .03 + .04 = .1825.
        let ftp = FeedbackConfig { factors: Factors::FTP, ..CLASSIC };
        assert!((weight_of(&small, &largest, &ftp) - 85.0 * 0.8175).abs() < 1e-9);
    }

    #[test]
    fn above_a_threshold_a_server_gets_nothing_in_the_papers_way_and_half_in_ours() {
        let one = |cpu: f64, others: f64| server((cpu, 1.0), (others, 1.0), (others, 1.0), (others, 1.0));
        for (figures, classic, ours) in [
            // A single use above H2, and exactly at it.
            (one(0.76, 0.0), 0.0, 50.0 * (1.0 - 0.35 * 0.76)),
            (one(0.75, 0.0), 100.0 * (1.0 - 0.35 * 0.75), 100.0 * (1.0 - 0.35 * 0.75)),
            // A load above H1 without a single use above H2.
            (one(0.72, 0.72), 0.0, 14.0),
        ] {
            let largest = Largest::among(std::iter::once(&figures));
            assert!((weight_of(&figures, &largest, &CLASSIC) - classic).abs() < 1e-9, "{figures:?}");
            assert!((weight_of(&figures, &largest, &FeedbackConfig::default()) - ours).abs() < 1e-9, "{figures:?}");
        }
    }

    #[test]
    fn a_weight_is_not_below_one_while_the_load_is_bearable() {
        let weak = server((0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0));
        let giant = server((0.0, 1e6), (0.0, 1e6), (0.0, 1e6), (0.0, 1e6));
        let largest = Largest::among([&weak, &giant].into_iter());
        assert_eq!(weight_of(&weak, &largest, &CLASSIC), 1.0);
    }

    #[test]
    fn what_a_server_does_not_say_counts_for_nothing() {
        assert_eq!(rate(&Figures::default(), &Largest::default(), Factors::WEB), None);
        let only_cpu = Figures { cpu: Some(Use { amount: 0.4, capacity: 1.0 }), ..Figures::default() };
        let rated = rate(&only_cpu, &Largest::among(std::iter::once(&only_cpu)), Factors::WEB).unwrap();
        assert!((rated.load - 0.4).abs() < 1e-9 && (rated.performance - 1.0).abs() < 1e-9);
        let nonsense = Figures { cpu: Some(Use { amount: f64::NAN, capacity: 0.0 }), ..Figures::default() };
        assert_eq!(rate(&nonsense, &Largest::default(), Factors::WEB), None);
    }
}
