//! One record as one line, in each of the formats.
//!
//! JSON has its fields in a fixed order and leaves out what is not there. Durations are whole microseconds. It refuses to
//! write more than [`TEXT_MAX`] bytes of any text that came from outside.

use std::time::Duration;

use crate::request::access_log::AccessRecord;
use crate::request::access_log::civil::CivilClock;
use crate::request::access_log::text::{Escape, push_address, push_micros, push_name, push_number, push_text};

/// The most bytes of one text that are written, before escaping; `...` stands for the rest.
pub const TEXT_MAX: usize = 2048;

/// No line is longer, in bytes: eight texts from outside of which every byte is escaped, and the names of rule files.
pub const LINE_MAX: usize = 8 * 6 * TEXT_MAX + 16 * 1024;

/// The most bytes of a name from a rule file.
const NAME_MAX: usize = 256;

/// Appends the record as a JSON object and a line feed. `dropped_before`: how many lines were lost since the last.
pub(crate) fn push_json(line: &mut Vec<u8>, record: &AccessRecord<'_>, clock: &mut CivilClock, dropped_before: u64) {
    let (second, micros) = clock.read(record.time);
    line.extend_from_slice(b"{\"time\":\"");
    line.extend_from_slice(second.as_bytes());
    line.push(b'.');
    push_micros(line, micros);
    line.extend_from_slice(b"Z\",\"client\":\"");
    push_address(line, record.client);
    line.extend_from_slice(b"\",\"listener\":\"");
    push_name(line, record.listener, NAME_MAX);
    line.extend_from_slice(b"\",\"protocol\":\"");
    line.extend_from_slice(record.protocol.as_bytes());
    line.extend_from_slice(b"\",\"method\":\"");
    push_text(line, record.method, TEXT_MAX, Escape::Json);
    line.extend_from_slice(b"\",\"host\":\"");
    push_text(line, record.host, TEXT_MAX, Escape::Json);
    line.extend_from_slice(b"\",\"path\":\"");
    push_text(line, record.path, TEXT_MAX, Escape::Json);
    line.extend_from_slice(b"\",\"status\":");
    push_number(line, record.status.into());
    line.extend_from_slice(b",\"bytes_out\":");
    push_number(line, record.bytes_out);
    line.extend_from_slice(b",\"bytes_in\":");
    push_number(line, record.bytes_in);
    line.extend_from_slice(b",\"total_us\":");
    push_number(line, micros_of(record.total));
    push_json_time(line, b",\"connect_us\":", record.connect);
    push_json_time(line, b",\"first_byte_us\":", record.first_byte);
    push_json_name(line, b",\"rule\":\"", record.rule);
    push_json_name(line, b",\"pool\":\"", record.pool);
    push_json_name(line, b",\"server\":\"", record.server);
    line.extend_from_slice(b",\"attempts\":");
    push_number(line, record.attempts.into());
    push_json_name(line, b",\"reason\":\"", record.reason);
    push_json_text(line, b",\"request_id\":\"", record.request_id);
    push_json_name(line, b",\"tls\":\"", record.tls);
    push_json_later(line, record);
    if dropped_before > 0 {
        line.extend_from_slice(b",\"dropped_before\":");
        push_number(line, dropped_before);
    }
    line.extend_from_slice(b"}\n");
}

/// The fields that most records do not have.
#[inline]
fn push_json_later(line: &mut Vec<u8>, record: &AccessRecord<'_>) {
    push_json_time(line, b",\"queue_us\":", record.queue);
    push_json_text(line, b",\"query\":\"", record.query);
    push_json_text(line, b",\"client_subject\":\"", record.client_subject);
    if let Some(decision) = record.decision {
        line.extend_from_slice(b",\"decision\":");
        push_number(line, decision);
    }
    if let Some(hash) = record.key_hash {
        // As text: numbers above 2⁵³ do not survive every reader of JSON.
        line.extend_from_slice(b",\"key_hash\":\"");
        for shift in (0..16).rev() {
            let digit = (hash >> (shift * 4) & 0xF) as u8;
            line.push(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
        }
        line.push(b'"');
    }
    push_json_text(line, b",\"cache_status\":\"", record.cache_status);
}

#[inline]
fn push_json_time<const N: usize>(line: &mut Vec<u8>, label: &[u8; N], time: Option<Duration>) {
    if let Some(time) = time {
        line.extend_from_slice(label);
        push_number(line, micros_of(time));
    }
}

#[inline]
fn push_json_name<const N: usize>(line: &mut Vec<u8>, label: &[u8; N], name: Option<&str>) {
    if let Some(name) = name {
        line.extend_from_slice(label);
        push_name(line, name, NAME_MAX);
        line.push(b'"');
    }
}

#[inline]
fn push_json_text<const N: usize>(line: &mut Vec<u8>, label: &[u8; N], text: Option<&[u8]>) {
    if let Some(text) = text {
        line.extend_from_slice(label);
        push_text(line, text, TEXT_MAX, Escape::Json);
        line.push(b'"');
    }
}

fn micros_of(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into())
}

/// Appends the record in the combined format: `CLIENT - - [TIME] "REQUEST" STATUS BYTES "REFERER" "USER-AGENT"`.
pub(crate) fn push_combined(line: &mut Vec<u8>, record: &AccessRecord<'_>, clock: &mut CivilClock) {
    push_address(line, record.client);
    line.extend_from_slice(b" - - [");
    let (second, _) = clock.read(record.time);
    line.extend_from_slice(second.as_bytes());
    line.extend_from_slice(b" +0000] \"");
    if !record.method.is_empty() {
        push_text(line, record.method, TEXT_MAX, Escape::Combined);
        line.push(b' ');
        push_text(line, record.path, TEXT_MAX, Escape::Combined);
        if let Some(query) = record.query {
            line.push(b'?');
            push_text(line, query, TEXT_MAX, Escape::Combined);
        }
        line.push(b' ');
        line.extend_from_slice(record.protocol.as_bytes());
    }
    line.extend_from_slice(b"\" ");
    push_number(line, record.status.into());
    line.push(b' ');
    push_number(line, record.bytes_out);
    line.extend_from_slice(b" \"");
    push_text(line, record.referer.unwrap_or(b"-"), TEXT_MAX, Escape::Combined);
    line.extend_from_slice(b"\" \"");
    push_text(line, record.user_agent.unwrap_or(b"-"), TEXT_MAX, Escape::Combined);
    line.extend_from_slice(b"\"\n");
}

#[cfg(test)]
mod tests;
