//! Links from one page to another.

use crate::form_view::Labels;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are percent-encoded in a path or query that is part of a query value.
const VALUE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b':');

/// The maximum length of a path and query that sign-in can return to.
const MAX_NEXT_CHARS: usize = 2_000;

/// The page of the second step of a sign-in.
pub const SECOND_STEP: &str = "/console/sign-in/second-factor";

/// Returns text as the value of a query parameter.
pub fn query_value(text: &str) -> String {
    utf8_percent_encode(text, VALUE).to_string()
}

/// Returns the path and query if sign-in may redirect to them: they are in the console, and no browser can
/// take them for another host.
pub fn next(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("/console")?;
    let is_whole = rest.is_empty() || rest.starts_with(['/', '?']);
    let is_plain =
        text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\' && b != b'#') && !text.contains("//");
    let path = text.split('?').next().unwrap_or_default();
    let has_dots = path.split('/').any(is_dots);
    // Sign-in also doesn't redirect to its own second step, which is below `/sign-in`.
    let is_page = !begins(path);
    (is_whole && is_plain && !has_dots && is_page && text.len() <= MAX_NEXT_CHARS).then_some(text)
}

/// Returns the query that makes sign-in redirect to this path and query; empty if it may not.
pub fn next_query(text: &str) -> String {
    next(text).map(|place| format!("?next={}", query_value(place))).unwrap_or_default()
}

/// Returns `true` for a path that starts a sign-on at a provider. Only the user's own click may open it.
pub fn begins(path: &str) -> bool {
    let parents = ["/console/sign-in/", "/console/reauthenticate/", "/console/account/connections/new/"];
    parents.iter().any(|parent| path.starts_with(parent))
}

/// Returns `true` for `.` and `..`, also percent-encoded, which browsers remove from a path.
fn is_dots(part: &str) -> bool {
    let part = part.to_ascii_lowercase().replace("%2e", ".");
    part == "." || part == ".."
}

/// The characters that are percent-encoded in an `action`.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\');

/// Returns a path and query as requested, for the `action` of a form.
pub fn same_page(path: &str, query: &str) -> String {
    let path = utf8_percent_encode(path, PATH).to_string();
    if query.is_empty() { path } else { format!("{path}?{}", utf8_percent_encode(query, PATH)) }
}

/// Returns a query string with the filters of a page, without other parameters that were sent.
pub fn question(sent: &[(String, String)], filters: Labels) -> String {
    let known = sent.iter().filter(|(name, _)| filters.iter().any(|(filter, _)| filter == name));
    let pairs: Vec<_> = known.map(|(name, value)| format!("{name}={}", query_value(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}
