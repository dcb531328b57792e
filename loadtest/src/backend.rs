//! A server of an experiment in a process of its own (`serve`), and what may be done to it: kill it as `kill -9` does, start it anew, have
//! it hang or fail. It may live in another network namespace, and in a control group with a bounded processor.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::alarm::Alarm;
use crate::catalogue::Ask;
use crate::child::{Child, Recipe};
use crate::failure::{Failure, Outcome, While};
use crate::open_loop::{Arrival, Client, End};
use crate::serve::{Mood, Serve};

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a process lives.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its cores, as `taskset` writes them.
    pub cores: String,
    /// Its network namespace, where it is not ours.
    pub namespace: Option<String>,
}

impl Place {
    /// How `program` is started here.
    pub fn recipe(&self, program: &Path) -> Recipe {
        match &self.namespace {
            None => Recipe::new(program, &self.cores),
            Some(name) => Recipe::new("nsenter", &self.cores)
                .argument(format!("--net=/run/netns/{name}"))
                .argument("--")
                .argument(program),
        }
    }
}

/// A server; it ends when this is dropped.
pub struct Backend {
    /// How it is.
    pub serve: Serve,
    place: Place,
    /// Ends before its group goes: fields are dropped in order.
    child: Option<Child>,
    group: Option<Rc<Group>>,
}

impl Backend {
    /// Starts one and waits until it answers.
    pub async fn start(serve: Serve, place: Place, group: Option<Rc<Group>>, alarm: &Alarm) -> Outcome<Self> {
        let mut backend = Self { serve, place, group, child: None };
        backend.revive(alarm).await?;
        Ok(backend)
    }

    /// Kills it: its port refuses, its connections break.
    pub fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
        }
    }

    /// Starts it anew.
    pub async fn revive(&mut self, alarm: &Alarm) -> Outcome<()> {
        let own = std::env::current_exe().doing(|| "looking for this program".to_owned())?;
        let Serve { address, number, slots, waiting_max, computes, verdict } = &self.serve;
        let mut recipe = self.place.recipe(&own).argument("serve").argument(address.to_string());
        for (name, value) in [("--number", number), ("--slots", slots), ("--waiting-max", waiting_max)] {
            recipe = recipe.argument(name).argument(value.to_string());
        }
        if *computes {
            recipe = recipe.argument("--computes");
        }
        if let Some(verdict) = verdict {
            recipe = recipe.argument("--verdict").argument(verdict.to_string());
        }
        let mut child = recipe.start()?;
        if let Some(group) = &self.group {
            group.take(child.id())?;
        }
        let until = alarm.now() + PATIENCE;
        while !answers(*address, alarm).await {
            child.still_runs()?;
            crate::clock::go_on()?;
            if alarm.now() > until {
                return Err(Failure::new(format!("no answer of the server at {address}")));
            }
            alarm.sleep(Duration::from_millis(10)).await;
        }
        self.child = Some(child);
        Ok(())
    }

    /// Tells it how to be, by a request straight to it.
    pub async fn tell(&self, mood: Mood, alarm: &Alarm) -> Outcome<()> {
        let client = Client::new(self.serve.address, alarm.now(), alarm);
        client.ask(mood.path()).await.map(drop)
    }

    /// Its control group, where it has one of its own.
    pub fn group(&self) -> Option<&str> {
        self.group.as_ref().map(|group| group.name.as_str())
    }

    /// The process; `None` while it is dead.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

async fn answers(address: SocketAddr, alarm: &Alarm) -> bool {
    let client = Rc::new(Client::new(address, Duration::ZERO, alarm));
    matches!(client.exchange(Arrival { at: alarm.now(), ask: Ask::Ping }).await.end, End::Answered { .. })
}

/// A control group with so much of a processor and no more. It goes when this is dropped; its processes must have ended by then.
#[derive(Debug)]
pub struct Group {
    /// Its path below the folder of all groups, as an agent wants it.
    pub name: String,
    folders: Vec<PathBuf>,
}

/// The length of a period of the kernel's accounting: short, so that a server is slow and not halting.
const PERIOD: Duration = Duration::from_millis(10);
/// Where groups are.
const GROUPS: &str = "/sys/fs/cgroup";

impl Group {
    /// Makes one, of version 2 or of version 1, as the machine has it.
    pub fn make(name: &str, cores: f64) -> Outcome<Self> {
        let name = format!("pointsman-loadtest.{}.{name}", std::process::id());
        let root = Path::new(GROUPS);
        let is_version_2 = fs::read_to_string(root.join("cgroup.controllers"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|controller| controller == "cpu"));
        // Version 1 has a folder for what a group may use, and one for what it has used.
        let folders = if is_version_2 {
            vec![root.join(&name)]
        } else {
            ["cpu", "cpuacct"].map(|one| root.join(one).join(&name)).to_vec()
        };
        let group = Self { name, folders };
        for folder in &group.folders {
            fs::create_dir(folder).doing(|| format!("making the control group {} (as root?)", folder.display()))?;
        }
        let (period, quota) = (PERIOD.as_micros(), PERIOD.mul_f64(cores).as_micros());
        let limits = if is_version_2 {
            vec![("cpu.max", format!("{quota} {period}"))]
        } else {
            vec![("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
        };
        if let Some(folder) = group.folders.first() {
            limits.iter().try_for_each(|(file, text)| write(folder, file, text))?;
        }
        Ok(group)
    }

    fn take(&self, process: u32) -> Outcome<()> {
        self.folders.iter().try_for_each(|folder| write(folder, "cgroup.procs", &process.to_string()))
    }
}

fn write(folder: &Path, file: &str, text: &str) -> Outcome<()> {
    fs::write(folder.join(file), text).doing(|| format!("writing {text} to {file}"))
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Where a process is still in it, the folder stays: nothing depends on that.
            let _ = fs::remove_dir(folder);
        }
    }
}
