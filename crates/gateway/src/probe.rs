//! Tiny calls of each operation at an upstream, plain and streamed, which say how it counts: for `tollkeeper upstream check
//! --probe`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use tokio::time::timeout;

use crate::answer::{Cleaned, PlainAnswer, StreamCleaner};
use crate::errors::UpstreamError;
use crate::operation::Operation;
use crate::request::{Injection, ModelRequest, Target, TargetOptions};
use crate::sse::Framer;
use crate::transport::{Transport, Transports, request_headers};
use catalog::{Kind, Route, UpstreamKind};

/// The timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of an answer: it has a few tokens, or one vector.
const MAX_BYTES: usize = 4 << 20;
/// The most tokens of an answer: some servers take no smaller limit.
const MAX_TOKENS: i64 = 16;

/// What a call has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counting {
    /// The usage came with each event of a stream: a call that is cut or left is charged exactly.
    Running,
    /// The usage came at the end.
    AtTheEnd,
    /// No usage came: tokens are estimated.
    Estimated,
    /// The upstream refused the call, with this status and message.
    Refused(u16, String),
    /// There was no answer that could be understood.
    Failed(String),
}

/// The outcome of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    pub operation: Operation,
    pub is_stream: bool,
    pub counting: Counting,
}

/// Makes a tiny call of each operation that the model of a route has, one after the other. They cost what such calls cost.
///
/// # Errors
/// The upstream's settings can't be used, with the reason.
pub async fn probe(route: &Route, kind: Kind) -> Result<Vec<Probe>, String> {
    let transport = Transports::default().get(&route.upstream)?;
    let operations = Operation::ALL.into_iter().filter(|operation| {
        let is_vectors = *operation == Operation::Embeddings;
        is_vectors == (kind == Kind::Embeddings) && operation.is_served_by(route.upstream.kind)
    });
    let mut probes = Vec::new();
    for operation in operations {
        for is_stream in [false, true] {
            if is_stream && operation == Operation::Embeddings {
                continue;
            }
            let asked = timeout(TIMEOUT, ask(&transport, route, operation, is_stream)).await;
            let late = || Counting::Failed(format!("no answer within {} s", TIMEOUT.as_secs()));
            let counting = asked.unwrap_or_else(|_| late());
            probes.push(Probe { operation, is_stream, counting });
        }
    }
    Ok(probes)
}

async fn ask(transport: &Arc<Transport>, route: &Route, operation: Operation, is_stream: bool) -> Counting {
    let failed = |why: &str| Counting::Failed(why.to_owned());
    let Ok(request) = ModelRequest::read(operation, &Bytes::from(body(operation, is_stream))) else {
        return failed("the probe can't be written");
    };
    let target = Target {
        kind: route.upstream.kind,
        model: &route.model,
        max_completion_tokens: MAX_TOKENS,
        inject: Injection::default(),
        options: TargetOptions::default(),
    };
    let headers = request_headers(None, is_stream);
    let response = match transport.send(operation.path(), headers, request.write_for(&target)).await {
        Ok(response) => response,
        Err(error) => return Counting::Failed(error.into_reason()),
    };
    let status = response.status();
    let body = match Limited::new(response.into_body(), MAX_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Counting::Failed(error.to_string()),
    };
    let refused = |status: u16, error: UpstreamError| {
        Counting::Refused(status, error.message.unwrap_or_else(|| "without a message".to_owned()))
    };
    if status != StatusCode::OK {
        return refused(status.as_u16(), UpstreamError::read(&body, &transport.secrets()));
    }
    let read = if is_stream {
        read_stream(body, &request, &target)
    } else {
        match PlainAnswer::read(&body, &request, &transport.secrets()) {
            Ok(answer) if answer.usage.is_some() => Ok(Counting::AtTheEnd),
            Ok(_) => Ok(Counting::Estimated),
            Err(crate::answer::PlainError::Error(error)) => Err(error),
            Err(crate::answer::PlainError::Invalid) => Ok(failed("its answer isn't JSON")),
        }
    };
    read.unwrap_or_else(|error| refused(error.status().unwrap_or(200), error))
}

/// Reads a whole stream as the gateway does.
fn read_stream(body: Bytes, request: &ModelRequest, target: &Target<'_>) -> Result<Counting, UpstreamError> {
    let mut cleaner = StreamCleaner::new(request, target, Vec::new());
    let mut framer = Framer::new();
    framer.push(body);
    let mut is_running = false;
    while let Ok(Some(frame)) = framer.next_event() {
        match cleaner.clean(&frame) {
            Cleaned::Error(error) => return Err(error),
            Cleaned::Forward(_) | Cleaned::Drop => {}
            Cleaned::Last(_) | Cleaned::Invalid => break,
        }
        is_running |= cleaner.counter().is_counting() && !cleaner.counter().is_finished();
    }
    cleaner.end_of_body();
    let counter = cleaner.counter();
    Ok(match (counter.is_complete(), counter.has_usage(), is_running) {
        (false, ..) => Counting::Failed("its stream ended with an unfinished answer".to_owned()),
        (true, true, true) => Counting::Running,
        (true, true, false) => Counting::AtTheEnd,
        (true, false, _) => Counting::Estimated,
    })
}

fn body(operation: Operation, is_stream: bool) -> String {
    let contents = match operation {
        Operation::ChatCompletions | Operation::Messages => {
            r#""messages":[{"role":"user","content":"Hello"}]"#
        }
        Operation::Completions => r#""prompt":"Hello""#,
        Operation::Responses | Operation::Embeddings => r#""input":"Hello""#,
    };
    let stream = if is_stream { r#","stream":true"# } else { "" };
    format!(r#"{{"model":"-",{contents}{stream}}}"#)
}

/// Returns whether a kind of upstream should count with each event of this operation's streams.
pub const fn should_run(kind: UpstreamKind, operation: Operation) -> bool {
    match operation {
        Operation::ChatCompletions | Operation::Completions => {
            kind.has_continuous_usage() || kind.has_timings()
        }
        Operation::Responses => kind.has_timings(),
        Operation::Messages | Operation::Embeddings => false,
    }
}
