//! What a cgroup uses, of version 2 or 1, and what it may use: its own limits, else the machine's size.

use std::path::{Path, PathBuf};

use super::host::Machine;
use super::proc_file::ProcFile;
use crate::pure::feedback::report::Use;

/// Where cgroups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Where version 1 has how much of a time a cgroup may use, and how long that time is.
const V1_LIMITS: [&str; 2] = ["cpu.cfs_quota_us", "cpu.cfs_period_us"];
/// The most members that are looked at.
pub const MEMBERS_MAX: usize = 256;

/// Why there is no such cgroup.
#[derive(Debug, thiserror::Error)]
#[error("there is no cgroup `{0}` below {ROOT}, of version 2 or 1")]
pub struct NoCgroup(String);

/// A cgroup's counters and limits.
#[derive(Debug)]
pub struct Cgroup {
    version: Version,
    processor: Option<ProcFile>,
    processor_limits: Vec<ProcFile>,
    memory: Option<ProcFile>,
    memory_details: Option<ProcFile>,
    memory_limit: Option<ProcFile>,
    disk: Option<ProcFile>,
    members: Option<ProcFile>,
}

/// How the files of a cgroup are written.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// They are in one folder.
    V2,
    /// They are in one folder for each controller.
    V1,
}

impl Cgroup {
    /// The cgroup at that path, from the root of cgroups or as a whole path.
    ///
    /// # Errors
    /// [`NoCgroup`] where there is none.
    pub fn open(path: &str) -> Result<Self, NoCgroup> {
        Self::open_below(Path::new(ROOT), path)
    }

    fn open_below(root: &Path, path: &str) -> Result<Self, NoCgroup> {
        let name = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
        let name: PathBuf = name.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
        let v2 = [root.join(&name), root.join("unified").join(&name)];
        if let Some(folder) =
            v2.into_iter().find(|folder| folder.join("cpu.stat").exists() && folder.join("memory.current").exists())
        {
            return Ok(Self::of_v2(folder));
        }
        let of = |controller: &str| root.join(controller).join(&name);
        if !of("cpuacct").join("cpuacct.usage").exists() && !of("memory").join("memory.usage_in_bytes").exists() {
            return Err(NoCgroup(path.to_owned()));
        }
        let open = |path: PathBuf| ProcFile::open(path).ok();
        let list = |path: PathBuf| ProcFile::open_list(path).ok();
        Ok(Self {
            processor: open(of("cpuacct").join("cpuacct.usage")),
            memory: open(of("memory").join("memory.usage_in_bytes")),
            memory_details: open(of("memory").join("memory.stat")),
            disk: open(of("blkio").join("blkio.throttle.io_service_bytes")),
            members: list(of("memory").join("cgroup.procs")).or_else(|| list(of("cpuacct").join("cgroup.procs"))),
            processor_limits: V1_LIMITS.iter().filter_map(|name| open(of("cpu").join(name))).collect(),
            memory_limit: open(of("memory").join("memory.limit_in_bytes")),
            version: Version::V1,
        })
    }

    fn of_v2(folder: PathBuf) -> Self {
        let open = |name: &str| ProcFile::open(folder.join(name)).ok();
        Self {
            processor: open("cpu.stat"),
            memory: open("memory.current"),
            memory_details: open("memory.stat"),
            disk: open("io.stat"),
            members: ProcFile::open_list(folder.join("cgroup.procs")).ok(),
            processor_limits: open("cpu.max").into_iter().collect(),
            memory_limit: open("memory.max"),
            version: Version::V2,
        }
    }

    /// The seconds that processors have worked for it, all together.
    pub fn processor_seconds(&mut self) -> Option<f64> {
        let text = self.processor.as_mut()?.read().ok()?;
        match self.version {
            Version::V2 => member(text, "usage_usec").map(|micros| micros / 1e6),
            Version::V1 => text.trim().parse::<f64>().ok().map(|nanos| nanos / 1e9),
        }
    }

    /// The processors that it may use.
    pub fn cores(&mut self, machine: &Machine) -> f64 {
        let quota = match (self.version, self.processor_limits.as_mut_slice()) {
            (Version::V2, [limit]) => limit.read().ok().and_then(quota),
            (Version::V1, [quota, period]) => {
                number(quota).zip(number(period)).map(|(quota, period)| quota / period.max(1.0))
            }
            (Version::V1 | Version::V2, _) => None,
        };
        quota.filter(|quota| *quota > 0.0).unwrap_or(machine.cores).min(machine.cores)
    }

    /// Its memory, without what the kernel keeps of files and would give back at once; `whole` is the machine's.
    pub fn memory(&mut self, whole: f64) -> Option<Use> {
        let used: f64 = self.memory.as_mut()?.read().ok()?.trim().parse().ok()?;
        let limit = self.memory_limit.as_mut().and_then(number);
        let name = match self.version {
            Version::V2 => "inactive_file",
            Version::V1 => "total_inactive_file",
        };
        let cached = self.memory_details.as_mut().and_then(|file| member(file.read().ok()?, name)).unwrap_or(0.0);
        let capacity = limit.map_or(whole, |limit| limit.min(whole));
        Some(Use { amount: (used - cached).max(0.0), capacity })
    }

    /// The bytes that it has read from disks and written to them.
    pub fn disk_bytes(&mut self) -> Option<f64> {
        let text = self.disk.as_mut()?.read().ok()?;
        Some(match self.version {
            Version::V2 => io_bytes(text),
            Version::V1 => text.lines().find_map(|line| line.strip_prefix("Total ")?.trim().parse().ok())?,
        })
    }

    /// The processes in it, [`MEMBERS_MAX`] at most.
    pub fn members(&mut self) -> Vec<i32> {
        let text = self.members.as_mut().and_then(|file| file.read().ok()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).take(MEMBERS_MAX).collect()
    }
}

/// The number that is a file's whole text.
fn number(file: &mut ProcFile) -> Option<f64> {
    file.read().ok()?.trim().parse::<u64>().ok().map(|number| number as f64)
}

/// The value of a line `name value`.
fn member(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The processors of `quota period`; `None`: no quota.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok().filter(|period| *period > 0.0)?)
}

/// The bytes read and written in lines such as `8:0 rbytes=1 wbytes=2 rios=3`.
fn io_bytes(text: &str) -> f64 {
    let value = |word: &str| word.strip_prefix("rbytes=").or(word.strip_prefix("wbytes="))?.parse::<f64>().ok();
    text.split_whitespace().filter_map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    const MACHINE: Machine = Machine { cores: 4.0, rate: 2000.0, page: 4096.0 };

    #[test]
    fn a_cgroup_of_version_2_has_its_own_figures_and_limits() {
        let root = root(&[
            ("system.slice/app/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("system.slice/app/cpu.max", "150000 100000\n"),
            ("system.slice/app/memory.current", "5000\n"),
            ("system.slice/app/memory.stat", "anon 1\ninactive_file 1000\n"),
            ("system.slice/app/memory.max", "8000\n"),
            ("system.slice/app/io.stat", "8:0 rbytes=100 wbytes=20 rios=3\n8:16 rbytes=1 wbytes=2 rios=1\n"),
            ("system.slice/app/cgroup.procs", "12\n13\n"),
        ]);
        let mut cgroup = Cgroup::open_below(root.path(), "/system.slice/app").unwrap();
        assert_eq!(cgroup.processor_seconds(), Some(2.5));
        assert_eq!(cgroup.cores(&MACHINE), 1.5);
        assert_eq!(cgroup.memory(1e9), Some(Use { amount: 4000.0, capacity: 8000.0 }));
        assert_eq!(cgroup.disk_bytes(), Some(123.0));
        assert_eq!(cgroup.members(), [12, 13]);
        std::fs::write(root.path().join("system.slice/app/cpu.max"), "max 100000\n").unwrap();
        std::fs::write(root.path().join("system.slice/app/memory.max"), "max\n").unwrap();
        assert_eq!(cgroup.cores(&MACHINE), 4.0);
        assert_eq!(cgroup.memory(1e9).unwrap().capacity, 1e9);
    }

    #[test]
    fn a_cgroup_of_version_1_is_in_several_folders() {
        let root = root(&[
            ("cpuacct/app/cpuacct.usage", "2500000000\n"),
            ("cpu/app/cpu.cfs_quota_us", "-1\n"),
            ("cpu/app/cpu.cfs_period_us", "100000\n"),
            ("memory/app/memory.usage_in_bytes", "5000\n"),
            ("memory/app/memory.stat", "cache 7\ntotal_inactive_file 1000\n"),
            ("memory/app/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/app/cgroup.procs", "7\n"),
            ("blkio/app/blkio.throttle.io_service_bytes", "8:0 Read 1\n8:0 Total 1\nTotal 55\n"),
        ]);
        let mut cgroup = Cgroup::open_below(root.path(), "app").unwrap();
        assert_eq!(cgroup.processor_seconds(), Some(2.5));
        assert_eq!(cgroup.cores(&MACHINE), 4.0, "no quota");
        assert_eq!(cgroup.memory(1e9), Some(Use { amount: 4000.0, capacity: 1e9 }));
        assert_eq!((cgroup.disk_bytes(), cgroup.members()), (Some(55.0), vec![7]));
        assert!(Cgroup::open_below(root.path(), "../../etc").is_err());
    }
}
