//! The folder of the demo's files, readable by its user alone and gone with the demo, and the certificate in it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, KeyPair};

use crate::base::time::wall_clock;

/// How long the certificate is good for, in days, from the day before on.
const VALID_DAYS: u32 = 30;

/// A folder that is removed with everything in it when it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder with a name that nobody can foresee.
    pub(super) fn new() -> io::Result<Self> {
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("the system gives no random numbers"))?;
        let name = format!("pointsman-demo-{:016x}", u64::from_ne_bytes(random));
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Writes a new file, which its user alone can read.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }

    /// Where it is.
    #[cfg(test)]
    pub(super) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What can't be removed lies in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate that signs itself, for this machine's names, and its key: both as PEM.
pub(super) fn certificate() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let names = ["localhost", "*.localhost", "127.0.0.1", "::1"];
    let mut params = CertificateParams::new(names.map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, "Pointsman demo");
    let day = Duration::from_secs(24 * 60 * 60);
    let today = wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + today.saturating_sub(day);
    params.not_after = params.not_before + day * VALID_DAYS;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}
