//! `feedback MODE ..` of a pool: how what its servers say of their load moves their shares.

use super::node::Node;
use super::problem::{Problem, Problems};
use crate::pure::feedback::weights::{Factors, FeedbackConfig, FeedbackMode, OnThreshold};

/// What a pool says of it; `None`: nothing.
pub(super) fn read(pool: Node<'_>, problems: &mut Problems) -> Option<FeedbackConfig> {
    let dry_run = pool.setting("feedback-dry-run");
    let is_dry_run = dry_run.as_ref().and_then(|value| value.switch()).unwrap_or(false);
    let Some(node) = pool.child("feedback") else {
        if let Some(value) = dry_run.filter(|_| !follows_reports(pool)) {
            let problem = Problem::at(&value.place(), "nothing in this pool follows what servers report");
            let problem = problem.label("a dry run of nothing");
            problems.add(problem.help(r#"add what it is to try: feedback "capacity""#));
        }
        return is_dry_run.then(|| FeedbackConfig { is_dry_run, ..FeedbackConfig::default() });
    };
    let mode = match node.argument(0).and_then(|value| value.text()) {
        Some("classic") => FeedbackMode::Classic,
        // Other words have been reported.
        _ => FeedbackMode::Capacity,
    };
    let usual = FeedbackConfig::of(mode);
    let percent =
        |name: &'static str, usual: u8| node.setting(name).and_then(|value| value.whole::<u8>()).unwrap_or(usual);
    Some(FeedbackConfig {
        factors: factors(node, problems),
        load_max: percent("load-max", usual.load_max),
        use_max: percent("use-max", usual.use_max),
        on_threshold: match node.setting("on-threshold").and_then(|value| value.text()) {
            Some("halve") => OnThreshold::Halve,
            Some("exclude") => OnThreshold::Exclude,
            _ => usual.on_threshold,
        },
        is_dry_run,
        ..usual
    })
}

/// Whether shares follow reports without a `feedback`.
fn follows_reports(pool: Node<'_>) -> bool {
    let method = pool.child("scheduler").and_then(|node| node.argument(0)).and_then(|value| value.text());
    method == Some("fb-wlc")
}

/// K1 to K4: a preset, or all that are given, which must be 100 together.
fn factors(node: Node<'_>, problems: &mut Problems) -> Factors {
    let preset = match node.setting("preset").and_then(|value| value.text()) {
        Some("ftp") => Factors::FTP,
        _ => Factors::WEB,
    };
    let names = ["cpu", "memory", "disk", "network"];
    if names.iter().all(|name| node.setting(name).is_none()) {
        return preset;
    }
    let of = |name: &'static str| node.setting(name).and_then(|value| value.whole::<u8>()).unwrap_or(0);
    let factors = Factors { cpu: of("cpu"), memory: of("memory"), disk: of("disk"), network: of("network") };
    if let Some(preset) = node.setting("preset") {
        let problem = Problem::at(&preset.place(), "`preset` beside factors of its own").label("one of them will do");
        problems.add(problem.help(r#"preset="web" is cpu=35 memory=25 disk=20 network=20"#));
    }
    if factors.sum() != 100 {
        let problem = Problem::at(&node.place(), format!("the factors are {} together, not 100", factors.sum()));
        problems.add(
            problem
                .label("cpu, memory, disk and network; one that is not there counts 0")
                .help(r#"feedback "capacity" cpu=35 memory=25 disk=20 network=20"#),
        );
    }
    factors
}
