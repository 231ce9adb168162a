//! Upstreams, the inference servers that model calls are passed to, and the routes of models to them
//! (docs/operations.md#upstreams).

use std::sync::Arc;

use serde::Deserialize;
use strum::IntoStaticStr;

use kernel::secrets::Secret;
use kernel::urls::BaseUrl;

use super::{ComponentPrices, Kind};

/// The upstream of the built-in catalog, which needs no server.
pub const DEMO: &str = "[[upstreams]]\nid = \"demo\"\nkind = \"demo\"\n";

/// An inference server. Counts are for each replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    pub id: String,
    pub kind: UpstreamKind,
    /// `None` for [`UpstreamKind::Demo`] only.
    pub url: Option<BaseUrl>,
    /// Sent as `Authorization: Bearer …`; `None` sends no header.
    pub credential: Option<Secret>,
    /// Maximum number of calls at once.
    pub max_concurrent: u32,
    /// Maximum number of calls that wait for one of those to end.
    pub max_waiting: u32,
    /// Maximum time for which a call waits for a free slot.
    pub max_wait_ms: u64,
    /// Timeout of a new connection.
    pub connect_ms: u64,
    /// Timeout of the first event of an answer, or of the whole one if it isn't streamed.
    pub first_event_ms: u64,
    /// Timeout of each further event.
    pub between_events_ms: u64,
    /// Timeout of a call from its start to its end.
    pub total_ms: u64,
    pub on_disconnect: OnDisconnect,
    /// Fields, tools and references that it gets beyond those of its kind.
    pub allow_fields: Vec<String>,
    /// The fields that are never sent to it. This list takes precedence over the allowed fields.
    pub deny_fields: Vec<String>,
    pub media_urls: MediaUrls,
    /// Callers may learn what is in its cache of prompts.
    pub shared_prefix_cache: bool,
}

/// The program that an upstream runs, which determines the form of its requests and its counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum UpstreamKind {
    Vllm,
    Sglang,
    Llamacpp,
    Tgi,
    /// `OpenAI`, and services with its API.
    Openai,
    /// No server: answers with a fixed text from within the process.
    Demo,
}

impl UpstreamKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Vllm, Self::Sglang, Self::Llamacpp, Self::Tgi, Self::Openai, Self::Demo];

    /// Returns the word in the catalog file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if an upstream of this kind can have models of that kind.
    pub fn serves(self, kind: Kind) -> bool {
        match kind {
            Kind::Chat => true,
            Kind::Embeddings => self != Self::Tgi,
        }
    }
}

/// The treatment of a streamed call whose client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The answer is read until the upstream has counted the tokens that it has generated; then the connection to
    /// it is closed.
    #[default]
    Count,
    /// The connection to the upstream is closed immediately. Tokens that it hasn't counted are estimated.
    Cancel,
    /// The answer is read to its end, for its usage.
    Drain,
}

/// The treatment of images and other media that a call names by their URL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaUrls {
    /// They are fetched here, and the upstream gets them inline.
    #[default]
    Fetch,
    /// Such a call is refused.
    Refuse,
    /// The upstream gets the URL.
    Pass,
}

/// The strategy that spreads calls over the upstreams of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// By load and weight only.
    #[default]
    None,
    /// Calls of an organization whose prompts begin alike prefer the same upstream, which has cached it.
    Prefix,
}

/// A way to serve a model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub upstream: Arc<Upstream>,
    /// The upstream's name of the model.
    pub model: String,
    /// The share of calls, relative to the other routes of the tier; 1 at least.
    pub weight: u32,
    /// Routes of a higher tier are used while no route of a lower one can be.
    pub tier: u32,
    /// The operator's cost of calls here; `None` if it isn't known.
    pub cost: Option<Arc<ComponentPrices>>,
}

#[cfg(test)]
mod tests;
