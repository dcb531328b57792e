//! The machine under the measurement: the tools it has, its cores, its limits, and the facts that a table needs to be read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use crate::accounting::{self, CoreTicks};
use crate::clock;
use crate::failure::{Failure, Outcome, While};

/// Debian's package for each tool.
const PACKAGES: [(&str, &str); 7] = [
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("valgrind", "valgrind"),
    ("taskset", "util-linux"),
    ("setpriv", "util-linux"),
];

/// What is tried for; 15 000 clients and their answers need far less.
const DESCRIPTORS_WANTED: u64 = 65_536;

/// A core that is busier than this before the start spoils what is measured.
const QUIET: f64 = 0.05;

/// Fails with the command that installs what is missing of `tools`.
pub fn require(tools: &[&str]) -> Outcome<()> {
    let missing: Vec<&str> = tools.iter().copied().filter(|tool| find(tool).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> =
        PACKAGES.iter().filter(|(tool, _)| missing.contains(tool)).map(|(_, name)| *name).collect();
    packages.dedup();
    let (missing, packages) = (missing.join(", "), packages.join(" "));
    Err(Failure::new(format!(
        "not installed: {missing}. On Debian: apt-get install -y --no-install-recommends {packages}"
    )))
}

fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Daemons live in sbin, which a user's PATH may lack.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    folders.map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// The core of the proxy and those of everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The proxy's.
    pub proxy: usize,
    /// The others, as `taskset` writes them.
    pub load: String,
}

impl Cores {
    /// The proxy gets `proxy` or the last one, everything else `load` or all the others; this program moves there too.
    pub fn share(proxy: Option<usize>, load: Option<Vec<usize>>) -> Outcome<Self> {
        let own = sched_getaffinity(Pid::from_raw(0)).doing(|| "asking for our cores".to_owned())?;
        let all: Vec<usize> = (0..CpuSet::count()).filter(|core| own.is_set(*core).unwrap_or(false)).collect();
        let last = all.last().copied().ok_or_else(|| Failure::new("no core"))?;
        let proxy = proxy.unwrap_or(last);
        let load = load.unwrap_or_else(|| all.iter().copied().filter(|core| *core != proxy).collect());
        if load.is_empty() || load.contains(&proxy) {
            return Err(Failure::new("the proxy needs a core of its own: at least two are wanted"));
        }
        let mut set = CpuSet::new();
        for core in &load {
            set.set(*core).doing(|| format!("core {core}"))?;
        }
        sched_setaffinity(Pid::from_raw(0), &set).doing(|| format!("moving to the cores {load:?}"))?;
        let words: Vec<String> = load.iter().map(ToString::to_string).collect();
        Ok(Self { proxy, load: words.join(",") })
    }
}

/// All cores of this program, as `taskset` writes them.
pub fn own_cores() -> Outcome<String> {
    let own = sched_getaffinity(Pid::from_raw(0)).doing(|| "asking for our cores".to_owned())?;
    let all = (0..CpuSet::count()).filter(|core| own.is_set(*core).unwrap_or(false));
    Ok(all.map(|core| core.to_string()).collect::<Vec<_>>().join(","))
}

/// Raises the limit of descriptors, for us and for what we start; returns what it is then.
pub fn raise_descriptors() -> Outcome<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).doing(|| "asking for the descriptor limit".to_owned())?;
    for limit in [DESCRIPTORS_WANTED.max(hard), hard] {
        if setrlimit(Resource::RLIMIT_NOFILE, limit, limit.max(hard)).is_ok() {
            return Ok(limit);
        }
    }
    Err(Failure::new("the descriptor limit can't be raised to the hard limit"))
}

/// The binary at `given`, or the one that belongs to this build, built first where that is needed.
pub fn pointsman(given: Option<PathBuf>) -> Outcome<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().doing(|| format!("looking for {}", path.display()));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let status = Command::new("cargo")
        .args(["build", "--release", "--bin", "pointsman"])
        .current_dir(&workspace)
        .status()
        .doing(|| "starting cargo".to_owned())?;
    if !status.success() {
        return Err(Failure::new("pointsman does not build"));
    }
    let own = std::env::current_exe().doing(|| "looking for this program".to_owned())?;
    let target = own.parent().and_then(Path::parent).ok_or_else(|| Failure::new("this program has no folder"))?;
    let path = target.join("release").join("pointsman");
    if path.is_file() {
        Ok(path)
    } else {
        Err(Failure::new(format!("{} is missing: name it with --pointsman", path.display())))
    }
}

/// The facts, one line of Markdown each.
pub fn facts(cores: &Cores, descriptors: u64, pointsman: Option<&Path>) -> Vec<String> {
    let mut lines = Vec::new();
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown", |(_, name)| name);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    lines.push(format!(
        "- {model}, Linux {}; proxy on core {}, load and origin on {}",
        kernel.trim(),
        cores.proxy,
        cores.load
    ));
    lines.push(format!("- descriptor limit {descriptors}"));
    let mut versions =
        vec![version("nginx", "-v"), version("haproxy", "-v"), version("wrk", "-v"), version("h2load", "--version")];
    versions.push(version("openssl", "version"));
    if let Some(binary) = pointsman {
        versions.push(version(&binary.to_string_lossy(), "--version"));
    }
    let versions: Vec<String> = versions.into_iter().flatten().collect();
    lines.push(format!("- {}", versions.join(" · ")));
    lines
}

/// How busy the machine is before anything starts, as a line of Markdown; it takes a second to find out.
pub fn quiet(cores: &Cores) -> Outcome<String> {
    let all = std::iter::once(cores.proxy).chain(cores.load.split(',').filter_map(|core| core.parse().ok()));
    let all: Vec<usize> = all.collect();
    let ticks = || all.iter().map(|core| accounting::core_ticks(*core)).collect::<Outcome<Vec<CoreTicks>>>();
    let before = ticks()?;
    clock::pause(Duration::from_secs(1))?;
    let busy: Vec<f64> = ticks()?.into_iter().zip(before).map(|(now, before)| now.since(before).busy()).collect();
    let figures: Vec<String> = busy.iter().map(|busy| format!("{:.0} %", busy * 100.0)).collect();
    let warning =
        if busy.iter().any(|busy| *busy > QUIET) { ": **not quiet, so the figures are doubtful**" } else { "" };
    Ok(format!("- cores busy before the start: {}{warning}", figures.join(", ")))
}

/// The first line that `tool` says of itself, without its home page.
pub fn version(tool: &str, option: &str) -> Option<String> {
    let said = Command::new(tool).arg(option).output().ok()?;
    let text = if said.stdout.is_empty() { said.stderr } else { said.stdout };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().next()?;
    let line = line.split(" - https").next()?.split(" Copyright").next()?;
    Some(line.trim().to_owned())
}
