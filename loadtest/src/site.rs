//! Where a run lives: a folder in memory, a certificate, the origin's files, and free ports. All of it goes when the run ends.

use std::fs::{self, File, OpenOptions, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, While};

/// The answers of the origin: path and bytes.
pub const BODIES: [(&str, usize); 3] = [("128", 128), ("16k", 16 * 1024), ("1m", 1024 * 1024)];

/// A gRPC message: not compressed, four bytes of length, five of content. Requests and answers are both this.
pub const GRPC_MESSAGE: &str = "\0\0\0\0\x05hello";

/// The first port tried: below the range from which the kernel takes the clients' ports.
const FIRST_PORT: u16 = 18_080;
const LAST_PORT: u16 = 32_000;

const NAME: &str = "pointsman-loadtest.";

/// A run's folder. Dropping it removes the folder.
pub struct Site {
    folder: PathBuf,
    next_port: u16,
}

impl Site {
    /// Makes the folder, on tmpfs where there is one, with what all runs need: files, certificate, the clients' settings.
    pub fn new() -> Outcome<Self> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        remove_abandoned(&parent);
        let folder = parent.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&folder).doing(|| format!("making {}", folder.display()))?;
        let site = Self { folder, next_port: FIRST_PORT };
        site.fill()?;
        Ok(site)
    }

    fn fill(&self) -> Outcome<()> {
        // nginx drops root for its workers: they must be able to pass through.
        let open = Permissions::from_mode(0o755);
        fs::set_permissions(&self.folder, open.clone()).doing(|| "opening the folder".to_owned())?;
        let files = self.path("files");
        fs::create_dir(&files).doing(|| "making the folder of the origin".to_owned())?;
        fs::set_permissions(&files, open).doing(|| "opening the folder of the origin".to_owned())?;
        for (name, size) in BODIES {
            fs::write(files.join(name), "x".repeat(size)).doing(|| format!("writing {name}"))?;
        }
        self.write("client.openssl.conf", include_str!("../configurations/client.openssl.conf"))?;
        self.write("grpc.request", GRPC_MESSAGE)?;
        self.write("summary.lua", include_str!("../configurations/summary.lua"))?;
        self.make_certificate()
    }

    /// An ECDSA P-256 certificate for 127.0.0.1.
    fn make_certificate(&self) -> Outcome<()> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
            .doing(|| "making a certificate".to_owned())?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        self.write("certificate.pem", &certificate)?;
        self.write("key.pem", &key)?;
        self.write("both.pem", &format!("{certificate}{key}"))
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file of the folder.
    pub fn write(&self, name: &str, text: &str) -> Outcome<()> {
        fs::write(self.path(name), text).doing(|| format!("writing {name}"))
    }

    /// Opens a file of the folder to append to it.
    pub fn append(&self, name: &str) -> Outcome<File> {
        let path = self.path(name);
        OpenOptions::new().create(true).append(true).open(&path).doing(|| format!("opening {}", path.display()))
    }

    /// The end of a file of the folder, to be shown in a failure.
    pub fn tail(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        let from = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
        text.get(from..).unwrap_or_default().trim().to_owned()
    }

    /// The values that every configuration may name.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let text = |path: PathBuf| path.display().to_string();
        vec![
            ("DIR", text(self.folder.clone())),
            ("CERTIFICATE", text(self.path("certificate.pem"))),
            ("KEY", text(self.path("key.pem"))),
            ("CERTIFICATE_AND_KEY", text(self.path("both.pem"))),
            ("BODY_128", "x".repeat(128)),
        ]
    }

    /// A port on which nothing listens.
    pub fn free_port(&mut self) -> Outcome<u16> {
        while self.next_port < LAST_PORT {
            let port = self.next_port;
            self.next_port += 1;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return Ok(port);
            }
        }
        self.next_port = FIRST_PORT;
        Err(Failure::new(format!("no free port between {FIRST_PORT} and {LAST_PORT}")))
    }
}

/// Removes what runs that were killed outright have left: folders named after a process that is gone.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another's folder stays: that is not this run's concern.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Nothing depends on its success, and there is nobody left to tell.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
