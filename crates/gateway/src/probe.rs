//! Tiny calls of each operation, plain and streamed, which show how an upstream counts tokens. `tollkeeper
//! upstream check --probe` uses them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use tokio::time::timeout;

use crate::answer::{Cleaned, PlainAnswer, PlainError, StreamCleaner};
use crate::errors::UpstreamError;
use crate::operation::Operation;
use crate::request::{Injection, ModelRequest, Target, TargetOptions, named_field};
use crate::sse::Framer;
use crate::transport::{Transport, Transports, request_headers};
use catalog::{Kind, Route};

/// The timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of bytes of an answer, which has a few tokens or one vector.
const MAX_BYTES: usize = 4 << 20;
/// The maximum number of tokens of an answer: some servers don't accept a smaller limit.
const MAX_TOKENS: i64 = 16;

/// The result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counting {
    /// The usage arrived with each event of a stream, so a call that is cut or left is charged exactly.
    Running,
    /// The usage arrived at the end.
    AtTheEnd,
    /// No usage arrived, so tokens are estimated.
    Estimated,
    /// The upstream refused the call, with this status and message.
    Refused(u16, String),
    /// The upstream didn't send a valid answer.
    Failed(String),
}

/// The outcome of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    pub operation: Operation,
    pub is_stream: bool,
    pub counting: Counting,
}

/// Makes a tiny call of each operation of a route's model, one after the other. The upstream charges for
/// these calls as usual.
///
/// # Errors
/// The upstream's settings are invalid, for the returned reason.
pub async fn probe(route: &Route, kind: Kind) -> Result<Vec<Probe>, String> {
    let transport = Transports::default().get(&route.upstream)?;
    let operations = Operation::ALL.into_iter().filter(|operation| {
        let is_vectors = *operation == Operation::Embeddings;
        is_vectors == (kind == Kind::Embeddings) && transport.dialect().has(*operation)
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
    let Ok(request) = ModelRequest::read(operation, &Bytes::from(body(operation, is_stream))) else {
        return Counting::Failed("the probe can't be written".to_owned());
    };
    // As in a call, an injected field that is refused is omitted.
    let mut inject = Injection::default();
    loop {
        let target = Target {
            dialect: transport.dialect(),
            model: &route.model,
            max_completion_tokens: MAX_TOKENS,
            inject,
            options: TargetOptions::default(),
        };
        let (status, error) = match ask_once(transport, &request, &target).await {
            Ok(counting) => return counting,
            Err(refused) => refused,
        };
        let field = error.message.as_deref().and_then(named_field);
        match field.filter(|field| target.adds(*field, &request)) {
            Some(field) => inject = inject.without(field),
            None => {
                let message = error.message.unwrap_or_else(|| "without a message".to_owned());
                return Counting::Refused(status, message);
            }
        }
    }
}

/// Makes one call.
///
/// # Errors
/// The upstream refuses it, with the status.
async fn ask_once(
    transport: &Arc<Transport>,
    request: &ModelRequest,
    target: &Target<'_>,
) -> Result<Counting, (u16, UpstreamError)> {
    let headers = request_headers(None, request.is_stream);
    let response = match transport.send(request.operation.path(), headers, request.write_for(target)).await {
        Ok(response) => response,
        Err(error) => return Ok(Counting::Failed(error.into_reason())),
    };
    let status = response.status();
    let body = match Limited::new(response.into_body(), MAX_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(Counting::Failed(error.to_string())),
    };
    if status != StatusCode::OK {
        return Err((status.as_u16(), UpstreamError::read(&body, &transport.secrets())));
    }
    let read = if request.is_stream {
        read_stream(body, request, target)
    } else {
        match PlainAnswer::read(&body, request, &transport.secrets()) {
            Ok(answer) if answer.usage.is_some() => Ok(Counting::AtTheEnd),
            Ok(_) => Ok(Counting::Estimated),
            Err(PlainError::Error(error)) => Err(error),
            Err(PlainError::Invalid) => Ok(Counting::Failed("its answer isn't JSON".to_owned())),
        }
    };
    read.map_err(|error| (error.status().unwrap_or(200), error))
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use catalog::Catalog;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers requests with a status and a body, each on its own connection.
    async fn serve(answer: fn(&str) -> (u16, &'static str)) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        drop(tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = Vec::new();
                // All request bodies end with a brace.
                while !request.ends_with(b"}") {
                    if connection.read_buf(&mut request).await.unwrap() == 0 {
                        break;
                    }
                }
                let (status, body) = answer(&String::from_utf8_lossy(&request));
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                connection.write_all((head + body).as_bytes()).await.unwrap();
            }
        }));
        url
    }

    #[tokio::test]
    async fn field_that_is_refused_is_left_out() {
        const STREAM: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let url = serve(|request| {
            match (request.contains("stream_options"), request.contains("\"stream\":true")) {
                (true, _) => (400, r#"{"error":{"message":"unknown field `stream_options`"}}"#),
                (false, true) => (200, STREAM),
                (false, false) => (400, r#"{"error":{"message":"no"}}"#),
            }
        });
        let text = format!(
            r#"
            currency = "USD"
            [[models]]
            id = "m"
            kind = "chat"
            description = "A model"
            owned_by = "acme"
            created = 1704067200
            context_length = 100
            max_tokens = 100
            max_requests_per_min = 1
            max_concurrent_requests = 1
            prices = [{{ effective_at = "2020-01-01T00:00:00Z", prompt_tokens = "0", completion_tokens = "0" }}]
            routes = [{{ upstream = "a" }}]
            [[upstreams]]
            id = "a"
            kind = "openai"
            url = "{}"
            "#,
            url.await
        );
        let catalog = Catalog::parse(&text, "test").unwrap();
        let route = &catalog.models().next().unwrap().routes[0];
        let transport = Transports::default().get(&route.upstream).unwrap();
        let ask = async |is_stream| ask(&transport, route, Operation::ChatCompletions, is_stream).await;
        assert_eq!(ask(true).await, Counting::Estimated);
        assert_eq!(ask(false).await, Counting::Refused(400, "no".to_owned()));
    }
}
