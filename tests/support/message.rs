//! HTTP/1.x heads as the tests see them: every byte kept, and easy to ask.
//!
//! It parses what a well-behaved peer sends and refuses everything else, since what it reads is what the product wrote.
//! Bytes become characters one to one (Latin-1), so that nothing is lost. RFC 9112 sections 2 to 6.

/// Names and values in the order they were sent.
pub type Fields = Vec<(String, String)>;

/// A request's or an answer's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its bytes, the empty line included.
    pub raw: Vec<u8>,
    /// Its first line.
    pub start: String,
    /// Its fields, names as sent, values without the space around them.
    pub fields: Fields,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// By Content-Length.
    Length(u64),
    /// By the chunked coding.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

/// Bytes as text, one character each.
pub fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Splits a field line.
///
/// # Errors
/// The line, where it is no field line.
pub fn field_line(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("no field line: {line:?}"))?;
    if name.is_empty() || name.contains([' ', '\t', '\r', '\n']) || value.contains(['\r', '\n', '\0']) {
        return Err(format!("no field line: {line:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

impl Head {
    /// Parses a head that ends in an empty line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(raw: &[u8]) -> Result<Self, String> {
        let text = latin1(raw);
        let lines = text.strip_suffix("\r\n\r\n").ok_or_else(|| format!("no empty line at the end: {text:?}"))?;
        let mut lines = lines.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        if start.split(' ').count() < 2 || start.contains(['\r', '\n']) {
            return Err(format!("no first line: {start:?}"));
        }
        let fields = lines.map(field_line).collect::<Result<_, _>>()?;
        Ok(Self { raw: raw.to_vec(), start, fields })
    }

    fn word(&self, index: usize) -> &str {
        self.start.split(' ').nth(index).unwrap_or_default()
    }

    /// A request's method.
    pub fn method(&self) -> &str {
        self.word(0)
    }

    /// A request's target.
    pub fn target(&self) -> &str {
        self.word(1)
    }

    /// An answer's status.
    ///
    /// # Panics
    /// Where it has none.
    #[track_caller]
    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or_else(|_| panic!("no status in {:?}", self.start))
    }

    /// The values of all fields of that name, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The value of the one field of that name.
    ///
    /// # Panics
    /// Where there are several.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "several {name}: {all:?}");
        all.first().copied()
    }

    fn is_chunked(&self) -> Result<bool, String> {
        let codings = self.all("transfer-encoding");
        match codings.as_slice() {
            [] => Ok(false),
            [coding] if coding.eq_ignore_ascii_case("chunked") && self.all("content-length").is_empty() => Ok(true),
            _ => Err(format!("ambiguous framing: {:?}", self.fields)),
        }
    }

    fn length(&self) -> Result<Option<u64>, String> {
        match self.all("content-length").as_slice() {
            [] => Ok(None),
            [length] if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().map(Some).map_err(|_| format!("no length: {length:?}"))
            }
            lengths => Err(format!("ambiguous length: {lengths:?}")),
        }
    }

    /// How the body of this request ends.
    ///
    /// # Errors
    /// Where that is ambiguous.
    pub fn request_framing(&self) -> Result<Framing, String> {
        Ok(match (self.is_chunked()?, self.length()?) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) if length > 0 => Framing::Length(length),
            (false, _) => Framing::None,
        })
    }

    /// How the body of this answer to a request of `method` ends (RFC 9112 6.3).
    ///
    /// # Errors
    /// Where that is ambiguous.
    pub fn response_framing(&self, method: &str) -> Result<Framing, String> {
        let status = self.status();
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return Ok(Framing::None);
        }
        Ok(match (self.is_chunked()?, self.length()?) {
            (true, _) => Framing::Chunked,
            (false, Some(0)) => Framing::None,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::UntilClose,
        })
    }
}
