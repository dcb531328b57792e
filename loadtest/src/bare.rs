//! The least that an idle TLS client costs on tokio and rustls, and on h2 above them: servers that answer 128 bytes and do nothing else.
//!
//! They are what the memory of Pointsman's idle clients is compared with: no buffer while idle, no timer, no rules, the same allocator.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::failure::{Failure, Outcome, While};
use crate::load::Protocol;

type Scratch = Rc<RefCell<Vec<u8>>>;

/// Serves `protocol` on `port` until the process is ended.
pub fn serve(protocol: Protocol, port: u16, certificate: &Path, key: &Path) -> Outcome<()> {
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<CertificateDer<'static>> = chain.doing(|| format!("reading {}", certificate.display()))?;
    let key = PrivateKeyDer::from_pem_file(key).doing(|| format!("reading {}", key.display()))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.doing(|| "setting up TLS".to_owned())?;
    if protocol == Protocol::H2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let local = tokio::task::LocalSet::new();
    let served = local.block_on(&runtime.doing(|| "starting a runtime".to_owned())?, accept(protocol, port, acceptor));
    served.doing(|| format!("serving on {port}"))
}

async fn accept(protocol: Protocol, port: u16, acceptor: TlsAcceptor) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let scratch: Scratch = Rc::new(RefCell::new(vec![0; 16 * 1024]));
    loop {
        let (stream, _) = listener.accept().await?;
        // Boxed and dropped once done, so that the handshake leaves nothing in the task.
        let handshake: Pin<Box<_>> = Box::pin(acceptor.accept(stream));
        let scratch = scratch.clone();
        tokio::task::spawn_local(async move {
            if let Ok(stream) = handshake.await {
                // A client that goes away is the end, not an error.
                let _ = match protocol {
                    Protocol::H1 => answer(stream, &scratch).await,
                    Protocol::H2 => answer_h2(stream).await.map_err(io::Error::other),
                };
            }
        });
    }
}

async fn answer(mut stream: TlsStream<TcpStream>, scratch: &Scratch) -> io::Result<()> {
    loop {
        let count = poll_fn(|context| {
            let mut buffer = scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut stream).poll_read(context, &mut buffer);
            read.map_ok(|()| buffer.filled().len())
        })
        .await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(ANSWER).await?;
        stream.flush().await?;
    }
}

/// The library as it comes.
async fn answer_h2(stream: TlsStream<TcpStream>) -> Result<(), h2::Error> {
    let mut connection = Box::pin(h2::server::handshake(stream)).await?;
    while let Some(request) = connection.accept().await {
        let (_, mut respond) = request?;
        let mut sender = respond.send_response(Response::new(()), false)?;
        sender.send_data(Bytes::from_static(BODY), true)?;
    }
    Ok(())
}

const BODY: &[u8] = &[b'x'; 128];

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 128\r\n\r\n\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// Reads the arguments of the hidden subcommand.
pub fn run(protocol: Protocol, port: u16, files: &[std::path::PathBuf]) -> Outcome<()> {
    match files {
        [certificate, key] => serve(protocol, port, certificate, key),
        _ => Err(Failure::new("a certificate and a key are wanted")),
    }
}
