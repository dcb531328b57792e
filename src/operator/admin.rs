//! The admin socket: a unix socket at which operators ask a running proxy how it is.
//!
//! A thread of its own answers, so that no worker ever does anything for it. It answers `GET` alone and changes nothing: the
//! socket's permissions (0600) say who may ask. So many connections at a time, each for one request and for so long, each
//! head no larger than a buffer; who comes beyond that waits in the kernel's queue.

use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::unistd::User;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::operator::status::Source;
use crate::request::listener::{self, ListenError, SocketFile};
use crate::shared::thread;

/// Its owner's alone.
const MODE: u32 = 0o600;

/// The most connections that are served at a time.
const CONNECTIONS_MAX: usize = 16;

/// The longest head, in bytes.
const HEAD_MAX: usize = 8 * 1024;

/// The most field lines of a head.
const FIELDS_MAX: usize = 64;

/// How long a head may take to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may take, its answer read and all.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The rest after an accept that failed for want of descriptors or memory.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The socket, before it is served.
#[derive(Debug)]
pub struct AdminSocket {
    file: SocketFile,
    socket: UnixListener,
}

impl AdminSocket {
    /// Listens on `path`, whose file is given to `owner`.
    ///
    /// # Errors
    /// [`ListenError`] where somebody listens there already, the file is no socket, or the system refuses.
    pub fn open(path: &Path, owner: Option<&User>) -> Result<Self, ListenError> {
        let owner = owner.map(|user| (user.uid.as_raw(), user.gid.as_raw()));
        let (file, sockets) = listener::open_unix(path, MODE, owner, 1)?;
        let missing = || io::Error::other("there is no socket");
        let socket = sockets.into_iter().next().ok_or_else(missing);
        let wrap = |cause| ListenError { address: crate::pure::config::ListenAddress::Unix(path.to_owned()), cause };
        Ok(Self { file, socket: socket.map_err(wrap)? })
    }

    /// Answers from `source`, on a thread of its own, until the handle is dropped.
    ///
    /// # Errors
    /// Where the thread or its runtime can't be made.
    pub fn serve(self, source: Source) -> io::Result<Admin> {
        let Self { file, socket } = self;
        let (stop, stopped) = oneshot::channel();
        let make = || Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let thread = thread::start("admin", make, |runtime| {
            if let Err(error) = runtime.block_on(accept(socket, source, stopped)) {
                tracing::error!("the admin socket can't be served: {error}");
            }
        })?;
        Ok(Admin { stop: Some(stop), thread: Some(thread), _file: file })
    }
}

/// The thread that answers; it ends, and the socket's file goes, when this is dropped.
#[derive(Debug)]
pub struct Admin {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

impl Admin {
    /// Whether the thread has ended. Unless this is being dropped, something is wrong.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been said already.
            let _ = thread.join();
        }
    }
}

async fn accept(socket: UnixListener, source: Source, mut stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let socket = tokio::net::UnixListener::from_std(socket)?;
    let source = Rc::new(source);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, socket.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            _ = &mut stopped => return Ok(()),
        };
        match (place, accepted) {
            (Ok(place), Ok((stream, _unnamed))) => {
                tokio::task::spawn_local(serve(stream, Rc::clone(&source), place));
            }
            // Of want of descriptors the workers' listeners speak.
            _ => tokio::time::sleep(BACK_OFF).await,
        }
    }
}

/// Serves one connection, which has one request.
async fn serve(stream: UnixStream, source: Rc<Source>, _place: OwnedSemaphorePermit) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &source);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(FIELDS_MAX)
        .max_buf_size(HEAD_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Who went away, or was too slow, needs no answer.
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

fn answer<B>(request: &Request<B>, source: &Source) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered here.\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    if request.uri().path() != "/status" {
        return text(StatusCode::NOT_FOUND, "There is only /status here.\n");
    }
    match serde_json::to_string_pretty(&source.status()) {
        Ok(json) => with(StatusCode::OK, "application/json", json + "\n"),
        Err(error) => {
            tracing::error!("the status can't be told: {error}");
            text(StatusCode::INTERNAL_SERVER_ERROR, "The status can't be told.\n")
        }
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    with(status, "text/plain; charset=utf-8", text.to_owned())
}

fn with(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
