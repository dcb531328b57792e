//! The file of `pointsman-agent --config`: the services of a machine, what they need, and how they are started and stopped.
//! The same language as rule files, with other nodes.
//!
//! It refuses commands as one text: a command is a program and its arguments, and no shell ever sees them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::form::{Kind, NodeForm, Setting};
use super::node::{Node, Value};
use super::problem::{ConfigErrors, Problem, Problems};
use super::source::Source;
use super::{shape, syntax};
use crate::pure::feedback::own_check::CheckUrl;
use crate::pure::service_tree::SERVICES_MAX;

/// How long a service has to start, to stop, and to be well, where its file says nothing.
pub const TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

const WORD: Kind = Kind::Text { what: "a program, or one of its arguments" };
static START: NodeForm = NodeForm::new("start", r#"start "systemctl" "start" "app""#).taking(&[WORD], 1).open();
static STOP: NodeForm = NodeForm::new("stop", r#"stop "systemctl" "stop" "app""#).taking(&[WORD], 1).open();
static ALERT: NodeForm = NodeForm::new("alert", r#"alert "/usr/local/bin/tell""#).taking(&[WORD], 1).open();
static SERVICE: NodeForm = NodeForm::new(
    "service",
    r#"service "app" { port 8080; start "systemctl" "start" "app"; stop "systemctl" "stop" "app" }"#,
)
.taking(&[Kind::Text { what: "the service's name" }], 1)
.with(&[
    Setting::list("needs", Kind::Text { what: "the name of a service above" }),
    Setting::one("port", Kind::Whole { min: 1, max: 65_535 }),
    Setting::text("process", "a process's name"),
    Setting::text("pid-file", "a file"),
    Setting::text("check", "a URL such as \"http://127.0.0.1:8080/health\""),
    Setting::one("timeout", Kind::Duration { min: TIMEOUT_MIN, max: TIMEOUT_MAX }),
])
.holding(&[&START, &STOP])
.repeated();
static AGENT_FORM: NodeForm = NodeForm::new("an agent's file", "").holding(&[&SERVICE, &ALERT]);

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// How a process is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessSource {
    /// Its number stands in this file.
    PidFile(PathBuf),
    /// It is called so.
    Name(String),
}

/// A service of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// The places of those that it needs, all of them above.
    pub needs: Vec<usize>,
    /// The port that something listens on while it runs.
    pub port: Option<u16>,
    /// The process that there is while it runs.
    pub process: Option<ProcessSource>,
    /// What it answers while it is well.
    pub check: Option<CheckUrl>,
    /// How long starting, stopping and being well again may take, each.
    pub timeout: Duration,
    /// How it is started.
    pub start: CommandLine,
    /// How it is stopped.
    pub stop: CommandLine,
}

/// What an agent's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentFile {
    /// The services in file order.
    pub services: Vec<ServiceConfig>,
    /// Run when a service has failed, is restored or given up, with its name and one of these words as arguments.
    pub alert: Option<CommandLine>,
}

/// Reads an agent's file from its text.
///
/// # Errors
/// Every error of it, in reading order.
pub fn load_agent_file(path: &Path, text: String) -> Result<AgentFile, ConfigErrors> {
    let mut problems = Problems::default();
    let source = Arc::new(Source::new(path.to_owned(), text, 0));
    let mut file = AgentFile::default();
    if let Some(document) = syntax::parse(&source, &mut problems) {
        let nodes: Vec<Node<'_>> = document.nodes().iter().map(|kdl| Node { source: &source, kdl }).collect();
        read(&nodes, &mut file, &mut problems);
    }
    match problems.into_errors() {
        None => Ok(file),
        Some(errors) => Err(errors),
    }
}

fn read(nodes: &[Node<'_>], file: &mut AgentFile, problems: &mut Problems) {
    let mut names = HashMap::new();
    for node in nodes {
        shape::check_child(*node, &AGENT_FORM, problems);
        match node.name() {
            "service" => service(*node, &mut names, file, problems),
            "alert" if file.alert.is_some() => {
                problems.add(Problem::at(&node.place(), "`alert` is given twice").label("again here"));
            }
            "alert" => file.alert = command(*node),
            _ => {}
        }
    }
}

fn service(node: Node<'_>, names: &mut HashMap<String, usize>, file: &mut AgentFile, problems: &mut Problems) {
    let Some((value, name)) = node.argument(0).and_then(|value| Some((value, value.text()?.to_owned()))) else {
        return;
    };
    if names.contains_key(&name) {
        problems.add(Problem::at(&value.place(), format!("there is a service `{name}` already")).label("taken"));
    }
    if file.services.len() == SERVICES_MAX {
        problems.add(Problem::at(&value.place(), format!("there are more than {SERVICES_MAX} services")));
    }
    let needs = node.settings("needs").filter_map(|value| needed(value, names, problems)).collect();
    let start = node.child("start").and_then(command);
    let stop = node.child("stop").and_then(command);
    let (port, process) = (node.setting("port").and_then(|value| value.whole()), process(node, problems));
    let check = node.setting("check").and_then(|value| check_url(value, problems));
    if node.child("start").is_none() || node.child("stop").is_none() {
        let problem = Problem::at(&value.place(), format!("`{name}` needs a `start` and a `stop`"));
        problems.add(problem.label("it could not be started anew").help(SERVICE.usage));
    }
    let has_sign = ["port", "process", "pid-file", "check"].iter().any(|name| node.setting(name).is_some());
    if !has_sign {
        let problem = Problem::at(&value.place(), format!("nothing tells whether `{name}` runs"));
        problems.add(problem.label("no sign of life").help("give it a `port`, a `process`, a `pid-file` or a `check`"));
    }
    // Those without commands have their place too, so that names below are known; the file is refused anyway.
    let nothing = || CommandLine { program: String::new(), arguments: Vec::new() };
    names.insert(name.clone(), file.services.len());
    file.services.push(ServiceConfig {
        name,
        needs,
        port,
        process,
        check,
        timeout: node.setting("timeout").and_then(|value| value.duration()).unwrap_or(TIMEOUT),
        start: start.unwrap_or_else(nothing),
        stop: stop.unwrap_or_else(nothing),
    });
}

fn needed(value: Value<'_>, names: &HashMap<String, usize>, problems: &mut Problems) -> Option<usize> {
    let name = value.text()?;
    let found = names.get(name).copied();
    if found.is_none() {
        let problem = Problem::at(&value.place(), format!("no service `{name}` stands above"));
        problems.add(problem.label("not above").help("a service stands below those that it needs"));
    }
    found
}

fn process(node: Node<'_>, problems: &mut Problems) -> Option<ProcessSource> {
    let by_file = node.setting("pid-file").and_then(|value| value.text().map(|file| value.beside(file)));
    match (by_file, node.setting("process")) {
        (Some(_), Some(value)) => {
            let problem = Problem::at(&value.place(), "its process is named twice").label("and by its `pid-file`");
            problems.add(problem.help("keep one of them"));
            None
        }
        (Some(file), None) => Some(ProcessSource::PidFile(file)),
        (None, value) => value.and_then(|value| value.text()).map(|name| ProcessSource::Name(name.to_owned())),
    }
}

fn check_url(value: Value<'_>, problems: &mut Problems) -> Option<CheckUrl> {
    match value.text()?.parse() {
        Ok(url) => Some(url),
        Err(error) => {
            problems.add(Problem::at(&value.place(), format!("{error}")).label("not such a URL"));
            None
        }
    }
}

fn command(node: Node<'_>) -> Option<CommandLine> {
    let mut words = node.arguments().filter_map(|value| value.text().map(str::to_owned));
    Some(CommandLine { program: words.next()?, arguments: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<AgentFile, ConfigErrors> {
        load_agent_file(Path::new("/etc/agent.kdl"), text.to_owned())
    }

    #[test]
    fn services_are_read_with_what_they_need() {
        let file = load(
            r#"
            service "database" {
                pid-file "db.pid"
                start "db" "--fork"
                stop "sh" "-c" "kill $(cat db.pid)"
            }
            service "app" needs="database" port=8080 check="http://127.0.0.1:8080/" timeout="3s" {
                start "app"; stop "pkill" "app"
            }
            service "proxy" { needs "app" "database"; process "proxy"; start "proxy"; stop "pkill" "proxy" }
            alert "/bin/tell" "me"
            "#,
        )
        .unwrap();
        let words = |program: &str, arguments: &[&str]| CommandLine {
            program: program.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        };
        let [database, app, proxy] = &file.services[..] else { panic!("{file:?}") };
        assert_eq!(database.process, Some(ProcessSource::PidFile("/etc/db.pid".into())));
        assert_eq!((&database.start, database.timeout), (&words("db", &["--fork"]), TIMEOUT));
        assert_eq!((&app.needs[..], app.port, app.timeout), (&[0][..], Some(8080), Duration::from_secs(3)));
        assert_eq!(app.check, Some("http://127.0.0.1:8080/".parse().unwrap()));
        assert_eq!((&proxy.needs[..], &proxy.process), (&[1, 0][..], &Some(ProcessSource::Name("proxy".to_owned()))));
        assert_eq!(file.alert, Some(words("/bin/tell", &["me"])));
    }

    #[test]
    fn the_example_of_the_manual_loads_and_every_name_is_told_there() {
        let manual = include_str!("../../../docs/feedback.md");
        let example = manual.split("```kdl agent\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let file = load(example).unwrap();
        assert_eq!(file.services.iter().map(|service| service.needs.len()).collect::<Vec<_>>(), [0, 1, 1]);
        for name in AGENT_FORM.names().chain(SERVICE.names()) {
            assert!(manual.contains(&format!("`{name}`")) || manual.contains(&format!("`{name} ")), "{name}");
        }
    }

    #[test]
    fn every_error_is_told_at_once() {
        let errors = load(
            r#"
            service "app" needs="database" port=0 { start "app"; stop "x" }
            service "app" port=1 { start "app" }
            service "blind" { start "a"; stop "b" }
            service "twice" process="a" pid-file="b" check="ftp://x" { start "a"; stop "b" }
            servise "x"
            alert "a"
            alert "b"
            "#,
        )
        .unwrap_err();
        let told: Vec<_> = errors.problems.iter().map(|problem| problem.message().to_owned()).collect();
        for wanted in [
            "no service `database` stands above",
            "there is a service `app` already",
            "`app` needs a `start` and a `stop`",
            "nothing tells whether `blind` runs",
            "its process is named twice",
            "a check is asked for as http://ADDRESS:PORT/PATH",
            "`servise` means nothing in `an agent's file`",
            "`alert` is given twice",
        ] {
            assert!(told.iter().any(|message| message == wanted), "{wanted}: {told:#?}");
        }
        assert!(load("service {").is_err() && load("").unwrap() == AgentFile::default());
    }
}
