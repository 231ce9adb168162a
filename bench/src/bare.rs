//! What the service is held against: axum with nothing around it.

use std::net::Ipv4Addr;

use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::servers::PORT_VARIABLE;

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

/// The body of `POST /service/v1/authorize`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorize {
    pub credential: String,
    pub client_address: Option<std::net::IpAddr>,
    pub operation: String,
    pub model: Option<String>,
    pub max_tokens: Option<i64>,
    pub estimated_prompt_tokens: Option<i64>,
    pub reserve: Option<bool>,
}

/// Serves both until the process ends, as the service does: the same runtime, the same `axum::serve`.
pub fn serve() -> Result<(), String> {
    let port = std::env::var(PORT_VARIABLE).ok().and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| format!("{PORT_VARIABLE} names no port"))?;
    let router = Router::new()
        .route("/hello", get(|| async { Json(Hello { message: "Hello, world!" }) }))
        .route("/echo", post(|Json(body): Json<Authorize>| async { Json(body) }));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        axum::serve(listener.map_err(|error| error.to_string())?, router)
            .await
            .map_err(|error| error.to_string())
    })
}
