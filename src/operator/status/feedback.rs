//! What a server's reports say and what is made of them, as `status` tells it. Ages count from the moment of asking.

use serde::{Deserialize, Serialize};

use super::rounded;
use crate::base::time::Timestamp;
use crate::pure::control::view::FeedbackView;
use crate::pure::feedback::weights::Rating;

/// What is made of a server's reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedbackStatus {
    /// How long ago the last came.
    pub seconds_ago: f64,
    /// φ: how much it is to be doubted that its agent still speaks; none where it promises nothing.
    pub doubt: Option<f64>,
    /// The push-detection paper's ticks since the last report; 0 where its pool does not count them.
    pub counter: u32,
    /// How much of it is in use, 0 to 1; none where its pool does not follow reports, or it says nothing of its load.
    pub load: Option<f64>,
    /// The highest single use, 0 to 1.
    pub highest_use: Option<f64>,
    /// What it can do beside the best of its pool, 0 to 1.
    pub performance: Option<f64>,
    /// The share that its reports led to, in configured weights; none: the configured one.
    pub share: Option<f64>,
    /// The part of each way that the share goes; less than 1 after it went to and fro.
    pub gain: f64,
    /// Whether that share is only shown.
    pub dry_run: bool,
}

impl FeedbackStatus {
    pub(super) fn of(view: &FeedbackView, now: Timestamp) -> Self {
        let FeedbackView { heard, doubt, counter, rating, share, gain, is_dry_run } = view;
        let of = |figure: fn(&Rating) -> f64| rating.as_ref().map(|rating| thousandths(figure(rating)));
        Self {
            seconds_ago: thousandths(now.since(*heard).as_secs_f64()),
            doubt: doubt.map(thousandths),
            counter: *counter,
            load: of(|rating| rating.load),
            highest_use: of(|rating| rating.highest),
            performance: of(|rating| rating.performance),
            share: share.map(|share| thousandths(f64::from(share.units()) / 256.0)),
            gain: *gain,
            dry_run: *is_dry_run,
        }
    }

    /// `heard 0.2 s ago, load 31 %, share 68.5 (dry run)`.
    pub(super) fn text(&self) -> String {
        let mut text = format!("heard {:.1} s ago", self.seconds_ago);
        if let Some(load) = self.load {
            text.push_str(&format!(", load {:.0} %", load * 100.0));
        }
        if let Some(share) = self.share {
            text.push_str(&format!(", share {share}{}", if self.dry_run { " (dry run)" } else { "" }));
        }
        if self.gain < 1.0 {
            text.push_str(&format!(", goes {:.0} % of each way", self.gain * 100.0));
        }
        if self.counter > 0 {
            text.push_str(&format!(", {} ticks", self.counter));
        }
        text
    }
}

fn thousandths(value: f64) -> f64 {
    rounded(value, 1e3)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pure::pool::Share;

    #[test]
    fn what_is_made_of_reports_reads_well() {
        let rating = Some(Rating { performance: 1.0, load: 0.3145, highest: 0.76 });
        let view = FeedbackView {
            heard: Timestamp::ZERO,
            doubt: Some(0.2),
            counter: 0,
            rating,
            share: Some(Share::of(68)),
            gain: 0.5,
            is_dry_run: true,
        };
        let status = FeedbackStatus::of(&view, Timestamp::ZERO + Duration::from_millis(250));
        assert_eq!((status.load, status.highest_use, status.share), (Some(0.315), Some(0.76), Some(68.0)));
        assert_eq!(status.text(), "heard 0.2 s ago, load 32 %, share 68 (dry run), goes 50 % of each way");
    }
}
