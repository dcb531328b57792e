//! Tests of pacing on a virtual clock, against what the papers and the promise demand.

use super::*;

/// An agent that looks every 50 ms at a service whose samples a function gives.
struct Run {
    pacing: Pacing,
    now: Timestamp,
    /// When reports were sent, why, and what they promised.
    sent: Vec<(u64, Reason, Option<Duration>, Sample)>,
}

impl Run {
    fn new(mode: Mode) -> Self {
        Self { pacing: Pacing::new(mode, 7), now: Timestamp::ZERO, sent: Vec::new() }
    }

    fn go(&mut self, span: Duration, sample: impl Fn(u64) -> Sample) {
        let end = self.now + span;
        while self.now < end {
            let millis = self.now.as_nanos() / 1_000_000;
            let sample = sample(millis);
            if let Some(why) = self.pacing.look(self.now, &sample) {
                let (said, promise) = self.pacing.told(self.now, Some(why), &sample);
                self.sent.push((millis, why, promise, said));
            }
            self.now = self.now + SAMPLE;
        }
    }

    fn times(&self, reason: Reason) -> Vec<u64> {
        self.sent.iter().filter(|(_, why, ..)| *why == reason).map(|(at, ..)| *at).collect()
    }
}

fn with_connections(connections: u32, max: u32) -> Sample {
    let figures = Figures { connections: Some(connections), connections_max: Some(max), ..Figures::default() };
    Sample { figures, ..Sample::default() }
}

fn with_cpu(amount: f64) -> Sample {
    let figures = Figures { cpu: Some(Use { amount, capacity: 1000.0 }), ..Figures::default() };
    Sample { figures, ..Sample::default() }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_interval_is_two_seconds_times_the_load_from_a_tenth_to_one() {
    for (connections, interval) in [(0, 100), (5, 100), (10, 200), (25, 500), (50, 1000), (100, 1000), (150, 1000)] {
        let mut run = Run::new(Mode::Promised);
        run.go(10 * SECOND, |_| with_connections(connections, 100));
        for pair in run.sent.windows(2) {
            assert_eq!(pair[0].2, Some(Duration::from_millis(interval)), "{connections} connections");
            assert_eq!(pair[1].0 - pair[0].0, interval, "{connections} connections: the promise is kept");
        }
        assert!(run.sent.len() >= 10);
    }
}

#[test]
fn without_a_bound_on_connections_the_load_is_the_largest_use() {
    let mut run = Run::new(Mode::Promised);
    run.go(SECOND, |_| with_cpu(250.0));
    assert_eq!(run.sent[0].2, Some(Duration::from_millis(500)));
}

#[test]
fn an_overload_its_end_and_a_change_of_state_are_said_at_once() {
    for mode in [Mode::Promised, Mode::Classic] {
        let mut run = Run::new(mode);
        let sample = |millis| {
            let mut sample = with_connections(100, 100);
            sample.is_overloaded = (450..700).contains(&millis);
            sample.service = if millis >= 850 { Service::Down } else { Service::Up };
            sample
        };
        run.go(SECOND, sample);
        assert_eq!(run.times(Reason::Overload), [450, 700]);
        assert_eq!(run.times(Reason::Service), [850]);
    }
}

#[test]
fn the_push_papers_interval_is_the_part_of_the_connections_times_two_seconds() {
    for (connections, interval) in [(0, 200), (5, 200), (50, 1000), (90, 1800), (100, 2000), (110, 2200)] {
        let mut run = Run::new(Mode::Classic);
        run.go(14 * SECOND, |_| with_connections(connections, 100));
        let gaps: Vec<_> = run.sent.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(gaps.iter().all(|gap| *gap == interval), "{connections} connections: {gaps:?}");
        assert!(gaps.len() >= 5);
    }
}

#[test]
fn the_feedback_paper_reads_every_15_to_20_seconds_and_tells_changes_of_more_than_5_percent() {
    let mut run = Run::new(Mode::Classic);
    // From one reading to the next it grows by 10 to 14 %.
    run.go(200 * SECOND, |millis| with_cpu(400.0 * 1.007_f64.powf(millis as f64 / 1000.0)));
    assert_eq!(run.times(Reason::First), [0]);
    let told = run.times(Reason::Figure);
    assert_eq!(run.sent.len(), 1 + told.len(), "nothing else is said");
    let gaps: Vec<_> = [0].iter().chain(&told).zip(&told).map(|(from, to)| to - from).collect();
    assert!(gaps.iter().all(|gap| (15_000..=20_050).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "they are spread");
    assert!(run.sent.iter().all(|(_, _, promise, _)| promise.is_none()), "nothing is promised");
}

#[test]
fn a_change_of_5_percent_or_less_is_not_told_until_it_has_added_up() {
    let mut run = Run::new(Mode::Classic);
    run.go(300 * SECOND, |millis| with_cpu(if millis == 0 { 400.0 } else { 420.0 }));
    assert_eq!(run.sent.len(), 1, "exactly 5 %");
    // 1 % every 20 s: told once more than 5 % lie between what was told and what is.
    let mut run = Run::new(Mode::Classic);
    run.go(300 * SECOND, |millis| with_cpu(400.0 + 4.0 * (millis / 20_000) as f64));
    let told = run.times(Reason::Figure);
    assert!(told.len() == 2 && told[0] >= 120_000, "{told:?}");
}

#[test]
fn fifteen_connections_more_or_fewer_are_told_between_readings() {
    let mut run = Run::new(Mode::Classic);
    let connections = |millis| match millis {
        0..1000 => 100,
        1000..2000 => 114,
        2000..3000 => 115,
        3000..4000 => 101,
        _ => 100,
    };
    let sample = |millis| {
        let figures = Figures { connections: Some(connections(millis)), ..Figures::default() };
        Sample { figures, ..Sample::default() }
    };
    run.go(5 * SECOND, sample);
    assert_eq!(run.times(Reason::Connections), [2000, 4000], "since they were last told");
}

#[test]
fn signs_of_life_repeat_what_was_told_and_answers_say_what_is() {
    let mut run = Run::new(Mode::Classic);
    let sample = |millis: u64| with_connections(50 + u32::try_from(millis / 250).unwrap().min(14), 100);
    run.go(10 * SECOND, sample);
    assert!(run.sent.iter().all(|(.., said)| said.figures.connections == Some(50)), "less than 15 more");
    let (said, _) = run.pacing.told(run.now, None, &sample(10_000));
    assert_eq!(said.figures.connections, Some(64));
    assert!(!run.pacing.wants_figures(run.now) && run.pacing.wants_figures(run.now + 20 * SECOND));
}
