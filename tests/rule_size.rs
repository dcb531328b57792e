//! Large rule files: they load, every name is found, and errors in each of thousands of lines cost no more than the lines.

use std::fmt::Write;
use std::time::Duration;

use pointsman::operator::check::{Style, render};
use pointsman::pure::config::load_text;

/// The time that this process has had a processor for, the parser's thread included: others on the machine don't add to it.
fn processor_time() -> Duration {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID);
    now.map_or(Duration::ZERO, Duration::from)
}

fn large() -> String {
    let mut text = String::new();
    for port in 0..1024 {
        let _ = writeln!(text, "listen \"127.0.0.1:{}\" {{ limits {{ idle-timeout \"5s\" }} }}", 20_000 + port);
        let _ = writeln!(
            text,
            "pool \"p{port}\" {{ server \"a\" \"10.0.0.1:9000\" weight=2; server \"b\" \"10.0.0.2:9000\" }}"
        );
    }
    text.push_str("pool \"wide\" {\n");
    for server in 0..5000 {
        let _ = writeln!(
            text,
            "    server \"s{server}\" \"10.1.{}.{}:9000\" weight={}",
            server / 250,
            server % 250,
            server % 7
        );
    }
    text.push_str("}\n");
    for rule in 0..1024 {
        let _ = writeln!(
            text,
            "rule host=\"h{rule}.test\" path=\"/x/{{id}}\" use=\"p{rule}\" listen=\"127.0.0.1:{}\"",
            20_000 + rule
        );
        let _ = writeln!(
            text,
            "expect \"GET http://h{rule}.test/x/1\" use=\"p{rule}\" listen=\"127.0.0.1:{}\"",
            20_000 + rule
        );
    }
    text.push_str("rule use=\"wide\"\n");
    text
}

#[test]
fn a_thousand_listeners_and_pools_and_a_pool_of_five_thousand_load() {
    let text = large();
    let start = processor_time();
    let config = load_text(&text).unwrap();
    let took = processor_time().saturating_sub(start);
    println!("{} KiB loaded in {took:?}", text.len() / 1024);
    assert_eq!((config.listeners.len(), config.pools.len(), config.rules.len()), (1024, 1025, 1025));
    assert_eq!(config.pools[1024].servers.len(), 5000);
    assert!(cfg!(debug_assertions) || took.as_secs_f64() < 1.0, "{took:?}");
}

/// Compared with the time for the same lines when they are right, so that no machine is too slow for this test.
#[test]
fn a_mistake_in_every_line_is_told_in_due_time() {
    let good = large();
    let bad = good.replace("weight=", "wieght=").replace("use=\"p", "use=\"q").replace("idle-timeout", "idle-timeuot");
    let start = processor_time();
    load_text(&good).unwrap();
    let loaded = processor_time().saturating_sub(start);
    let start = processor_time();
    let errors = load_text(&bad).unwrap_err();
    let told = processor_time().saturating_sub(start);
    let shown = render(&errors.problems, Style::Plain);
    let drawn = processor_time().saturating_sub(start);
    println!(
        "good {loaded:?}, bad {told:?}, {} problems drawn {drawn:?}, {} KiB",
        errors.problems.len(),
        shown.len() / 1024
    );
    assert_eq!(errors.problems.len(), 1024 + 1024 + 5000 + 2 * 1024);
    assert!(told < loaded * 10, "{loaded:?} {told:?}");
}
