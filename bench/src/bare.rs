//! The floors, which the service is compared with: axum alone, and axum with the database drivers.

mod postgres;
mod sqlite;
mod store;

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use crate::servers::{DATABASE_VARIABLE, PORT_VARIABLE};
use store::{Events, NewRow, Page, Store, User};

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

/// Serves until the process ends, on the same runtime as the service, with the same number of workers.
pub fn serve() -> Result<(), String> {
    let port = std::env::var(PORT_VARIABLE).ok().and_then(|port| port.parse().ok());
    let port: u16 = port.ok_or_else(|| format!("{PORT_VARIABLE} names no port"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let mut router = Router::new()
            .route("/hello", get(|| async { Json(Hello { message: "Hello, world!" }) }))
            .route("/echo", post(|Json(body): Json<Authorize>| async { Json(body) }));
        if let Ok(database) = std::env::var(DATABASE_VARIABLE) {
            router = router.merge(with_database(Store::open(&database).await?));
        }
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        axum::serve(listener.map_err(|error| error.to_string())?, router)
            .await
            .map_err(|error| error.to_string())
    })
}

type Answer<T> = Result<Json<T>, (StatusCode, String)>;

fn with_database(store: Store) -> Router {
    Router::new()
        .route("/point", get(point))
        .route("/page", get(page))
        .route("/write", post(write))
        .route("/events", post(events))
        .with_state(Arc::new(store))
}

async fn point(State(store): State<Arc<Store>>) -> Answer<User> {
    store.user().await.map(Json).map_err(failed)
}

async fn page(State(store): State<Arc<Store>>) -> Answer<Page> {
    store.page().await.map(Json).map_err(failed)
}

async fn write(State(store): State<Arc<Store>>, Json(row): Json<NewRow>) -> Answer<NewRow> {
    store.write(row).await.map(Json).map_err(failed)
}

async fn events(State(store): State<Arc<Store>>, Json(events): Json<Events>) -> Answer<Vec<String>> {
    store.record(&events).await.map_err(failed)?;
    Ok(Json(events.events.into_iter().map(|event| event.id).collect()))
}

fn failed(error: String) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error)
}
