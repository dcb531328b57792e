//! As much of WebSocket (RFC 6455) as an echo needs: the handshake's accept value, whole frames of up to 64 KiB, masked by the client.

use std::io;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A frame with bytes.
pub const BINARY: u8 = 2;
/// The frame that ends it.
pub const CLOSE: u8 = 8;

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// What a server answers to a client's key (RFC 6455 4.2.2).
pub fn accept(key: &[u8]) -> String {
    let joined = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    base64(digest(&SHA1_FOR_LEGACY_USE_ONLY, &joined).as_ref())
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| bits << 8 | usize::from(group.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = LETTERS.get(bits >> (18 - 6 * at) & 63).copied().unwrap_or(b'=');
            text.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// A whole frame: its kind and what it carries, unmasked.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let [first, second] = array(stream).await?;
    let length = match second & !MASKED {
        126 => usize::from(u16::from_be_bytes(array(stream).await?)),
        127 => return Err(io::Error::other("a frame of more than 64 KiB")),
        length => usize::from(length),
    };
    if first & FINAL == 0 {
        return Err(io::Error::other("a part of a message"));
    }
    let mask = if second & MASKED == 0 { [0; 4] } else { array(stream).await? };
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    apply(mask, &mut payload);
    Ok((first & 0xF, payload))
}

/// Writes a whole frame; a client's is masked.
pub async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    payload: &[u8],
    by_client: bool,
) -> io::Result<()> {
    let mark = if by_client { MASKED } else { 0 };
    let mut frame = vec![FINAL | kind];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => frame.push(mark | length),
        (_, Ok(length)) => {
            frame.push(mark | 126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        (_, Err(_)) => return Err(io::Error::other("a frame of more than 64 KiB")),
    }
    let mut payload = payload.to_vec();
    if by_client {
        frame.extend_from_slice(&MASK);
        apply(MASK, &mut payload);
    }
    frame.extend_from_slice(&payload);
    stream.write_all(&frame).await?;
    stream.flush().await
}

fn apply(mask: [u8; 4], payload: &mut [u8]) {
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
}

async fn array<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_is_that_of_the_standard() {
        // RFC 6455 1.3.
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!((base64(b"f"), base64(b"fo"), base64(b"foo")), ("Zg==".into(), "Zm8=".into(), "Zm9v".into()));
    }

    #[test]
    fn a_frame_that_is_written_can_be_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for length in [0, 1, 125, 126, 65_535] {
            for by_client in [false, true] {
                let payload = crate::soak::content::pattern(1, length);
                let mut wire = io::Cursor::new(Vec::new());
                runtime.block_on(write(&mut wire, BINARY, &payload, by_client)).unwrap();
                let found = runtime.block_on(read(&mut wire.into_inner().as_slice())).unwrap();
                assert_eq!(found, (BINARY, payload));
            }
        }
    }
}
