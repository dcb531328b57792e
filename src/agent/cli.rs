//! The agent's command line. Exit codes: 0 done, 1 the input was wrong, 2 usage, 3 could not do it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use tracing::{info, warn};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::agent::agent_loop::{Agent, wall_clock};
use crate::agent::given_file::read_given;
use crate::agent::liveness::Liveness;
use crate::agent::measure::{Cgroup, Measure, MeasureOptions, NoCgroup, Scope};
use crate::agent::own_check::OwnCheck;
use crate::agent::services::Services;
use crate::agent::speaker::{PEERS_MAX, Speaker};
use crate::agent::state_log::StateLog;
use crate::base::units::{Bytes, parse_size};
use crate::pure::config::ConfigErrors;
use crate::pure::config::agent_file::{AgentFile, ProcessSource, load_agent_file};
use crate::pure::feedback::keys::{AgentKeys, KeyTextError};
use crate::pure::feedback::own_check::CheckUrl;
use crate::pure::feedback::pacing::{Mode, Pacing};
use crate::pure::feedback::wire::ServerName;
use crate::pure::service_tree::TreeError;

/// The largest key file and the largest configuration, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// Measures a server of a pool and tells the balancer how it is.
#[derive(Debug, Parser)]
#[command(name = "pointsman-agent", version, about)]
struct Options {
    /// Where the balancer listens for reports, as IP:PORT; may be given for several balancers.
    #[arg(long, required = true, value_name = "ADDR")]
    report_to: Vec<SocketAddr>,
    /// The file with what `pointsman agent-key` printed for this server.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// The server's name in the rules, as POOL/NAME.
    #[arg(long, value_name = "POOL/NAME")]
    server: ServerName,
    /// The port that the service listens on.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    service_port: u16,
    /// The file with the service's process number: that process and its descendants are measured.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["process", "cgroup"])]
    pid_file: Option<PathBuf>,
    /// The name of the service's process: it and its descendants are measured.
    #[arg(long, value_name = "NAME", conflicts_with = "cgroup")]
    process: Option<String>,
    /// The service's cgroup, as a path below /sys/fs/cgroup: it is measured.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// The most connections that the service takes: with as many it is overloaded.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections_max: Option<u32>,
    /// What its disks can read and write in a second, such as 500MiB: without it there is no figure for disks.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    disk_rate: Option<Bytes>,
    /// What its network carries each way in a second, such as 125MiB; else what the interfaces say.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    network_rate: Option<Bytes>,
    /// A URL that the service answers well while it is well, such as http://127.0.0.1:8080/health.
    #[arg(long, value_name = "URL")]
    check: Option<CheckUrl>,
    /// A file of services, with what they need and how they are started and stopped.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// While this file exists, the service wants no requests, and nothing is started anew.
    #[arg(long, value_name = "FILE")]
    maintenance_file: Option<PathBuf>,
    /// Reports by the rules of the papers: signs of life every connections ÷ connections-max × 2 s, figures when they changed.
    #[arg(long)]
    classic: bool,
}

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
enum AgentError {
    /// A file can't be read.
    #[error("{}: {cause}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The key file is none.
    #[error("the key {}: {cause}", .file.display())]
    Key {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: KeyTextError,
    },
    /// The key is another server's.
    #[error("the key is that of `{key}`, and this agent speaks for `{server}`")]
    OtherKey {
        /// Whose key it is.
        key: ServerName,
        /// Whom the agent was to speak for.
        server: ServerName,
    },
    /// There are too many balancers.
    #[error("an agent speaks to {PEERS_MAX} balancers at most")]
    Balancers,
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Its services are no tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// There is no such cgroup.
    #[error(transparent)]
    Cgroup(#[from] NoCgroup),
    /// The system has no socket, no signals or no /proc.
    #[error("the system refuses: {0}")]
    System(#[from] std::io::Error),
}

impl AgentError {
    const fn exit_code(&self) -> u8 {
        match self {
            Self::System(_) => 3,
            Self::File { .. }
            | Self::Key { .. }
            | Self::OtherKey { .. }
            | Self::Balancers
            | Self::Config(_)
            | Self::Tree(_)
            | Self::Cgroup(_) => 1,
        }
    }
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_log();
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(options: Options) -> Result<(), AgentError> {
    if options.report_to.len() > PEERS_MAX {
        return Err(AgentError::Balancers);
    }
    let keys = read_keys(&options.key_file, &options.server)?;
    let file = match &options.config {
        Some(path) => load_agent_file(path, read_file(path)?)?,
        None => AgentFile::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let boot = wall_clock();
        let mode = if options.classic { Mode::Classic } else { Mode::Promised };
        let (scope, process) = watched(&options)?;
        let services = if file.services.is_empty() { None } else { Some(Services::watch(file)?) };
        let (speaker, arrivals) = Speaker::new(keys, &options.report_to, boot);
        let measured = MeasureOptions {
            port: options.service_port,
            connections_max: options.connections_max,
            disk_rate: options.disk_rate.map(|rate| rate.0 as f64),
            network_rate: options.network_rate.map(|rate| rate.0 as f64),
        };
        info!("speaking for {} to {:?}", options.server, options.report_to);
        let agent = Agent {
            speaker,
            pacing: Pacing::new(mode, boot.0),
            measure: Measure::open(measured, scope)?,
            process,
            check: options.check.map(OwnCheck::begin),
            services,
            maintenance_file: options.maintenance_file,
            restarting: None,
            log: StateLog::default(),
        };
        Ok(tokio::spawn(agent.run(arrivals)).await.map_err(std::io::Error::from)??)
    })
}

/// What is measured, and which process has to live.
fn watched(options: &Options) -> Result<(Scope, Option<Liveness>), NoCgroup> {
    Ok(match (&options.pid_file, &options.process, &options.cgroup) {
        (Some(file), ..) => (Scope::Processes, Some(Liveness::of(ProcessSource::PidFile(file.clone())))),
        (None, Some(name), _) => (Scope::Processes, Some(Liveness::of(ProcessSource::Name(name.clone())))),
        (None, None, Some(path)) => (Scope::Cgroup(Box::new(Cgroup::open(path)?)), None),
        (None, None, None) => (Scope::Host, None),
    })
}

fn read_keys(file: &Path, server: &ServerName) -> Result<AgentKeys, AgentError> {
    let text = read_file(file)?;
    let keys = AgentKeys::from_text(&text).map_err(|cause| AgentError::Key { file: file.to_owned(), cause })?;
    if keys.server() != server {
        return Err(AgentError::OtherKey { key: keys.server().clone(), server: server.clone() });
    }
    if std::fs::metadata(file).is_ok_and(|facts| facts.mode() & 0o004 != 0) {
        warn!("everybody on this machine can read the key {}", file.display());
    }
    Ok(keys)
}

fn read_file(file: &Path) -> Result<String, AgentError> {
    read_given(file, FILE_MAX).map_err(|cause| AgentError::File { file: file.to_owned(), cause })
}

/// Messages for the operator go to standard error.
fn start_log() {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .log_internal_errors(false)
        .with_filter(Targets::new().with_target("pointsman", tracing::Level::INFO));
    tracing_subscriber::registry().with(lines).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_manual_has_every_option_and_no_other() {
        let manual = include_str!("../../docs/feedback.md");
        let command = Options::command();
        let options: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let rows = manual.lines().filter_map(|line| line.strip_prefix("| `--"));
        let told: Vec<_> = rows.filter_map(|row| row.split(['`', ' ']).next()).collect();
        assert_eq!(told, options.into_iter().filter(|name| !["help", "version"].contains(name)).collect::<Vec<_>>());
    }

    #[test]
    fn the_command_line_is_well_made() {
        Options::command().debug_assert();
    }
}
