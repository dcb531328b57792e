//! `pointsman explain`: where a request would go, and why, each step with its reason.
//!
//! It says what a [`Rehearsal`] does and decides nothing itself. It needs no running proxy, opens no port and reads no
//! certificate, and of the files that the rules name only the `secret`, to open cookies; and so it knows no state, load or answer of a running one.

mod asked;
mod explanation;
mod telling;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::operator::check::{Style, compile_problem, render};
use crate::operator::rehearsal::Rehearsal;
use crate::operator::rule_files::DiskFiles;
use crate::operator::secret::Secret;
use crate::pure::config::{Problem, RuleFiles, load};
use crate::pure::rule::compile::RuleSet;

pub use asked::AskError;
pub use explanation::{
    Arm, Capture, Changes, Explanation, FieldChanges, ForwardTold, KeyTold, ListenerTold, MediaTypeTold, OwnAnswer,
    RequestTold, RuleTold, SeenTold, ServerTold, Step,
};

/// What is asked: a rule file, and a request.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ExplainOptions {
    /// A rule file, or a directory: all its *.kdl in name order.
    #[arg(value_name = "FILE")]
    pub rules: PathBuf,
    /// The request's method, in upper case as a client sends it.
    #[arg(value_name = "METHOD")]
    pub method: String,
    /// The whole URL, as in http://a.test/img/x.png?size=2
    #[arg(value_name = "URL")]
    pub url: String,
    /// A field of the request; may be repeated. `Host: ..` replaces the URL's host.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// The address that the connection comes from.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub client: String,
    /// The listener it comes in by, as the rule file names it [default: the first that speaks the URL's scheme].
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
}

/// Why nothing can be explained: the input is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The rule files are.
    #[error("{}", .0.iter().map(Problem::in_one_line).collect::<Vec<_>>().join("\n"))]
    Rules(Vec<Problem>),
    /// What was said of the request is.
    #[error(transparent)]
    Request(#[from] AskError),
}

impl ExplainError {
    /// What is wrong, for people: problems of rule files are drawn as `check` draws them.
    pub fn render(&self, style: Style) -> String {
        match self {
            Self::Rules(problems) => render(problems, style),
            Self::Request(error) => format!("{error}\n"),
        }
    }

    /// The same for programs: an object `{"errors": [{"place": "file:line", "message": ".."}]}`; `place` is null where there
    /// is none.
    pub fn json(&self) -> serde_json::Value {
        let errors: Vec<_> = match self {
            Self::Rules(problems) => {
                let tell =
                    |problem: &Problem| serde_json::json!({"place": problem.place(), "message": problem.message()});
                problems.iter().map(tell).collect()
            }
            Self::Request(error) => vec![serde_json::json!({"place": null, "message": error.to_string()})],
        };
        serde_json::json!({ "errors": errors })
    }
}

/// Explains what comes of a request by the rule files of this machine.
///
/// # Errors
/// [`ExplainError`] where the rule files or the description of the request are wrong.
pub fn explain(options: &ExplainOptions) -> Result<Explanation, ExplainError> {
    let mut rehearsal = rehearsal_of(&DiskFiles, &options.rules)?;
    let secret = rehearsal.config().secret.as_deref().map(Secret::read);
    if let Some(secret) = secret {
        rehearsal = rehearsal.with_secret(secret);
    }
    let asked = asked::read(rehearsal.config(), options)?;
    Ok(Explanation::of(&rehearsal, &asked.description()))
}

/// Loads and compiles the rule file or folder `entry` of `files`.
///
/// # Errors
/// [`ExplainError::Rules`].
pub fn rehearsal_of(files: &dyn RuleFiles, entry: &Path) -> Result<Rehearsal, ExplainError> {
    let config = load(files, entry).map_err(|errors| ExplainError::Rules(errors.problems))?;
    let rules = RuleSet::compile(config.rules.clone())
        .map_err(|error| ExplainError::Rules(vec![compile_problem(&config, &error)]))?;
    Ok(Rehearsal::new(Arc::new(config), Arc::new(rules)))
}
