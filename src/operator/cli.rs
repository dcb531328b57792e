//! The command line: words in, an exit code out. 0 done, 1 the input was wrong, 2 usage, 3 could not do it.

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use clap::{Parser, Subcommand};

use crate::operator::agent_key::{AgentKeyOptions, agent_key};
use crate::operator::demo::{DemoError, DemoOptions, demo};
use crate::operator::explain::{ExplainOptions, explain};
use crate::operator::remap::{RemapOptions, remap};
use crate::operator::run::RunError;
use crate::operator::status::{StatusOptions, status};
use crate::operator::{check, run};

/// A layer-7 switch: reads each HTTP request and sends it to the server that will answer it best.
#[derive(Debug, Parser)]
#[command(version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the proxy until SIGTERM or SIGINT.
    Run {
        /// A rule file, or a directory: all its *.kdl in name order.
        #[arg(default_value = "rules")]
        rules: PathBuf,
    },
    /// Starts built-in servers and the proxy in front of them, and says what to try.
    Demo {
        /// What can be chosen.
        #[command(flatten)]
        options: DemoOptions,
    },
    /// Says where a request would go, and why: the rule, the pool, the server, and each step before them.
    Explain {
        /// What is asked.
        #[command(flatten)]
        options: ExplainOptions,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Asks a running proxy how it is: its pools and servers, and how well keys stay together.
    Status {
        /// Whom to ask.
        #[command(flatten)]
        options: StatusOptions,
        /// Prints the answer as it came, one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Says how many keys change their server from one rule file to another, for each pool.
    Remap {
        /// What is compared.
        #[command(flatten)]
        options: RemapOptions,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Prints the keys of a server's agent, or makes the master key that they come from.
    AgentKey {
        /// Whose keys.
        #[command(flatten)]
        options: AgentKeyOptions,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Parses and validates rule files, warns, and runs every `expect`.
    Check {
        /// A rule file, or a directory: all its *.kdl in name order.
        #[arg(default_value = "rules")]
        rules: PathBuf,
    },
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_log();
    let code = match line.command {
        Command::Run { rules } => match run::run(&rules) {
            Ok(()) => 0,
            Err(error) => {
                say(&explained(&error));
                error.exit_code()
            }
        },
        Command::Demo { options } => run_demo(options),
        Command::Explain { options, json } => explain_request(&options, json),
        Command::Status { options, json } => tell_status(&options, json),
        Command::Remap { options, json } => tell_remap(&options, json),
        Command::AgentKey { options, json } => make_agent_key(&options, json),
        Command::Check { rules } => check(&rules),
    };
    ExitCode::from(code)
}

/// What went wrong with a start, in full: errors of rule files are drawn as `check` draws them.
fn explained(error: &RunError) -> String {
    match error {
        RunError::Config(errors) => check::render(&errors.problems, check::Style::Plain),
        other => other.to_string(),
    }
}

fn run_demo(options: DemoOptions) -> u8 {
    match demo(options, &mut std::io::stdout(), run::run) {
        Ok(()) => 0,
        Err(error) => {
            say(&error.to_string());
            match error {
                DemoError::Run(error) => error.exit_code(),
                DemoError::SamePort(_) => 2,
                DemoError::Port { .. }
                | DemoError::Folder(_)
                | DemoError::Certificate(_)
                | DemoError::Servers(_)
                | DemoError::Print(_) => 3,
            }
        }
    }
}

fn explain_request(options: &ExplainOptions, json: bool) -> u8 {
    let explanation = match explain(options) {
        Ok(explanation) => explanation,
        Err(error) => {
            say(error.render(style_of(&std::io::stderr())).trim_end());
            if json {
                // Who reads it has seen enough where it can't be written; the exit code says the rest.
                let _ = writeln!(std::io::stdout().lock(), "{:#}", error.json());
            }
            return 1;
        }
    };
    let text = if json {
        serde_json::to_string_pretty(&explanation).map(|text| text + "\n")
    } else {
        Ok(explanation.text(style_of(&std::io::stdout())))
    };
    print(text.map_err(std::io::Error::from))
}

fn tell_status(options: &StatusOptions, json: bool) -> u8 {
    match status(options) {
        Ok(told) => print(Ok(if json { told.json } else { told.status.text() })),
        Err(error) => {
            say(error.render(style_of(&std::io::stderr())).trim_end());
            error.exit_code()
        }
    }
}

fn tell_remap(options: &RemapOptions, json: bool) -> u8 {
    match remap(options) {
        Ok(told) if json => print(serde_json::to_string_pretty(&told).map(|text| text + "\n").map_err(Into::into)),
        Ok(told) => print(Ok(told.text())),
        Err(error) => {
            say(error.render(style_of(&std::io::stderr())).trim_end());
            if json {
                print(Ok(format!("{:#}\n", error.json())));
            }
            1
        }
    }
}

fn make_agent_key(options: &AgentKeyOptions, json: bool) -> u8 {
    match agent_key(options) {
        Ok(made) => print(Ok(made.text(json))),
        Err(error) => {
            say(&error.to_string());
            error.exit_code()
        }
    }
}

/// Prints a text on standard output. Gives back the exit code.
fn print(text: std::io::Result<String>) -> u8 {
    match text.and_then(|text| std::io::stdout().lock().write_all(text.as_bytes())) {
        Ok(()) => 0,
        // Who stops reading has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            say(&format!("can't print: {error}"));
            3
        }
    }
}

/// Colour for a terminal, unless somebody does not want it (<https://no-color.org>).
fn style_of(stream: &impl IsTerminal) -> check::Style {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if stream.is_terminal() && !is_unwanted { check::Style::Colour } else { check::Style::Plain }
}

fn check(rules: &std::path::Path) -> u8 {
    let report = check::check(rules);
    say(&report.render(check::Style::Plain));
    u8::from(!report.is_good())
}

/// Messages for the operator go to standard error.
fn start_log() {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        // Where nobody takes them, there is nobody to tell of it either: that must not end the process.
        .log_internal_errors(false)
        // What libraries say of what their peers send has no bound.
        .with_filter(Targets::new().with_target("pointsman", tracing::Level::INFO));
    tracing_subscriber::registry().with(lines).init();
}

fn say(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "{text}");
}
