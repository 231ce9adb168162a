//! The tables `[[upstreams]]` and the routes of models.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use kernel::document::Spanned;
use kernel::document::values::{Table, path, text, whole, word};
use kernel::secrets::{Secret, files};
use kernel::spelling::closest;
use kernel::urls::BaseUrl;

use super::costs::{CostEntry, CostPlace};
use super::{Rules, id, line};
use crate::{Kind, MediaUrls, OnDisconnect, Route, Upstream, UpstreamKind};

/// A function that reads an environment variable.
pub type Environment = fn(&str) -> Result<String, VarError>;

/// The keys of `[[upstreams]]` whose values must not appear in messages, because they may contain a secret.
pub const SECRET_KEYS: [&str; 3] = ["url", "credential_file", "credential_env"];

/// A table `[[upstreams]]`; see [`Upstream`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamEntry {
    #[serde(deserialize_with = "id")]
    id: String,
    url: Option<Spanned<BaseUrl>>,
    #[serde(deserialize_with = "word")]
    kind: UpstreamKind,
    credential_file: Option<Spanned<CredentialFile>>,
    credential_env: Option<Spanned<Variable>>,
    #[serde(default = "number::<64, _>", deserialize_with = "whole::<1, 100_000, _, _>")]
    max_concurrent: u32,
    #[serde(default = "number::<128, _>", deserialize_with = "whole::<0, 100_000, _, _>")]
    max_waiting: u32,
    #[serde(default = "number::<10_000, _>", deserialize_with = "whole::<1, 600_000, _, _>")]
    max_wait_ms: u64,
    #[serde(default = "number::<2_000, _>", deserialize_with = "whole::<1, 60_000, _, _>")]
    connect_ms: u64,
    #[serde(default = "number::<60_000, _>", deserialize_with = "whole::<1, 3_600_000, _, _>")]
    first_event_ms: u64,
    #[serde(default = "number::<300_000, _>", deserialize_with = "whole::<1, 3_600_000, _, _>")]
    between_events_ms: u64,
    #[serde(default = "number::<600_000, _>", deserialize_with = "whole::<1, 86_400_000, _, _>")]
    total_ms: u64,
    on_disconnect: Option<Disconnect>,
    #[serde(default)]
    allow_fields: Vec<Spanned<FieldName>>,
    #[serde(default)]
    deny_fields: Vec<Spanned<FieldName>>,
    #[serde(default, deserialize_with = "word")]
    media_urls: MediaUrls,
    #[serde(default)]
    shared_prefix_cache: bool,
}

/// The fields that the gateway reads or writes in any operation.
const OWN_FIELDS: [&str; 18] = [
    "model",
    "messages",
    "input",
    "prompt",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "n_cmpl",
    "n_predict",
    "timings_per_token",
    "background",
    "previous_response_id",
    "conversation",
    "tools",
];

/// Maximum number of names in a list of fields.
const MAX_FIELD_NAMES: usize = 100;

/// The name of a field, a tool or a reference, such as `tools.web_search`.
#[derive(Deserialize)]
struct FieldName(#[serde(deserialize_with = "field_name")] String);

fn field_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let what = "the name of a field, 1 to 64 lowercase letters, digits and `_`, or several with `.` between";
    text(deserializer, what, |text| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(fits);
        (text.len() <= 64 && text.split('.').all(is_word)).then(|| text.to_owned())
    })
}

#[derive(Deserialize)]
struct CredentialFile(#[serde(deserialize_with = "path")] PathBuf);

#[derive(Deserialize)]
struct Variable(#[serde(deserialize_with = "variable")] String);

#[derive(Deserialize)]
struct Disconnect(#[serde(deserialize_with = "word")] OnDisconnect);

/// An entry of `routes`; see [`Route`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteEntry {
    #[serde(deserialize_with = "id")]
    upstream: String,
    model: Option<UpstreamModel>,
    #[serde(default = "number::<1, _>", deserialize_with = "whole::<1, 1_000, _, _>")]
    weight: u32,
    #[serde(default, deserialize_with = "whole::<0, 1_000, _, _>")]
    tier: u32,
    cost: Option<CostEntry>,
}

#[derive(Deserialize)]
struct UpstreamModel(#[serde(deserialize_with = "line::<256, _>")] String);

fn number<const NUMBER: u32, T: From<u32>>() -> T {
    T::from(NUMBER)
}

/// Reads the name of a variable. Names of tollkeeper's configuration are refused, because their values
/// include the master key.
fn variable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let what = "the name of an environment variable, 1 to 100 uppercase letters, digits and `_`, that doesn't \
                begin with `TOLLKEEPER_`";
    text(deserializer, what, |text| {
        let fits = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let is_name = (1..=100).contains(&text.len()) && text.bytes().all(fits);
        (is_name && !text.starts_with("TOLLKEEPER_")).then(|| text.to_owned())
    })
}

/// An upstream of the file, with its line.
pub struct ParsedUpstream {
    pub line: usize,
    pub upstream: Upstream,
    /// A warning that other users of the system can read the credential's file.
    pub warning: Option<String>,
}

impl Rules<'_> {
    /// Checks an upstream, and reads its credential. Relative paths are relative to `folder`.
    pub fn upstream(
        &mut self,
        entry: Spanned<Table<UpstreamEntry>>,
        folder: &Path,
        environment: Environment,
    ) -> ParsedUpstream {
        let line = self.line(&entry);
        let Table(entry) = entry.into_inner();
        let label = format!("upstream `{}`", entry.id);
        match (&entry.url, entry.kind) {
            (Some(url), UpstreamKind::Demo) => {
                let why = "upstreams of kind `demo` don't have it: remove the key";
                self.refuse(self.line(url), &format!("{label}: `url`: {why}"));
            }
            (None, kind) if kind != UpstreamKind::Demo => {
                self.refuse(line, &format!("{label}: the key `url` is missing"));
            }
            _ => {}
        }
        let (credential, warning) = self.credential(&entry, &label, folder, environment);
        let is_shared = entry.shared_prefix_cache;
        let allow_fields = self.field_names(&label, "allow_fields", entry.allow_fields, |name| match name {
            "cache_salt" if !is_shared => Some("the gateway writes it, unless `shared_prefix_cache` is true"),
            _ => None,
        });
        let deny_fields = self.field_names(&label, "deny_fields", entry.deny_fields, |_| None);
        let upstream = Upstream {
            id: entry.id,
            kind: entry.kind,
            url: entry.url.map(Spanned::into_inner),
            credential,
            max_concurrent: entry.max_concurrent,
            max_waiting: entry.max_waiting,
            max_wait_ms: entry.max_wait_ms,
            connect_ms: entry.connect_ms,
            first_event_ms: entry.first_event_ms,
            between_events_ms: entry.between_events_ms,
            total_ms: entry.total_ms,
            on_disconnect: entry.on_disconnect.map_or_else(OnDisconnect::default, |Disconnect(word)| word),
            allow_fields,
            deny_fields,
            media_urls: entry.media_urls,
            shared_prefix_cache: entry.shared_prefix_cache,
        };
        ParsedUpstream { line, upstream, warning }
    }

    /// Checks a list of field names.
    fn field_names(
        &mut self,
        label: &str,
        key: &str,
        names: Vec<Spanned<FieldName>>,
        why_not: impl Fn(&str) -> Option<&'static str>,
    ) -> Vec<String> {
        let mut known: Vec<String> = Vec::with_capacity(names.len());
        for name in names {
            let line = self.line(&name);
            let FieldName(name) = name.into_inner();
            let why = if OWN_FIELDS.contains(&name.as_str()) {
                Some("the gateway reads it itself")
            } else if known.contains(&name) {
                Some("it is listed twice")
            } else {
                why_not(&name)
            };
            if let Some(why) = why {
                self.refuse(line, &format!("{label}: `{key}`: `{name}` can't be in it: {why}"));
            }
            if known.len() == MAX_FIELD_NAMES {
                self.refuse(line, &format!("{label}: `{key}`: it has more than {MAX_FIELD_NAMES} names"));
                break;
            }
            known.push(name);
        }
        known
    }

    /// Returns the credential, and a warning about its file.
    fn credential(
        &mut self,
        entry: &UpstreamEntry,
        label: &str,
        folder: &Path,
        environment: Environment,
    ) -> (Option<Secret>, Option<String>) {
        let (line, key, read) = match (&entry.credential_file, &entry.credential_env) {
            (None, None) => return (None, None),
            (Some(file), None) => {
                let read = files::read_credential(&folder.join(&file.get_ref().0));
                (self.line(file), "credential_file", read)
            }
            (file, Some(variable)) => {
                let read = match file {
                    Some(_) => Err("`credential_file` is set, too: set only one of them".to_owned()),
                    None => read_variable(&variable.get_ref().0, environment),
                };
                (self.line(variable), "credential_env", read.map(|secret| (secret, None)))
            }
        };
        let place = format!("{label}: `{key}`");
        let is_demo = entry.kind == UpstreamKind::Demo;
        let read = if is_demo {
            Err("upstreams of kind `demo` don't have it: remove the key".to_owned())
        } else {
            read
        };
        match read {
            Ok((secret, warning)) => {
                let warning = warning.map(|why| format!("{}:{line}: {place}: {why}", self.file));
                (Some(secret), warning)
            }
            Err(why) => {
                self.refuse(line, &format!("{place}: {why}"));
                (None, None)
            }
        }
    }

    /// Checks the routes of a model.
    pub fn routes(
        &mut self,
        entries: Vec<Spanned<Table<RouteEntry>>>,
        (id, kind, max_tokens): (&str, Kind, i64),
        upstreams: &[Arc<Upstream>],
    ) -> Vec<Route> {
        let mut routes: Vec<Route> = Vec::new();
        for entry in entries {
            let line = self.line(&entry);
            let Table(RouteEntry { upstream: name, model, weight, tier, cost }) = entry.into_inner();
            let model = model.map_or_else(|| id.to_owned(), |UpstreamModel(model)| model);
            let label = format!("model `{id}`");
            let place = format!("{label}: `routes`");
            let of_cost = CostPlace { label: &label, kind, max_tokens, line };
            let cost = cost.map(|cost| Arc::new(self.cost(cost, of_cost)));
            let Some(upstream) = upstreams.iter().find(|upstream| upstream.id == name) else {
                self.refuse(line, &format!("{place}: {}", unknown_upstream(&name, upstreams)));
                continue;
            };
            if !upstream.kind.serves(kind) {
                let (of, kind) = (upstream.kind.as_str(), kind.as_str());
                let why = format!("upstream `{name}` is of kind {of}, which doesn't serve {kind}");
                self.refuse(line, &format!("{place}: {why}"));
            }
            if routes.iter().any(|other| other.upstream.id == name && other.model == model) {
                let why = format!("two routes have the model `{model}` of upstream `{name}`");
                self.refuse(line, &format!("{place}: {why}"));
            }
            routes.push(Route { upstream: Arc::clone(upstream), model, weight, tier, cost });
        }
        routes
    }
}

fn read_variable(name: &str, environment: Environment) -> Result<Secret, String> {
    let text = match environment(name) {
        Err(VarError::NotPresent) => return Err(format!("the environment variable {name} isn't set")),
        // A value that isn't UTF-8 is treated like an empty value, which is invalid.
        read => read.unwrap_or_default(),
    };
    files::credential(&text).map_err(|rule| format!("the environment variable {name} must contain {rule}"))
}

fn unknown_upstream(name: &str, upstreams: &[Arc<Upstream>]) -> String {
    if upstreams.is_empty() {
        return format!("unknown upstream `{name}`: the file has no table `[[upstreams]]`");
    }
    let ids = upstreams.iter().map(|upstream| upstream.id.as_str());
    let hint = closest(name, ids.clone()).map(|meant| format!(" (did you mean `{meant}`?)"));
    let known: Vec<_> = ids.map(|id| format!("`{id}`")).collect();
    format!("unknown upstream `{name}`{}: the upstreams are {}", hint.unwrap_or_default(), known.join(", "))
}
