//! `persist ..`: by what a pool knows its clients again. One form for each node, each form once; what belongs to another form is
//! an error that says where it belongs.

use std::sync::Arc;
use std::time::Duration;

use super::field::{is_token, is_value};
use super::node::{Node, Value};
use super::problem::{Problem, Problems};
use crate::pure::persistence::{CookieForm, Form, NamedForm, Persistence, SameSite, SourceForm};
use crate::pure::pool::Server;

/// How long a choice is kept that is not asked for: as IPVS keeps its templates.
const TTL: Duration = Duration::from_secs(300);
/// As long as servlet containers keep a session.
const LEARN_TTL: Duration = Duration::from_secs(30 * 60);
/// As long as a ticket can live.
const SESSION_TTL: Duration = Duration::from_secs(24 * 3600);
/// An IPv6 client counts by the smallest network that is handed out.
const MASK: u8 = 32;
const MASK6: u8 = 64;

/// The settings that belong to one form alone.
const OWN_SETTINGS: [(&str, Form); 8] = [
    ("hide", Form::Cookie),
    ("domain", Form::Cookie),
    ("path", Form::Cookie),
    ("same-site", Form::Cookie),
    ("secure", Form::Cookie),
    ("http-only", Form::Cookie),
    ("mask", Form::Source),
    ("mask6", Form::Source),
];

/// The persistence of a pool with these servers; `None`: it has none.
pub(super) fn read(
    pool: Node<'_>,
    name: &str,
    servers: &[Arc<Server>],
    problems: &mut Problems,
) -> Option<Arc<Persistence>> {
    let mut found = Persistence::new(name, servers);
    let mut seen: Vec<(Form, Node<'_>)> = Vec::new();
    for node in pool.children("persist") {
        let Some((form, value)) = form_of(node, problems) else { continue };
        if let Some((_, first)) = seen.iter().find(|(known, _)| *known == form) {
            let problem = Problem::at(&node.place(), format!("`persist {}` is given twice", written(form)));
            problems.add(problem.label("again here").also(&first.place(), "first here").help("keep one of them"));
            continue;
        }
        seen.push((form, node));
        check_settings(node, form, problems);
        let ttl = node.setting("ttl").and_then(|value| value.duration());
        let named = |default: Duration| {
            value
                .and_then(|value| value.text())
                .map(|name| NamedForm { name: name.to_owned(), ttl: ttl.unwrap_or(default) })
        };
        match form {
            Form::Cookie => found.cookie = value.and_then(|value| read_cookie(node, value, ttl, problems)),
            Form::Learn => found.learn = named(LEARN_TTL),
            Form::Header => found.header = named(TTL),
            Form::TlsSession => found.tls_session = Some(ttl.unwrap_or(SESSION_TTL)),
            Form::Source => {
                let mask = |name, default| node.setting(name).and_then(|value| value.whole()).unwrap_or(default);
                let (mask, mask6) = (mask("mask", MASK), mask("mask6", MASK6));
                found.source = Some(SourceForm { mask, mask6, ttl: ttl.unwrap_or(TTL) });
            }
        }
    }
    (!seen.is_empty()).then(|| Arc::new(found))
}

/// The form that a node has, and the value that names its cookie or field.
fn form_of<'a>(node: Node<'a>, problems: &mut Problems) -> Option<(Form, Option<Value<'a>>)> {
    let word = node.argument(0).and_then(|value| {
        let form = match value.text()? {
            "tls-session" => Form::TlsSession,
            "source" => Form::Source,
            // Other words have been reported.
            _ => return None,
        };
        Some((form, value))
    });
    let setting = |name, form| node.setting(name).map(|value| (form, value));
    let named = [setting("cookie", Form::Cookie), setting("learn", Form::Learn), setting("header", Form::Header)];
    let mut forms = named.into_iter().flatten().chain(word);
    let Some((form, value)) = forms.next() else {
        if node.argument(0).is_none() {
            let problem = Problem::at(&node.place(), "`persist` does not say by what").label("nothing would persist");
            problems.add(problem.help(
                r#"write one of: persist cookie="NAME", persist learn="NAME", persist header="NAME", persist tls-session, persist source"#,
            ));
        }
        return None;
    };
    if let Some((_, second)) = forms.next() {
        let problem = Problem::at(&second.place(), "a `persist` has one form").label("and this is a second one");
        problems.add(problem.also(&value.place(), "the first").help("write another `persist` for it"));
    }
    let is_named = matches!(form, Form::Cookie | Form::Learn | Form::Header);
    if is_named && !value.text().is_some_and(is_token) {
        let what = if form == Form::Header { "field" } else { "cookie" };
        let problem = Problem::at(&value.place(), format!("this is no name of a {what}")).label("not this");
        problems.add(problem.help("a name has letters, digits and such signs as `-` and `_`"));
        return None;
    }
    Some((form, is_named.then_some(value)))
}

/// As a rule file begins a node of that form.
const fn written(form: Form) -> &'static str {
    match form {
        Form::Cookie => "cookie=\"..\"",
        Form::Learn => "learn=\"..\"",
        Form::Header => "header=\"..\"",
        Form::TlsSession => "tls-session",
        Form::Source => "source",
    }
}

fn check_settings(node: Node<'_>, form: Form, problems: &mut Problems) {
    for (name, owner) in OWN_SETTINGS.into_iter().filter(|(_, owner)| *owner != form) {
        if let Some(value) = node.setting(name) {
            let message = format!("`persist {}` has no `{name}`", written(form));
            let problem = Problem::at(&value.place(), message).label("not here");
            problems.add(problem.help(format!("`{name}` belongs to `persist {}`", written(owner))));
        }
    }
}

fn read_cookie(node: Node<'_>, name: Value<'_>, ttl: Option<Duration>, problems: &mut Problems) -> Option<CookieForm> {
    let mut form = CookieForm::named(name.text()?);
    let switch = |name| node.setting(name).and_then(|value| value.switch());
    form.ttl = ttl.unwrap_or(form.ttl);
    form.hide = switch("hide").unwrap_or(form.hide);
    form.http_only = switch("http-only").unwrap_or(form.http_only);
    form.secure = switch("secure");
    form.domain = node.setting("domain").and_then(|value| read_attribute(value, |_| true, problems));
    let path = node.setting("path").and_then(|value| read_attribute(value, |path| path.starts_with('/'), problems));
    form.path = path.unwrap_or(form.path);
    form.same_site = match node.setting("same-site").and_then(|value| value.text()) {
        Some("strict") => SameSite::Strict,
        Some("none") => SameSite::None,
        // Other words have been reported.
        _ => SameSite::Lax,
    };
    if let (SameSite::None, Some(false), Some(secure)) = (form.same_site, form.secure, node.setting("secure")) {
        let problem = Problem::at(&secure.place(), "a cookie with `same-site=\"none\"` has to be secure");
        problems.add(problem.label("browsers refuse it").help("leave `secure` out"));
    }
    if form.name.starts_with("__Host-") && (form.domain.is_some() || form.path != "/") {
        let problem = Problem::at(&name.place(), "a cookie named `__Host-..` has no domain, and the path `/`");
        problems
            .add(problem.label("browsers refuse it").help("give it another name, or leave `domain` and `path` out"));
    }
    if form.name.starts_with("__") && form.secure == Some(false) {
        let problem = Problem::at(&name.place(), "a cookie named `__Host-..` or `__Secure-..` has to be secure");
        problems.add(problem.label("browsers refuse it").help("give it another name, or leave `secure` out"));
    }
    Some(form)
}

/// The value of a cookie's attribute (RFC 6265 4.1.1).
fn read_attribute(value: Value<'_>, fits: impl Fn(&str) -> bool, problems: &mut Problems) -> Option<String> {
    let text = value.text()?;
    let is_good =
        !text.is_empty() && text.is_ascii() && is_value(text) && !text.contains([';', ' ', ',']) && fits(text);
    if !is_good {
        let problem = Problem::at(&value.place(), "this can't be an attribute of a cookie").label("not this");
        problems.add(problem.help("a domain is such as \"a.test\", a path such as \"/app\""));
        return None;
    }
    Some(text.to_owned())
}
