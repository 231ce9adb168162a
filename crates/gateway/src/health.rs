//! Health checks, which detect that an upstream is down before a call fails on it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use tokio::time::{Instant, sleep, timeout};

use crate::dialect::Dialect;
use crate::gateway::Gateway;
use crate::learning;
use crate::lenient::{Gather, Lenient, Name};
use crate::transport::{Transport, Transports};
use catalog::Upstream;

/// The time between two checks of an upstream.
const INTERVAL: Duration = Duration::from_secs(5);
/// The timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a request for the models.
const MODELS_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks the upstreams of the current catalog periodically, forever.
pub async fn watch(gateway: Gateway) {
    loop {
        check_all(&gateway).await;
        learning::publish(gateway.transports(), gateway.counters(), &gateway.clock);
        gateway.report_memory();
        sleep(INTERVAL).await;
    }
}

/// Checks each upstream of the current catalog once, except providers, which have no health check.
pub async fn check_all(gateway: &Gateway) {
    let catalog = Arc::clone(&gateway.catalog.now());
    let routes = catalog.models().flat_map(|model| &model.routes);
    let routed: HashSet<_> = routes.map(|route| route.upstream.id.as_str()).collect();
    let checked = |upstream: &&Arc<Upstream>| routed.contains(upstream.id.as_str());
    join_all(catalog.upstreams().iter().filter(checked).map(|upstream| check(gateway, upstream))).await;
}

async fn check(gateway: &Gateway, upstream: &Arc<Upstream>) {
    let path = Dialect::of(upstream.kind).health_path;
    let (Ok(transport), Some(path)) = (gateway.transports().get(upstream), path) else { return };
    // A server that responds with a status below 500 works, even if it doesn't have this path.
    let outcome = match timeout(TIMEOUT, transport.get_health(path)).await {
        Ok(Ok(status)) if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED => {
            Err(format!("its `{path}` answers {}", status.as_u16()))
        }
        Ok(Ok(_)) => Ok(()),
        Ok(Err(why)) => Err(why),
        Err(_) => Err(format!("its `{path}` doesn't answer within {} s", TIMEOUT.as_secs())),
    };
    let is_up = outcome.is_ok();
    let has_changed = transport.note_health(is_up);
    if let (true, Err(why)) = (has_changed, &outcome) {
        tracing::warn!(
            upstream = upstream.id,
            "an upstream is down, and gets no calls while others are up: {why}"
        );
    } else if has_changed {
        tracing::info!(upstream = upstream.id, "an upstream is up again");
    }
    gateway.counters().note_health(&upstream.id, transport.is_up());
}

/// A model in an upstream's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpstreamModel {
    pub id: String,
    /// The maximum context, in tokens, if the upstream reports it.
    pub context_length: Option<i64>,
}

/// A list of models in OpenAI's form, with the members that servers add.
#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

/// An entry of the list. Members that servers add are used if they have the expected type.
#[derive(Deserialize)]
struct ListedModel {
    id: String,
    /// vLLM and SGLang.
    #[serde(default)]
    max_model_len: Lenient<Context>,
    /// vLLM: the base model of a LoRA adapter, whose context also applies to the adapter.
    #[serde(default)]
    parent: Lenient<String>,
    /// llama.cpp.
    #[serde(default)]
    meta: Lenient<ModelMeta>,
}

#[derive(Default)]
struct ModelMeta {
    /// The context of each slot of the server.
    n_ctx: Context,
}

/// The length of a context, in tokens.
#[derive(Clone, Copy, Default)]
struct Context(Option<i64>);

impl Gather<'_> for Context {
    fn integer(&mut self, number: i64) {
        self.0 = (number > 0).then_some(number);
    }

    fn text(&mut self, text: &str) {
        if let Ok(number) = text.parse() {
            self.integer(number);
        }
    }
}

impl<'de> Gather<'de> for ModelMeta {
    fn object<A: MapAccess<'de>>(&mut self, mut members: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = members.next_key()? {
            match name.as_ref() {
                "n_ctx" => self.n_ctx = members.next_value::<Lenient<Context>>()?.0,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl ModelList {
    /// Returns the models with their contexts, which servers report in different members.
    fn models(self) -> Vec<UpstreamModel> {
        let own = |model: &ListedModel| model.max_model_len.0.0.or(model.meta.0.n_ctx.0);
        let of_parent =
            |model: &ListedModel| self.data.iter().find(|other| other.id == model.parent.0).and_then(own);
        let context = |model: &ListedModel| own(model).or_else(|| of_parent(model));
        self.data
            .iter()
            .map(|model| UpstreamModel { id: model.id.clone(), context_length: context(model) })
            .collect()
    }
}

/// The models of an upstream and the time it took to list them, or the reason for the failure, as a message
/// for the operator.
pub type Listing = Result<(Vec<UpstreamModel>, Duration), String>;

/// Requests the models of all these upstreams at once.
pub async fn list_models(upstreams: impl Iterator<Item = &Arc<Upstream>>) -> Vec<Listing> {
    join_all(upstreams.map(list_models_of)).await
}

async fn list_models_of(upstream: &Arc<Upstream>) -> Listing {
    let started = Instant::now();
    let transport: Arc<Transport> = Transports::default().get(upstream)?;
    let answer = timeout(MODELS_TIMEOUT, transport.get_models()).await;
    let (status, body) =
        answer.map_err(|_| format!("it doesn't answer within {} s", MODELS_TIMEOUT.as_secs()))??;
    let hint = match status.as_u16() {
        200 => None,
        401 | 403 => Some("it refuses the credential"),
        404 => Some("it has no such path: the URL usually ends with `/v1`"),
        _ => Some("see its log"),
    };
    if let Some(hint) = hint {
        return Err(format!("`GET /models` answers {}: {hint}", status.as_u16()));
    }
    let list: ModelList = serde_json::from_slice(&body)
        .map_err(|_| "`GET /models` answers with something other than a list of models".to_owned())?;
    Ok((list.models(), started.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_members_leave_a_list_readable() {
        let list = r#"{"object":"list","data":[
            {"id":"a","max_model_len":4096,"parent":null,"meta":null},
            {"id":"b","meta":{"n_ctx":8192,"size":7}},
            {"id":"c","parent":"a"},
            {"id":"d","meta":"none","parent":{"id":"a"},"max_model_len":"4096"},
            {"id":"e","meta":{"n_ctx":[1]},"parent":7},
            {"id":"f","meta":{"n_ctx":2048},"max_model_len":-1}]}"#;
        let models = serde_json::from_str::<ModelList>(list).unwrap().models();
        let contexts: Vec<_> = models.iter().map(|model| (model.id.as_str(), model.context_length)).collect();
        let expected = [
            ("a", Some(4_096)),
            ("b", Some(8_192)),
            ("c", Some(4_096)),
            ("d", Some(4_096)),
            ("e", None),
            ("f", Some(2_048)),
        ];
        assert_eq!(contexts, expected);
    }
}
