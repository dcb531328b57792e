//! A status as text for people: the process in a few lines, then each pool with a table of its servers and, where it goes by
//! a key, what is known of its keys. Zeros of what should be zero are left out; nothing that came from a request reaches the
//! terminal as a control character.

use super::control::AvailabilityStatus;
use super::heard::{AgentCheckStatus, ReportsStatus};
use super::report::{LocalityStatus, PoolStatus, ProcessStatus, ServerStatus, Status, TableStatus, TopKey};

/// How many of the hottest keys are shown.
const TOP_KEYS_SHOWN: usize = 5;

impl Status {
    /// For people.
    pub fn text(&self) -> String {
        let mut lines = process_lines(&self.process);
        for pool in &self.pools {
            lines.push(String::new());
            lines.extend(pool_lines(pool));
        }
        let mut text = String::new();
        for line in lines {
            for letter in line.trim_end().chars() {
                if letter.is_control() {
                    text.extend(letter.escape_default());
                } else {
                    text.push(letter);
                }
            }
            text.push('\n');
        }
        text
    }
}

fn process_lines(process: &ProcessStatus) -> Vec<String> {
    let mut lines = vec![format!(
        "pointsman {}, process {}, up for {}: {}, {} of {} connections",
        process.version,
        process.pid,
        span(process.uptime_seconds),
        counted(process.workers as u64, "worker"),
        process.connections,
        process.connections_max,
    )];
    let log = process.access_log.unwrap_or_default();
    let troubles = [
        (process.panics, "panics were caught"),
        (process.accept_errors, "accepts failed"),
        (process.tls_handshakes_failed, "TLS handshakes failed"),
        (process.proxy_headers_refused, "connections were closed for their PROXY header"),
        (process.http2_streams_refused, "HTTP/2 streams were refused for `streams-max`"),
        (process.http2_floods, "HTTP/2 connections were ended for flooding"),
        (process.http2_errors, "HTTP/2 connections were ended for breaking the protocol"),
        (log.dropped, "lines of the access log were lost"),
        (log.errors, "writes of the access log failed"),
        (process.alerts.failed, "alerts did not arrive"),
        (process.alerts.dropped, "alerts were dropped because too many waited"),
        // A worker holds the one that it last looked at.
        (process.snapshots_alive.saturating_sub(process.workers as u64 + 1), "earlier snapshots are still held"),
    ];
    lines.extend(process.feedback.iter().flat_map(ReportsStatus::lines));
    lines.extend(process.agent_checks.iter().map(AgentCheckStatus::line));
    lines.extend(troubles.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("  {count} {what}")));
    lines
}

fn pool_lines(pool: &PoolStatus) -> Vec<String> {
    let by = pool.key.as_ref().map(|key| format!(" by {key}")).unwrap_or_default();
    let panic = if pool.in_panic { ", in panic: suspicion is ignored" } else { "" };
    let servers = counted(pool.servers.len() as u64, "server");
    let check = pool.check.as_ref().map(|check| format!(", checked by {check}")).unwrap_or_default();
    let mut lines = vec![format!("pool `{}`: {}{by}, {servers}{check}{panic}", pool.name, pool.scheduler)];
    lines.extend(table(&server_rows(pool), 2));
    if let Some(queue) = &pool.queue {
        let ends = [(queue.turned_away, "turned away"), (queue.timed_out, "in vain"), (queue.left, "left")];
        let ends = ends.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
        let (waiting, max, waited) = (queue.waiting, queue.max, queue.waited);
        lines.push(format!("  queue: {waiting} of {max} wait, {waited} have{}", ends.collect::<String>()));
    }
    if let Some(table) = &pool.persistence {
        lines.push(format!("  clients that belong to a server: {}", table_text(table)));
    }
    lines.extend(pool.locality.iter().flat_map(locality_lines));
    lines.extend(control_lines(pool));
    lines
}

/// What control knows of those that failed, or are not well.
fn control_lines(pool: &PoolStatus) -> Vec<String> {
    let mut lines = Vec::new();
    let has_failed = |status: &AvailabilityStatus| status.failures > 0;
    if let Some(availability) = pool.availability.filter(has_failed) {
        lines.push(format!("  available: {}", availability.text()));
    }
    for server in &pool.servers {
        if let Some(availability) = server.availability.filter(has_failed) {
            lines.push(format!("  {} available: {}", server.name, availability.text()));
        }
        if let Some(because) = server.because.as_ref().filter(|_| server.state != "up") {
            lines.push(format!("  {} is {}: {because}", server.name, server.state));
        }
        if let Some(last) = server.evidence.last().filter(|_| server.state != "up") {
            lines.push(format!("    last seen: {}", last.text()));
        }
        if let Some(feedback) = &server.feedback {
            lines.push(format!("  {} reports: {}", server.name, feedback.text()));
        }
        lines.extend(server.recovery.iter().flat_map(|recovery| recovery.lines(&server.name)));
    }
    lines
}

/// A column: its heading, what it has of a server, and whether it is left out where no server has anything in it.
type Column = (&'static str, fn(&ServerStatus) -> String, bool);

const COLUMNS: &[Column] = &[
    ("server", |server| server.name.clone(), false),
    ("state", state, false),
    ("weight", weight, false),
    ("in flight", in_flight, false),
    ("requests", |server| server.requests.to_string(), false),
    ("1xx", |server| some(server.answers.informational), true),
    ("2xx", |server| some(server.answers.success), false),
    ("3xx", |server| some(server.answers.redirection), true),
    ("4xx", |server| some(server.answers.client_error), true),
    ("5xx", |server| some(server.answers.server_error), true),
    ("failed", |server| some(server.failures.total()), true),
    ("retries", |server| some(server.retries), true),
    ("aborted", |server| some(server.client_aborts), true),
    ("to server", |server| bytes(server.bytes_to_server), false),
    ("to client", |server| bytes(server.bytes_to_client), false),
    ("latency", |server| server.latency_us.map(micros).unwrap_or_default(), true),
    ("capacity", |server| server.capacity_per_second.map(|rate| format!("{rate:.1}/s")).unwrap_or_default(), true),
    ("run queue", |server| server.run_queue.map(|length| length.to_string()).unwrap_or_default(), true),
    ("keys", |server| server.keys.map(|keys| keys.to_string()).unwrap_or_default(), true),
];

fn state(server: &ServerStatus) -> String {
    let backup = if server.backup { ", backup" } else { "" };
    format!("{}{backup}", server.state)
}

fn server_rows(pool: &PoolStatus) -> Vec<Vec<String>> {
    let mut rows = vec![Vec::new(); pool.servers.len() + 1];
    for (heading, cell, is_optional) in COLUMNS {
        let cells: Vec<String> = pool.servers.iter().map(cell).collect();
        if *is_optional && cells.iter().all(String::is_empty) {
            continue;
        }
        let column = std::iter::once((*heading).to_owned()).chain(cells);
        rows.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
    }
    rows
}

/// The rows with their columns in line: the first `words` to the left, the others, numbers, to the right.
pub(in crate::operator) fn table(rows: &[Vec<String>], words: usize) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell_width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(cell_width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str("  ");
            line.push_str(&if column < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
        }
        line
    };
    rows.iter().map(line).collect()
}

fn locality_lines(locality: &LocalityStatus) -> Vec<String> {
    let mut lines = Vec::new();
    let replicas = locality.replicas_per_key.map(|replicas| format!(", at {replicas:.2} servers each"));
    lines.push(format!("  keys: {}{}", locality.distinct_keys, replicas.unwrap_or_default()));
    if let Some(rate) = locality.hit_rate {
        let penalty = locality.miss_penalty_us.map(|penalty| format!("; a miss takes {} longer", micros(penalty)));
        let told = locality.hits + locality.misses;
        lines.push(format!("  hits: {} of {told} answers that say so{}", percent(rate), penalty.unwrap_or_default()));
    }
    if let Some(table) = &locality.table {
        lines.push(format!("  table: {} keys", table_text(table)));
    }
    if let Some(moved) = &locality.moved {
        let share = percent(moved.keys as f64 / moved.of.max(1) as f64);
        lines.push(format!("  moved by the last change: {} of {} keys, {share}", moved.keys, moved.of));
    }
    for (number, TopKey { name, hash, share }) in locality.top_keys.iter().take(TOP_KEYS_SHOWN).enumerate() {
        let label = if number == 0 { "hottest:" } else { "        " };
        lines.push(format!("  {label} {:>6} {}", percent(*share), name.as_ref().unwrap_or(hash)));
    }
    lines
}

/// `1000 of 65536`, and how many were forgotten.
fn table_text(table: &TableStatus) -> String {
    let forgotten = if table.evictions > 0 { format!(" ({} made room)", table.evictions) } else { String::new() };
    format!("{} of {}{forgotten}", table.keys, table.capacity)
}

/// `2 (now 0.50)` where the weight now is another.
fn weight(server: &ServerStatus) -> String {
    if (server.share - f64::from(server.weight)).abs() < 0.005 {
        server.weight.to_string()
    } else {
        format!("{} (now {:.2})", server.weight, server.share)
    }
}

fn in_flight(server: &ServerStatus) -> String {
    server.max.map_or_else(|| server.in_flight.to_string(), |max| format!("{} of {max}", server.in_flight))
}

/// Nothing for zero.
fn some(count: u64) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

pub(in crate::operator) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// In the largest unit of which there is one.
fn bytes(count: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count as f64 / *unit as f64),
        None => format!("{count} B"),
    }
}

fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

/// `2d 3h`: the two largest units.
pub(super) fn span(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let parts = units.iter().scan(seconds, |left, (size, unit)| {
        let count = *left / size;
        *left %= size;
        Some((count, *unit))
    });
    let shown: Vec<String> =
        parts.skip_while(|(count, _)| *count == 0).take(2).map(|(count, unit)| format!("{count}{unit}")).collect();
    if shown.is_empty() { "0s".to_owned() } else { shown.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Answers, MovedKeys, QueueStatus};
    use super::*;

    fn server(name: &str) -> ServerStatus {
        ServerStatus {
            name: name.to_owned(),
            state: "up".to_owned(),
            weight: 2,
            share: 2.0,
            in_flight: 3,
            requests: 1_234,
            answers: Answers { success: 1_200, server_error: 4, ..Answers::default() },
            bytes_to_server: 300,
            bytes_to_client: 3 << 20,
            latency_us: Some(1_540),
            keys: Some(512),
            ..ServerStatus::default()
        }
    }

    #[test]
    fn people_get_what_they_want_to_know_in_lines() {
        let locality = LocalityStatus {
            distinct_keys: 1_000,
            replicas_per_key: Some(1.06),
            hits: 900,
            misses: 100,
            hit_rate: Some(0.9),
            miss_penalty_us: Some(9_000),
            top_keys: vec![
                TopKey { name: Some("/a\u{1b}[31m".to_owned()), hash: "00".to_owned(), share: 0.123 },
                TopKey { name: None, hash: "61dbaf86a182925a".to_owned(), share: 0.02 },
            ],
            table: Some(TableStatus { keys: 1_000, capacity: 65_536, evictions: 0 }),
            moved: Some(MovedKeys { keys: 100, of: 1_000 }),
        };
        let recovering = ServerStatus {
            state: "recovering".to_owned(),
            backup: true,
            share: 0.5,
            max: Some(8),
            ..server("images-10")
        };
        let pool =
            |name: &str| PoolStatus { name: name.to_owned(), scheduler: "wlc".to_owned(), ..PoolStatus::default() };
        let keyed = PoolStatus {
            scheduler: "cbr".to_owned(),
            key: Some("path".to_owned()),
            in_panic: true,
            queue: Some(QueueStatus { waiting: 2, max: 1_024, waited: 70, timed_out: 1, ..QueueStatus::default() }),
            persistence: Some(TableStatus { keys: 5, capacity: 64, evictions: 9 }),
            servers: vec![server("images-1"), recovering],
            locality: Some(locality),
            ..pool("images")
        };
        let empty = PoolStatus { check: Some("http GET /health".to_owned()), ..pool("empty") };
        let process = ProcessStatus {
            version: "0.1.0".to_owned(),
            pid: 7,
            uptime_seconds: 90_061,
            workers: 1,
            connections: 3,
            connections_max: 500,
            snapshots_alive: 1,
            panics: 2,
            ..ProcessStatus::default()
        };
        let status = Status { process, pools: vec![keyed, empty] };
        insta::assert_snapshot!(status.text(), @r#"
        pointsman 0.1.0, process 7, up for 1d 1h: 1 worker, 3 of 500 connections
          2 panics were caught

        pool `images`: cbr by path, 2 servers, in panic: suspicion is ignored
          server     state                     weight  in flight  requests   2xx  5xx  to server  to client  latency  keys
          images-1   up                             2          3      1234  1200    4      300 B    3.0 MiB   1.5 ms   512
          images-10  recovering, backup  2 (now 0.50)     3 of 8      1234  1200    4      300 B    3.0 MiB   1.5 ms   512
          queue: 2 of 1024 wait, 70 have, 1 in vain
          clients that belong to a server: 5 of 64 (9 made room)
          keys: 1000, at 1.06 servers each
          hits: 90.0 % of 1000 answers that say so; a miss takes 9.0 ms longer
          table: 1000 of 65536 keys
          moved by the last change: 100 of 1000 keys, 10.0 %
          hottest: 12.3 % /a\u{1b}[31m
                    2.0 % 61dbaf86a182925a

        pool `empty`: wlc, 0 servers, checked by http GET /health
          server  state  weight  in flight  requests  2xx  to server  to client
        "#);
    }

    #[test]
    fn spans_and_sizes_read_well() {
        let spans = [0, 59, 61, 3_600, 90_061].map(span);
        assert_eq!(spans, ["0s", "59s", "1m 1s", "1h 0m", "1d 1h"]);
        assert_eq!([0, 1_023, 1_024, 5 << 40].map(bytes), ["0 B", "1023 B", "1.0 KiB", "5.0 TiB"]);
        assert_eq!([0, 999, 1_540, 2_000_000].map(micros), ["0 µs", "999 µs", "1.5 ms", "2.0 s"]);
    }
}
