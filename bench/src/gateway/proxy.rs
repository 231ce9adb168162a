//! The floor: a bare proxy based on hyper, with the same HTTP client as the gateway. It doesn't read bodies,
//! and has no keys, models or money.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::servers::PORT_VARIABLE;

/// The variable with the address of the upstream.
pub const UPSTREAM_VARIABLE: &str = "BENCH_UPSTREAM";

type Upstream = Client<HttpConnector, Incoming>;
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Serves until the process ends, on the service's runtime.
pub fn serve() -> Result<(), String> {
    let port = std::env::var(PORT_VARIABLE).ok().and_then(|port| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| format!("{PORT_VARIABLE} names no port"))?;
    let upstream =
        std::env::var(UPSTREAM_VARIABLE).map_err(|error| format!("{UPSTREAM_VARIABLE}: {error}"))?;
    let authority = HeaderValue::try_from(&upstream).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(accept(port, authority))
}

async fn accept(port: u16, authority: HeaderValue) -> Result<(), String> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(4))
        .build(connector);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.map_err(|error| error.to_string())?;
    loop {
        let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (client, authority) = (client.clone(), authority.clone());
        let service = service_fn(move |request| pass(client.clone(), authority.clone(), request));
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        drop(tokio::spawn(connection));
    }
}

/// Forwards a request and its answer.
async fn pass(
    client: Upstream,
    authority: HeaderValue,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let uri = Uri::builder()
        .scheme("http")
        .authority(authority.as_bytes())
        .path_and_query(request.uri().path_and_query().map_or("/", |path| path.as_str()));
    let Ok(uri) = uri.build() else { return Ok(failed(StatusCode::BAD_REQUEST)) };
    *request.uri_mut() = uri;
    request.headers_mut().insert(HOST, authority);
    request.headers_mut().remove(CONNECTION);
    Ok(match client.request(request).await {
        Ok(mut answer) => {
            answer.headers_mut().remove(CONNECTION);
            answer.headers_mut().remove(TRANSFER_ENCODING);
            answer.map(Either::Left)
        }
        Err(_) => failed(StatusCode::BAD_GATEWAY),
    })
}

fn failed(status: StatusCode) -> Answer {
    let mut answer = Response::new(Either::Right(Full::default()));
    *answer.status_mut() = status;
    answer
}
