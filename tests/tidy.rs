//! The tidiness that people forget and a machine doesn't: which layer may use which, what each file opens with, how long
//! files and functions are, what nothing may be called, that every limit has a test, and that the manual has every reason of the access log.
//!
//! Everything is checked by path and by counting, on the text of the sources. It refuses to judge what only a reader can.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

#[path = "tidy/scan.rs"]
mod scan;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pointsman::pure::config::{LIMITS, LimitEntry};
use scan::{Kind, Source, scan};

/// The layers from the ground up, and the layers whose modules each may use, its own included.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("pure", &["base", "pure"]),
    ("shared", &["base", "pure", "shared"]),
    ("transport", &["base", "pure", "shared", "transport"]),
    ("request", &["base", "pure", "shared", "transport", "request"]),
    ("control", &["base", "pure", "shared", "transport", "control"]),
    ("operator", &["agent", "base", "pure", "shared", "transport", "request", "control", "operator"]),
    ("agent", &["base", "pure", "agent"]),
];

/// What the operator layer may use of the two I/O layers and of the agent: what a start puts together, what stops them and gives them orders.
/// What happens on a connection is none of its business.
const ORDERS: &[(&str, &[&str])] = &[
    ("request", &["worker", "listener", "process", "access_log"]),
    ("control", &["control_loop", "feedback", "inputs"]),
    ("agent", &["cli"]),
];

/// Crates that only some layers may name: sockets, runtimes, logs for none below the I/O, but `nix` for the base too, which
/// opens files, and the general HTTP library for what is not forwarding.
const CRATES: &[(&[&str], &[&str])] = &[
    (
        &["tokio", "tokio_rustls", "tokio_util", "socket2", "mio", "rustix", "libc", "h2", "hickory_resolver"],
        &["agent", "shared", "transport", "request", "control", "operator"],
    ),
    (&["nix"], &["base", "agent", "shared", "transport", "request", "control", "operator"]),
    (&["tracing", "tracing_subscriber", "log"], &["agent", "shared", "transport", "request", "control", "operator"]),
    (&["hyper", "hyper_util", "axum", "reqwest"], &["control", "operator"]),
];

/// Words that pure code has no use for: sockets, clocks and files.
const IMPURE: &[&str] = &[
    "TcpStream",
    "TcpListener",
    "TcpSocket",
    "UdpSocket",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "ToSocketAddrs",
    "Instant",
    "SystemTime",
    "wall_clock",
    "ordinary_file",
    "println",
    "eprintln",
];

/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["mod", "util", "utils", "common", "helper", "helpers", "manager", "misc", "stuff"];

/// Longest file and longest function, in lines, tests not counted.
const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 80;

/// A source file with its path below the repository's root, `/` between the parts.
struct File {
    path: String,
    text: String,
}

impl File {
    /// The layer of a file of `src`: its first folder, or its own name where it stands at the top.
    fn layer(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        match inside.split_once('/').map_or_else(|| inside.trim_end_matches(".rs"), |(folder, _)| folder) {
            "lib" => None,
            "main" | "bin" => Some("operator"),
            layer => Some(layer),
        }
    }

    /// The file's module path below the crate root: `src/a/b.rs` is two deep.
    fn module_depth(&self) -> usize {
        match self.path.as_str() {
            "src/lib.rs" | "src/main.rs" => 0,
            path => path.matches('/').count(),
        }
    }
}

/// A fault, as `path:line: what`.
type Faults = Vec<String>;

fn fault(faults: &mut Faults, file: &File, line: usize, what: impl std::fmt::Display) {
    faults.push(format!("{}:{line}: {what}", file.path));
}

/// Every Rust file of the repository, in the order of their paths.
fn all_files() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> =
        ["src", "tests", "benches", "loadtest", "fuzz"].iter().map(|name| root.join(name)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder's entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
                files.push(File { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Stems of the paths of modules that are only built for tests: `src/pure/rule/tests` for `src/pure/rule/tests.rs` and
/// everything below it.
fn test_only(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let stem = file.path.trim_end_matches(".rs");
        let folder = stem.strip_suffix("/lib").or_else(|| stem.strip_suffix("/main")).unwrap_or(stem);
        found.extend(scan(&file.text).test_modules().into_iter().map(|name| format!("{folder}/{name}")));
    }
    found
}

fn is_test_only(file: &File, test_only: &[String]) -> bool {
    let stem = file.path.trim_end_matches(".rs");
    file.path.starts_with("tests/")
        || test_only.iter().any(|module| stem == module || stem.starts_with(&format!("{module}/")))
}

fn assert_none(faults: &Faults) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The places of `source` that name a module below the crate root: index of the token, its line and the module's name.
fn crate_paths<'a>(file: &File, source: &Source<'a>) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for at in 0..source.tokens.len() {
        let is_root = source.reads(at, &["crate", "::"])
            || (file.layer() == Some("operator") && source.reads(at, &["pointsman", "::"]));
        if is_root {
            found.extend(source.names_after(at + 1));
        } else if source.reads(at, &["super", "::"]) && !(at >= 2 && source.reads(at - 2, &["super", "::"])) {
            let supers = (0..).take_while(|step| source.reads(at + 2 * step, &["super", "::"])).count();
            if supers >= file.module_depth() + source.inline_depth(at) {
                found.extend(source.names_after(at + 2 * supers - 1));
            }
        }
    }
    found
}

fn layer_faults(file: &File, faults: &mut Faults) {
    let Some(layer) = file.layer() else { return };
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return fault(faults, file, 1, format!("`{layer}` is not a layer"));
    };
    let source = scan(&file.text);
    for (at, name) in crate_paths(file, &source) {
        let line = source.tokens[at].line;
        let is_layer = LAYERS.iter().any(|(layer, _)| *layer == name);
        if !is_layer && !source.reads(at + 1, &["!"]) {
            fault(faults, file, line, format!("`crate::{name}` is in no layer"));
        } else if is_layer && !allowed.contains(&name) {
            fault(faults, file, line, format!("layer {layer} may not use layer {name}"));
        }
        let orders = ORDERS.iter().find(|(io, _)| layer == "operator" && *io == name);
        let Some((_, orders)) = orders.filter(|_| source.reads(at + 1, &["::"])) else { continue };
        for (at, used) in source.names_after(at + 1) {
            if !orders.contains(&used) {
                let line = source.tokens[at].line;
                fault(faults, file, line, format!("the operator may only start, stop and order: not {name}::{used}"));
            }
        }
    }
}

#[test]
fn a_layer_uses_only_itself_and_those_below() {
    let mut faults = Faults::new();
    all_files().iter().for_each(|file| layer_faults(file, &mut faults));
    assert_none(&faults);
}

fn crate_faults(file: &File, faults: &mut Faults) {
    let Some(layer) = file.layer() else { return };
    let source = scan(&file.text);
    let tests = source.test_items();
    for (at, token) in source.tokens.iter().enumerate() {
        if token.kind != Kind::Word || tests.iter().any(|item| item.contains(&at)) {
            continue;
        }
        let is_root = !(at > 0 && source.reads(at - 1, &["::"]))
            && (source.reads(at + 1, &["::"]) || (at > 0 && source.reads(at - 1, &["use"])));
        let banned = CRATES.iter().any(|(crates, layers)| crates.contains(&token.text) && !layers.contains(&layer));
        if is_root && banned {
            fault(faults, file, token.line, format!("layer {layer} has no {}", token.text));
        }
        let reads_clock = source.reads(at, &["now", "(", ")"]) || source.reads(at, &["time", "::", "now"]);
        if layer == "pure" && (IMPURE.contains(&token.text) || reads_clock) {
            fault(faults, file, token.line, format!("pure code has no {}", token.text));
        }
    }
}

#[test]
fn sockets_clocks_and_logs_stay_out_of_pure_code() {
    let files = all_files();
    let test_only = test_only(&files);
    let mut faults = Faults::new();
    files.iter().filter(|file| !is_test_only(file, &test_only)).for_each(|file| crate_faults(file, &mut faults));
    assert_none(&faults);
}

/// The text of the `//!` lines a file opens with.
fn header(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
}

fn is_sentence(header: &str) -> bool {
    let words = header.split_whitespace().count();
    let ends = header.contains(". ") || header.ends_with(['.', ':']);
    words >= 5 && ends && header.starts_with(|c: char| c.is_uppercase() || c == '`')
}

#[test]
fn a_module_opens_by_saying_what_it_is() {
    let mut faults = Faults::new();
    for file in &all_files() {
        if !is_sentence(&header(&file.text)) {
            fault(&mut faults, file, 1, "does not open with a `//!` header of at least a sentence");
        }
    }
    assert_none(&faults);
}

#[test]
fn files_and_functions_are_short_enough_to_read() {
    let files = all_files();
    let test_only = test_only(&files);
    let mut faults = Faults::new();
    for file in &files {
        let source = scan(&file.text);
        let is_unit_test = file.path.starts_with("src/") && is_test_only(file, &test_only);
        let lines = file.text.lines().count() - source.test_lines();
        if lines > FILE_LINES && !is_unit_test {
            fault(&mut faults, file, 1, format!("{lines} lines without its tests; the bound is {FILE_LINES}"));
        }
        for function in source.functions() {
            let lines = function.lines.len();
            if lines > FUNCTION_LINES && !is_unit_test && !source.is_in_test_item(&function) {
                let what = format!("`{}` has {lines} lines; the bound is {FUNCTION_LINES}", function.name);
                fault(&mut faults, file, function.lines.start, what);
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn names_say_what_is_inside() {
    let mut faults = Faults::new();
    for file in &all_files() {
        for part in file.path.trim_end_matches(".rs").split('/') {
            if EMPTY_NAMES.contains(&part) {
                fault(&mut faults, file, 1, format!("`{part}` says nothing of what is inside"));
            }
        }
    }
    assert_none(&faults);
}

#[test]
fn nothing_is_left_for_later() {
    let mut faults = Faults::new();
    for file in &all_files() {
        let source = scan(&file.text);
        for (line, comment) in &source.comments {
            for mark in ["TODO", "FIXME", "XXX", "HACK"] {
                if comment.contains(mark) {
                    fault(&mut faults, file, *line, format!("a comment says {mark}"));
                }
            }
        }
        for (at, token) in source.tokens.iter().enumerate() {
            if ["dbg", "todo", "unimplemented"].iter().any(|name| source.reads(at, &[name, "!"])) {
                fault(&mut faults, file, token.line, format!("`{}!` is left", token.text));
            }
        }
    }
    assert_none(&faults);
}

/// A test waits for a fact with a deadline. Only the function that does so may sleep, between two looks.
#[test]
fn tests_do_not_sleep_to_wait_for_something() {
    let files = all_files();
    let test_only = test_only(&files);
    let mut faults = Faults::new();
    for file in files.iter().filter(|file| file.path != "tests/support/deadline.rs") {
        let source = scan(&file.text);
        let tests = source.test_items();
        for (at, token) in source.tokens.iter().enumerate() {
            let is_test = is_test_only(file, &test_only) || tests.iter().any(|item| item.contains(&at));
            if is_test && source.reads(at, &["thread", "::", "sleep"]) {
                fault(&mut faults, file, token.line, "waits by sleeping");
            }
        }
    }
    assert_none(&faults);
}

/// The limits that no test is named after: one for `header-timeout` has `limit_header_timeout` in its name.
fn untested<'a>(limits: &[&'a str], tests: &[String]) -> Vec<&'a str> {
    let has_test = |limit: &&str| {
        let name = format!("limit_{}", limit.replace('-', "_"));
        tests.iter().any(|test| {
            test.match_indices(&name).any(|(at, _)| {
                let rest = &test[at + name.len()..];
                rest.is_empty() || rest.starts_with("_is_") || rest.starts_with("_over_")
            })
        })
    };
    limits.iter().filter(|limit| !has_test(limit)).copied().collect()
}

#[test]
fn every_limit_has_a_test_that_is_named_after_it() {
    let name = |entry: &LimitEntry| match entry.node {
        "limits" => entry.name.to_owned(),
        node => format!("{node}-{}", entry.name),
    };
    let limits: Vec<String> = LIMITS.iter().map(name).collect();
    let limits: Vec<&str> = limits.iter().map(String::as_str).collect();
    let end_to_end: Vec<File> =
        all_files().into_iter().filter(|file| file.path.starts_with("tests/end_to_end/")).collect();
    assert_eq!(untested(&limits, &test_names(&end_to_end)), Vec::<&str>::new());
}

/// The names of all tests of these files.
fn test_names(files: &[File]) -> Vec<String> {
    let mut names = Vec::new();
    for file in files {
        let functions = scan(&file.text).functions();
        names
            .extend(functions.into_iter().filter(|function| function.is_test).map(|function| function.name.to_owned()));
    }
    names
}

#[test]
fn a_limit_without_a_test_is_found() {
    let tests = ["limit_header_timeout_is_408".to_owned(), "limit_body_max".to_owned()];
    assert_eq!(untested(&["header-timeout", "body-max"], &tests), Vec::<&str>::new());
    assert_eq!(untested(&["header", "idle-timeout"], &tests), ["header", "idle-timeout"]);
    assert!(test_names(&all_files()).contains(&"a_limit_without_a_test_is_found".to_owned()));
}

/// The reason tokens of the access log: what functions called `reason` give back, and what is put into a record as it is.
fn reasons(files: &[File]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        let source = scan(&file.text);
        let functions: Vec<_> = source
            .functions()
            .into_iter()
            .filter(|function| function.name == "reason")
            .map(|found| found.lines)
            .collect();
        for (at, token) in source.tokens.iter().enumerate().filter(|(_, token)| token.kind == Kind::Literal) {
            let is_set = (at >= 4 && source.reads(at - 4, &["reason", "=", "Some", "("]))
                || (at >= 2 && source.reads(at - 2, &["reason", ":"]));
            if is_set || functions.iter().any(|lines| lines.contains(&token.line)) {
                found.insert(token.text.trim_matches('"').to_owned());
            }
        }
    }
    found
}

#[test]
fn the_manual_has_every_reason_of_the_access_log_and_no_other() {
    let files = all_files();
    let test_only = test_only(&files);
    let product: Vec<File> =
        files.into_iter().filter(|file| file.layer().is_some() && !is_test_only(file, &test_only)).collect();
    let manual = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")).unwrap();
    let table = manual.lines().skip_while(|line| !line.starts_with("| reason | status |")).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| `")?.split_once('`'));
    let told: BTreeSet<String> = rows.map(|(reason, _)| reason.to_owned()).collect();
    let known = reasons(&product);
    assert!(known.contains("no-rule") && known.contains("rule") && known.contains("tunnel-timeout"), "{known:?}");
    assert_eq!(told, known, "the table of docs/operations.md, and the code");
}

#[test]
fn the_scanner_knows_strings_characters_and_comments() {
    let text = r##"
/* a { /* nested */ fn not_code() { */
fn one<'a>(c: char) -> &'a str { match c { '{' | '\'' | '"' => "} \" {", _ => r#"{" } fn no() {"# } }
// fn comment() {
fn two() { let label = 'outer: loop { break 'outer b'}'; }; }
#[cfg(test)]
mod tests { use super::*; #[test] fn three() { super::super::x(); } }
#[cfg(test)]
mod outside;
trait Four { fn four(&self); fn five(&self) -> [u8; { 2 }] { [0; 2] } }
"##;
    let source = scan(text);
    let names: Vec<_> = source.functions().iter().map(|function| (function.name, function.is_test)).collect();
    assert_eq!(names, [("one", false), ("two", false), ("three", true), ("five", false)]);
    assert_eq!(source.functions()[0].lines, 3..4);
    assert_eq!(source.comments.len(), 2);
    assert_eq!(source.test_modules(), ["outside"]);
    assert_eq!(source.test_lines(), 4);
}

#[test]
fn layer_faults_are_found_however_the_path_is_written() {
    let check = |path: &str, text: &str| {
        let mut faults = Faults::new();
        layer_faults(&File { path: path.to_owned(), text: text.to_owned() }, &mut faults);
        crate_faults(&File { path: path.to_owned(), text: text.to_owned() }, &mut faults);
        faults.len()
    };
    assert_eq!(check("src/pure/rule.rs", "use crate::base::id; use super::head; fn f() { crate::pure::h1::g() }"), 0);
    assert_eq!(check("src/pure/rule.rs", "use crate::request::worker;"), 1);
    assert_eq!(check("src/pure/rule.rs", "use crate::{base::{a, b}, control::{c}, shared};"), 2);
    assert_eq!(check("src/pure/rule.rs", "use super::super::request::worker;"), 1);
    assert_eq!(check("src/pure/rule.rs", "mod tests { use super::super::head; }"), 0);
    assert_eq!(check("src/request/exchange.rs", "use crate::control::orders;"), 1);
    assert_eq!(check("src/control/probe.rs", "use crate::{request};"), 1);
    assert_eq!(check("src/operator/demo.rs", "use crate::request::{exchange, worker};"), 1);
    assert_eq!(check("src/main.rs", "use pointsman::request::exchange::run;"), 1);
    assert_eq!(check("src/helpers/x.rs", ""), 1);
    assert_eq!(check("src/pure/rule.rs", "use tokio::net::TcpStream;"), 2);
    assert_eq!(check("src/pure/rule.rs", "use std::net::{IpAddr, SocketAddr}; fn f(now: u64) { g(now) }"), 0);
    assert_eq!(check("src/pure/rule.rs", "fn f() { tracing::info!(\"x\"); crate::base::time::now(); }"), 3);
    assert_eq!(check("src/pure/rule.rs", "#[cfg(test)] mod tests { use tokio::net::TcpStream; }"), 0);
    assert_eq!(check("src/request/exchange.rs", "use hyper::Request;"), 1);
}
