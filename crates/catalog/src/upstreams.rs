//! Upstreams, the inference servers that model calls are forwarded to, and the routes from models to
//! upstreams (docs/operations.md#upstreams).

use std::sync::Arc;

use serde::Deserialize;
use strum::IntoStaticStr;

use kernel::secrets::Secret;
use kernel::urls::BaseUrl;

use super::{ComponentPrices, Kind};

/// The upstream of the built-in catalog, which needs no server.
pub const DEMO: &str = "[[upstreams]]\nid = \"demo\"\nkind = \"demo\"\n";

/// An inference server. The limits apply to each replica separately.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    pub id: String,
    pub kind: UpstreamKind,
    /// The base URL; `None` only for [`UpstreamKind::Demo`].
    pub url: Option<BaseUrl>,
    /// The credential, which is sent as `Authorization: Bearer …`; if `None`, the header isn't sent.
    pub credential: Option<Secret>,
    /// Maximum number of concurrent calls.
    pub max_concurrent: u32,
    /// Maximum number of calls that wait for a free slot.
    pub max_waiting: u32,
    /// Maximum time for which a call waits for a free slot, in milliseconds.
    pub max_wait_ms: u64,
    /// Timeout for opening a connection, in milliseconds.
    pub connect_ms: u64,
    /// Timeout for the first event of a streamed answer, in milliseconds.
    pub first_event_ms: u64,
    /// Timeout for each further event, in milliseconds.
    pub between_events_ms: u64,
    /// Timeout for the whole call, in milliseconds.
    pub total_ms: u64,
    pub on_disconnect: OnDisconnect,
    /// Fields, tools and references that are forwarded in addition to those of the upstream's kind.
    pub allow_fields: Vec<String>,
    /// The fields that are never forwarded. This list takes precedence over the allowed fields.
    pub deny_fields: Vec<String>,
    pub media_urls: MediaUrls,
    /// `true` if callers may see which tokens of a prompt came from the upstream's cache.
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
    /// No server. The process itself answers with a fixed text.
    Demo,
}

impl UpstreamKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Vllm, Self::Sglang, Self::Llamacpp, Self::Tgi, Self::Openai, Self::Demo];

    /// Returns the name in the catalog file.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if upstreams of this kind can serve models of that kind.
    pub fn serves(self, kind: Kind) -> bool {
        match kind {
            Kind::Chat => true,
            Kind::Embeddings => self != Self::Tgi,
        }
    }
}

/// The handling of a streamed call whose client disconnects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDisconnect {
    /// The answer is read until the upstream has counted the generated tokens. Then the connection to it is
    /// closed.
    #[default]
    Count,
    /// The connection to the upstream is closed immediately. Tokens that it hasn't counted are estimated.
    Cancel,
    /// The answer is read to its end, for its usage.
    Drain,
}

/// The handling of images and other media that a call refers to by URL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaUrls {
    /// The gateway fetches them, and sends them to the upstream inline.
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
    /// An organization's calls whose prompts share a prefix prefer the same upstream, which has cached the
    /// prefix.
    Prefix,
}

/// An upstream that serves a model, with the model's name there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub upstream: Arc<Upstream>,
    /// The upstream's name of the model.
    pub model: String,
    /// The share of calls, relative to the other routes of the tier; at least 1.
    pub weight: u32,
    /// The tier. Routes of a higher tier are used only while no route of a lower tier is usable.
    pub tier: u32,
    /// The operator's cost of calls on this route; `None` if it isn't known.
    pub cost: Option<Arc<ComponentPrices>>,
}

#[cfg(test)]
mod tests;
