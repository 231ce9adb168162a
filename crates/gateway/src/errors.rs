//! Errors of upstreams: a short message that a client may see.
//!
//! Only messages in a known JSON form are forwarded, never a page or plain text. Addresses, credentials and
//! ids of the operator's account with the provider are removed.

mod meaning;

use std::net::{IpAddr, SocketAddr};

use hyper::body::Bytes;
use kernel::ids::ModelCallId;
use serde::de::{MapAccess, SeqAccess};

use crate::json::Object;
use crate::lenient::{Gather, Lenient, Name};

pub use meaning::UpstreamError;

/// Maximum number of bytes that are read from an upstream's error.
pub(crate) const MAX_ERROR_BYTES: usize = 64 << 10;
/// The maximum number of characters of a message.
pub const MAX_MESSAGE_CHARS: usize = 1_000;
/// Maximum number of entries of a list of invalid fields that a message includes.
const MAX_FIELDS: usize = 5;
/// The replacement of an upstream's address.
const PLACEHOLDER: &str = "upstream";
/// The replacement of a credential, or of an id of the operator's account with a provider.
const HIDDEN: &str = "(hidden)";
/// Prefixes of credentials and ids of OpenAI and Anthropic, and the minimum number of characters after a
/// prefix.
const ACCOUNT_PREFIXES: [&str; 3] = ["sk-", "org-", "proj_"];
const MIN_ID_CHARS: usize = 8;

/// Returns the message of an upstream's error body, with every string of `secrets` (the host, the host with
/// its port, the URL) replaced by "upstream"; `None` if the body has none of the known forms:
///
/// * `{"error": {"message": "…"}}`, of OpenAI, vLLM, SGLang and llama.cpp
/// * `{"object": "error", "message": "…"}`, of older vLLM and SGLang
/// * `{"type": "error", "message": "…"}`, in a stream of a response
/// * `{"error": "…"}`, of TGI
/// * `{"detail": "…"}` and `{"detail": [{"loc": […], "msg": "…"}]}`, of FastAPI
pub fn message<S: AsRef<str>>(body: &Bytes, secrets: &[S]) -> Option<String> {
    let object = Object::read(body.clone(), &["error", "object", "type", "message", "detail"]).ok()?;
    let found = match object.slice("error") {
        Some(error) => text(&error).or_else(|| text(Object::read(error, &["message"]).ok()?.get("message")?)),
        None if ["object", "type"].into_iter().any(|name| object.get(name) == Some(b"\"error\"")) => {
            text(object.get("message")?)
        }
        None => detail(object.get("detail")?),
    };
    let secrets = secrets.iter().map(AsRef::as_ref).filter(|secret| !secret.is_empty()).collect();
    presentable(&found?, secrets)
}

/// Logs the message of an upstream's error at debug level, because it may repeat a part of a prompt.
pub(crate) fn log(call_id: ModelCallId, upstream: &str, message: Option<&str>) {
    tracing::debug!(%call_id, upstream, message, "an upstream reports an error");
}

/// Returns a message with a model's name replaced wherever it is a whole word.
pub fn rename(message: &str, from: &str, to: &str) -> String {
    if from.is_empty() || from == to {
        return message.to_owned();
    }
    let is_part =
        |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || "-_/.".contains(c));
    let mut renamed = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(from) {
        renamed.push_str(before);
        // A dot or a dash may end a sentence.
        let next = after.strip_prefix(['.', '-']).unwrap_or(after).chars().next();
        let is_whole = !is_part(renamed.chars().next_back())
            && !after.starts_with(|c: char| c.is_alphanumeric() || "_/".contains(c))
            && (!after.starts_with(['.', '-']) || !next.is_some_and(char::is_alphanumeric));
        renamed.push_str(if is_whole { to } else { from });
        rest = after;
    }
    renamed + rest
}

/// Reads a JSON string.
fn text(value: &[u8]) -> Option<String> {
    serde_json::from_slice(value).ok()
}

fn detail(value: &[u8]) -> Option<String> {
    text(value).or_else(|| {
        let Lenient(Fields(fields)) = serde_json::from_slice(value).ok()?;
        (!fields.is_empty()).then(|| fields.join("; "))
    })
}

/// Removes control characters and secrets, and limits the length.
fn presentable(text: &str, mut secrets: Vec<&str>) -> Option<String> {
    let visible = text.chars().filter_map(|character| match character {
        '\n' | '\r' | '\t' => Some(' '),
        // Marks that are invisible or reorder text are removed, because they could also split an address.
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{ad}' => None,
        character => (!character.is_control()).then_some(character),
    });
    let mut message: String = visible.collect();
    // The longest secret is replaced first, because a URL contains its host.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        message = replaced(&message, secret);
    }
    let message = without_places(&message);
    // The length is limited last, because a truncated address wouldn't be found.
    let message = message.trim();
    if message.is_empty() {
        return None;
    }
    if message.chars().nth(MAX_MESSAGE_CHARS).is_none() {
        return Some(message.to_owned());
    }
    let mut cut: String = message.chars().take(MAX_MESSAGE_CHARS - 1).collect();
    cut.push('…');
    Some(cut)
}

/// Replaces words that are addresses of any machine, credentials, or ids of an account with a provider.
fn without_places(text: &str) -> String {
    let is_edge = |character: char| character.is_whitespace() || "\"'`()<>,;".contains(character);
    let mut kept = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_edge) {
        let whole = piece.strip_suffix(is_edge).unwrap_or(piece);
        let word = whole.trim_end_matches(['.', ':', '!', '?']);
        let host = word.trim_start_matches('[').trim_end_matches(']');
        let is_address = word.contains("://")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4() || host.len() > 4)
            || word.parse::<SocketAddr>().is_ok();
        let value = word.rsplit('=').next().unwrap_or(word);
        let is_account = ACCOUNT_PREFIXES
            .into_iter()
            .any(|prefix| value.strip_prefix(prefix).is_some_and(|rest| rest.len() >= MIN_ID_CHARS));
        let replacement = match (is_address, is_account) {
            (true, _) => PLACEHOLDER,
            (false, true) => HIDDEN,
            (false, false) => word,
        };
        kept.push_str(replacement);
        kept.push_str(piece.get(word.len()..).unwrap_or_default());
    }
    kept
}

/// Replaces every occurrence of a secret, ignoring case, because hosts are case-insensitive.
fn replaced(text: &str, secret: &str) -> String {
    // Only ASCII is lowercased, so that positions in both strings are the same.
    let (lower, secret) = (text.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let mut kept = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in lower.match_indices(&secret) {
        kept.push_str(text.get(from..at).unwrap_or_default());
        kept.push_str(PLACEHOLDER);
        from = at + secret.len();
    }
    kept.push_str(text.get(from..).unwrap_or_default());
    kept
}

/// The invalid fields that FastAPI lists, as messages.
#[derive(Default)]
struct Fields(Vec<String>);

/// An invalid field. Its `input` repeats the client's value, so it is omitted.
#[derive(Default)]
struct InvalidField {
    path: Path,
    message: String,
}

/// The path of a field, as names and numbers.
#[derive(Default)]
struct Path(Vec<String>);

impl<'de> Gather<'de> for Fields {
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(InvalidField { path, message })) = items.next_element()? {
            if self.0.len() < MAX_FIELDS && !message.is_empty() {
                let is_nameless = path.0.is_empty();
                self.0.push(if is_nameless { message } else { format!("{}: {message}", path.0.join(".")) });
            }
        }
        Ok(())
    }
}

impl<'de> Gather<'de> for InvalidField {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "loc" => self.path = members.next_value::<Lenient<Path>>()?.0,
                "msg" => self.message = members.next_value::<Lenient<String>>()?.0,
                _ => drop(members.next_value::<serde::de::IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> Gather<'de> for Path {
    fn array<A: SeqAccess<'de>>(&mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(Lenient(part)) = items.next_element::<Lenient<String>>()? {
            self.0.push(part);
        }
        Ok(())
    }
}

impl Gather<'_> for String {
    fn text(&mut self, text: &str) {
        text.clone_into(self);
    }

    fn integer(&mut self, number: i64) {
        *self = number.to_string();
    }
}

#[cfg(test)]
mod tests;
