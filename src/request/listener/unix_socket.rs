//! Unix sockets to listen on: a file with permissions, which is there as long as the process is.
//!
//! The file of a process that has died is replaced; that of one that lives is an error, and so is a file that is no socket:
//! nothing is ever removed but a socket that nobody listens on. All workers accept from one socket, for the system has no
//! `SO_REUSEPORT` here.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{BACKLOG, ListenError};
use crate::pure::config::ListenAddress;

/// The file of a listening socket, which is removed with this.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: what another process has put in its place is left alone.
    identity: (u64, u64),
    /// As long as it is held, the system gives the inode's number to nobody else.
    _held: fs::File,
}

/// Whom the file is given to: user and group.
pub type Owner = (u32, u32);

/// Listens on `path`, by `count` descriptors of one socket.
///
/// # Errors
/// [`ListenError`] where somebody listens there already, the file is no socket, or the system refuses.
pub fn open(
    path: &Path,
    mode: u32,
    owner: Option<Owner>,
    count: usize,
) -> Result<(SocketFile, Vec<UnixListener>), ListenError> {
    let wrap = |cause| ListenError { address: ListenAddress::Unix(path.to_owned()), cause };
    remove_stale(path).map_err(wrap)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None).map_err(wrap)?;
    // The file is made with the socket's own permissions (unix(7) on Linux): there is no moment in which it has wider ones.
    fchmod(&socket, Mode::from_bits_truncate(mode)).map_err(|error| wrap(error.into()))?;
    socket.bind(&SockAddr::unix(path).map_err(wrap)?).map_err(wrap)?;
    let file = SocketFile::hold(path).map_err(wrap)?;
    if let Some((user, group)) = owner {
        std::os::unix::fs::chown(path, Some(user), Some(group)).map_err(wrap)?;
    }
    // Those that the umask took away. Before it listens nobody can connect anyway.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(wrap)?;
    socket.listen(BACKLOG).map_err(wrap)?;
    socket.set_nonblocking(true).map_err(wrap)?;
    let clones = (1..count.max(1)).map(|_| socket.try_clone().map(UnixListener::from));
    let mut sockets = clones.collect::<io::Result<Vec<_>>>().map_err(wrap)?;
    sockets.push(UnixListener::from(socket));
    Ok((file, sockets))
}

/// Makes way where the file is a socket that nobody listens on any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file, and it is no socket"));
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Where nobody takes connections from a full queue, a start must not wait for that.
    socket.set_nonblocking(true)?;
    let in_use = || io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there already");
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => Err(in_use()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

impl SocketFile {
    fn hold(path: &Path) -> io::Result<Self> {
        // A descriptor that stands for the file alone: a socket can't be opened (open(2)).
        let held = fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_PATH).open(path)?;
        Ok(Self { path: path.to_owned(), identity: identity_of(path)?, _held: held })
    }
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = identity_of(&self.path).is_ok_and(|found| found == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("the socket {} stays behind: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_or_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (file, sockets) = open(&path, 0o640, None, 3).unwrap();
        assert_eq!(sockets.len(), 3);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        UnixStream::connect(&path).unwrap();
        let error = open(&path, 0o640, None, 1).unwrap_err();
        assert_eq!(error.cause.kind(), io::ErrorKind::AddrInUse);
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert_eq!(open(&path, 0o640, None, 1).unwrap_err().cause.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_start_does_not_wait_for_a_listener_that_takes_no_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let busy = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        busy.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        busy.listen(0).unwrap();
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.connect(&SockAddr::unix(&path).unwrap()).map(|()| socket)
        };
        let mut waiting = Vec::new();
        while let Ok(socket) = connect() {
            waiting.push(socket);
        }
        assert_eq!(open(&path, 0o640, None, 1).unwrap_err().cause.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_file_that_another_has_put_in_its_place_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (file, _sockets) = open(&path, 0o600, None, 1).unwrap();
        // Renamed and not removed, so that its inode is not given to the next.
        fs::rename(&path, folder.path().join("old")).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
