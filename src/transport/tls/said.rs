//! What is said of a TLS connection that failed: in words for who has to mend it, where the library has words for its authors.
//! It refuses to judge whose fault it is.

use std::borrow::Cow;
use std::io;

use rustls::{CertificateError, Error, InvalidMessage, OtherError};

/// What an error of a TLS connection means.
pub fn said(error: &io::Error) -> Cow<'static, str> {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    match cause {
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            Cow::Borrowed("the other side does not speak TLS")
        }
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            Cow::Borrowed("the other side's certificate is not of a known authority (UnknownIssuer)")
        }
        Some(Error::InvalidCertificate(CertificateError::Other(other))) if is_of_authority(other) => Cow::Borrowed(
            "the other side's certificate is an authority's own (CA:TRUE), which none may show as its own",
        ),
        _ => Cow::Owned(error.to_string()),
    }
}

fn is_of_authority(error: &OtherError) -> bool {
    format!("{error:?}").contains("CaUsedAsEndEntity")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(error: Error) -> Cow<'static, str> {
        said(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn what_the_library_says_for_its_authors_is_told_in_words_for_operators() {
        let not_tls = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(said_of(not_tls), "the other side does not speak TLS");
        let stranger = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(said_of(stranger).contains("not of a known authority"));
        assert!(said_of(Error::General("else".to_owned())).contains("else"));
        assert_eq!(said(&io::ErrorKind::TimedOut.into()), "timed out");
    }
}
