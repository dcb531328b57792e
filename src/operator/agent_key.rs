//! `pointsman agent-key`: makes a master key, and derives the keys of one server's agent from it.
//!
//! The master stays with the balancer; an agent gets its own pair and nothing else. It refuses a master key that everybody on
//! the machine can read, and to write over a file.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::base::hex::hex;
use crate::operator::secret::{Secret, SecretError, is_public};
use crate::pure::feedback::keys::{FORM, MasterKey};
use crate::pure::feedback::wire::{ServerName, ServerNameError};

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct AgentKeyOptions {
    /// The server whose agent gets the keys: its pool and its name, as the rule file has them.
    #[arg(value_name = "POOL/NAME", required_unless_present = "new", requires = "key_file")]
    pub server: Option<String>,
    /// The file of the master key, which `feedback` names in the rule file.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Makes a master key in a new file that nobody else can read.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server", "key_file"])]
    pub new: Option<PathBuf>,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum AgentKeyError {
    /// The master key can't be used.
    #[error(transparent)]
    Master(#[from] MasterKeyError),
    /// The server's name is none.
    #[error("`{server}` names no server: {cause}")]
    Name {
        /// What was given.
        server: String,
        /// What is wrong with it.
        cause: ServerNameError,
    },
    /// There are no random numbers, or nothing can be derived.
    #[error("the system gives no random numbers")]
    Random,
    /// The new file can't be written.
    #[error("can't write the master key {}: {cause}", .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

impl AgentKeyError {
    /// The exit code: 1 where the input was wrong, 3 where it could not be done.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Master(_) | Self::Name { .. } => 1,
            Self::Random | Self::Write { .. } => 3,
        }
    }
}

/// Why a master key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// It can't be read, or is too short.
    #[error("the master key of `feedback`: {0}")]
    File(#[from] SecretError),
    /// Everybody on the machine can read it.
    #[error("the master key {}: everybody on this machine can read it; chmod o-rwx, and make a new one", .0.display())]
    Public(PathBuf),
    /// It is what an agent has.
    #[error("{}: this is an agent's pair of keys, and not the master key that they were made from", .0.display())]
    OfAgent(PathBuf),
}

/// Reads a master key.
///
/// # Errors
/// [`MasterKeyError`].
pub fn read_master(file: &Path) -> Result<MasterKey, MasterKeyError> {
    let secret = Secret::read(file)?;
    if is_public(file) {
        return Err(MasterKeyError::Public(file.to_owned()));
    }
    if secret.bytes().starts_with(FORM.as_bytes()) {
        return Err(MasterKeyError::OfAgent(file.to_owned()));
    }
    Ok(MasterKey::from_bytes(secret.bytes()))
}

/// What is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The keys of an agent.
    Keys {
        /// Whose.
        server: String,
        /// The line that the agent reads.
        line: String,
    },
    /// A new master key.
    Master(PathBuf),
}

impl Made {
    /// As it is printed.
    pub fn text(&self, json: bool) -> String {
        match (self, json) {
            (Self::Keys { line, .. }, false) => format!("{line}\n"),
            (Self::Keys { server, line }, true) => {
                format!("{:#}\n", serde_json::json!({ "server": server, "keys": line }))
            }
            (Self::Master(file), false) => format!("a new master key is in {}\n", file.display()),
            (Self::Master(file), true) => format!("{:#}\n", serde_json::json!({ "key-file": file })),
        }
    }
}

/// Makes what is wanted.
///
/// # Errors
/// [`AgentKeyError`].
pub fn agent_key(options: &AgentKeyOptions) -> Result<Made, AgentKeyError> {
    if let Some(file) = &options.new {
        return new_master(file).map(|()| Made::Master(file.clone()));
    }
    // The command line asks for both.
    let server = options.server.clone().unwrap_or_default();
    let name: ServerName = server.parse().map_err(|cause| AgentKeyError::Name { server: server.clone(), cause })?;
    let master = read_master(options.key_file.as_deref().unwrap_or(Path::new("")))?;
    let keys = master.pair(&name).ok_or(AgentKeyError::Random)?;
    Ok(Made::Keys { server, line: keys.to_text() })
}

fn new_master(file: &Path) -> Result<(), AgentKeyError> {
    let secret = Secret::random().map_err(|_| AgentKeyError::Random)?;
    let digits = hex(secret.bytes());
    let write = || {
        let mut opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
        writeln!(opened, "{digits}")?;
        opened.sync_all()
    };
    write().map_err(|cause| AgentKeyError::Write { file: file.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::pure::feedback::keys::AgentKeys;

    fn keys(server: &str, file: &Path) -> Result<Made, AgentKeyError> {
        agent_key(&AgentKeyOptions { server: Some(server.to_owned()), key_file: Some(file.to_owned()), new: None })
    }

    #[test]
    fn a_new_master_is_its_owners_alone_and_gives_each_server_keys_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("master");
        let new = AgentKeyOptions { server: None, key_file: None, new: Some(file.clone()) };
        assert_eq!(agent_key(&new).unwrap(), Made::Master(file.clone()));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(agent_key(&new), Err(AgentKeyError::Write { .. })), "nothing is written over");
        let one = keys("app/a", &file).unwrap();
        assert_eq!(keys("app/a", &file).unwrap(), one);
        assert_ne!(keys("app/b", &file).unwrap(), one);
        let read = AgentKeys::from_text(&one.text(false)).unwrap();
        assert_eq!(read.server().as_str(), "app/a");
        let json: serde_json::Value = serde_json::from_str(&one.text(true)).unwrap();
        assert_eq!(AgentKeys::from_text(json["keys"].as_str().unwrap()).unwrap().to_text(), read.to_text());
        assert!(matches!(keys("app", &file), Err(AgentKeyError::Name { .. })));
    }

    #[test]
    fn a_master_key_that_everybody_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("master");
        std::fs::write(&file, [b'x'; 40]).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(read_master(&file), Err(MasterKeyError::Public(_))));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(read_master(&file).is_ok());
        std::fs::write(&file, b"short").unwrap();
        assert!(matches!(read_master(&file), Err(MasterKeyError::File(_))));
    }

    #[test]
    fn an_agents_pair_of_keys_is_not_taken_for_the_master_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s1.key");
        std::fs::write(&file, format!("{FORM} {} {}\n", "0".repeat(64), "1".repeat(64))).unwrap();
        let mut permissions = std::fs::metadata(&file).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        std::fs::set_permissions(&file, permissions).unwrap();
        assert!(matches!(read_master(&file), Err(MasterKeyError::OfAgent(_))));
    }
}
