//! The request of a command line: words in, a description that can be rehearsed or what is wrong with it out.
//!
//! It refuses only what no client could send; what a client could and the proxy refuses is explained.

use std::net::IpAddr;

use super::ExplainOptions;
use crate::base::id::ListenerIndex;
use crate::operator::rehearsal::RequestDescription;
use crate::pure::config::{Config, is_token, is_value, url_trouble};

/// What is wrong with the description of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The method is no token.
    #[error("`{0}` is no method: such as GET")]
    Method(String),
    /// The URL is none.
    #[error("`{url}`: {problem}: {remedy}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong.
        problem: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A field is none.
    #[error("`{field}` is no field: {problem}, such as -H 'X-Canary: 1'")]
    Field {
        /// What was given.
        field: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The client's address is none.
    #[error("`{0}` is no IP address: such as --client 192.0.2.1")]
    Client(String),
    /// No listener has that address.
    #[error("nothing listens on `{asked}`; there is: {known}")]
    Listener {
        /// What was given.
        asked: String,
        /// The first few of the listeners.
        known: String,
    },
}

/// How many listeners are named where one is unknown.
const LISTENERS_TOLD: usize = 8;

/// A request as it was described.
#[derive(Debug)]
pub(super) struct Asked<'o> {
    options: &'o ExplainOptions,
    headers: Vec<(String, String)>,
    client: IpAddr,
    listener: Option<ListenerIndex>,
}

impl Asked<'_> {
    pub(super) fn description(&self) -> RequestDescription<'_> {
        RequestDescription {
            method: &self.options.method,
            url: &self.options.url,
            headers: &self.headers,
            client: self.client,
            listener: self.listener,
        }
    }
}

/// Reads what is said of the request.
pub(super) fn read<'o>(config: &Config, options: &'o ExplainOptions) -> Result<Asked<'o>, AskError> {
    if !is_token(&options.method) {
        return Err(AskError::Method(options.method.clone()));
    }
    if let Some((problem, remedy)) = url_trouble(&options.url) {
        return Err(AskError::Url { url: options.url.clone(), problem, remedy });
    }
    let headers = options.headers.iter().map(|field| read_field(field)).collect::<Result<_, _>>()?;
    let client = options.client.trim_matches(['[', ']']);
    let client = client.parse().map_err(|_| AskError::Client(options.client.clone()))?;
    let listener = options.listen.as_deref().map(|text| find_listener(config, text)).transpose()?;
    Ok(Asked { options, headers, client, listener })
}

fn read_field(field: &str) -> Result<(String, String), AskError> {
    let fail = |problem| AskError::Field { field: field.escape_debug().to_string(), problem };
    let (name, value) = field.split_once(':').ok_or_else(|| fail("it has no colon"))?;
    if !is_token(name) {
        return Err(fail("what stands before the colon is no name"));
    }
    if !is_value(value) {
        return Err(fail("its value is not one line"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn find_listener(config: &Config, text: &str) -> Result<ListenerIndex, AskError> {
    config.listener_named(text).ok_or_else(|| {
        let names = config.listeners.iter().map(|listener| listener.address.to_string());
        let mut known = names.take(LISTENERS_TOLD).collect::<Vec<_>>().join(", ");
        if config.listeners.len() > LISTENERS_TOLD {
            known.push_str(", ..");
        }
        AskError::Listener { asked: text.to_owned(), known }
    })
}
