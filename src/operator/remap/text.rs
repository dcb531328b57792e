//! A comparison as text for people: for each pool a line that says how it chooses, one that says how many keys move, and how
//! many of them each server has.

use super::{MovedOf, PoolRemap, Remap, Way};
use crate::operator::status::{percent, table};

/// How many servers of a pool are shown.
const SERVERS_SHOWN: usize = 32;

impl Remap {
    /// For people.
    pub fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        if self.requests_without_pool > 0 {
            lines.push(format!("{} of the requests reach no pool as it is", self.requests_without_pool));
        }
        lines.extend(self.pools.iter().flat_map(|pool| self.pool_lines(pool)));
        if self.pools.is_empty() {
            lines.push("there are no pools".to_owned());
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn pool_lines(&self, pool: &PoolRemap) -> Vec<String> {
        let mut lines = vec![format!("pool `{}`: {}", pool.name, ways(pool))];
        let Some(keys) = pool.keys else {
            if pool.change == "kept" {
                lines.push("  nothing to compare: no key says which server gets a request".to_owned());
            }
            return lines;
        };
        let source = if self.keys_file.is_some() { "keys" } else { "keys, spread evenly," };
        lines.push(format!(
            "  {} of {} {source} change their server, {}",
            keys.moved,
            keys.of,
            share(keys.moved, keys)
        ));
        if keys.elsewhere > 0 {
            lines.push(format!("  {} of them go to another pool, or to none", keys.elsewhere));
        }
        if !keys.holds_after_restart {
            lines.push("  a restart forgets the servers of keys, and load decides anew".to_owned());
        }
        if pool.without_key > 0 {
            lines.push(format!("  {} lines have no key for it", pool.without_key));
        }
        if keys.of > 0 {
            let count = |count: Option<u64>, absent: &str| count.map_or(absent.to_owned(), |count| count.to_string());
            let mut rows = vec![["server".to_owned(), "before".to_owned(), "after".to_owned()].to_vec()];
            rows.extend(pool.servers.iter().take(SERVERS_SHOWN).map(|server| {
                let name = server.name.clone();
                [name, count(server.before, "new"), count(server.after, "gone")].to_vec()
            }));
            lines.extend(table(&rows, 1));
            let more = pool.servers.len().saturating_sub(SERVERS_SHOWN);
            if more > 0 {
                lines.push(format!("  and {more} more"));
            }
        }
        lines
    }
}

fn share(moved: u64, keys: MovedOf) -> String {
    percent(moved as f64 / keys.of.max(1) as f64)
}

fn ways(pool: &PoolRemap) -> String {
    let tell = |way: &Way| match &way.key {
        Some(key) => format!("{} by {key}", way.scheduler),
        None => format!("{}, which goes by no key", way.scheduler),
    };
    match (&pool.before, &pool.after) {
        (Some(before), Some(after)) if before == after => tell(before),
        (Some(before), Some(after)) => format!("{} before, {} after", tell(before), tell(after)),
        (Some(before), None) => format!("removed ({})", tell(before)),
        (None, Some(after)) => format!("new ({})", tell(after)),
        (None, None) => String::new(),
    }
}
