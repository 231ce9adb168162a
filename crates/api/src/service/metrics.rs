//! `GET /metrics`, for Prometheus; needs the service token.

use crate::gate::ServiceScope;
use kernel::error::Error;
use monitor::Monitor;
use web::input::NoInput;
use web::reply::PlainText;
use web::route::Operation;

pub const METRICS: Operation = Operation::new("get_metrics");

/// Get the metrics of this process for Prometheus.
pub async fn metrics(monitor: Monitor, _: ServiceScope, _: NoInput) -> Result<PlainText, Error> {
    Ok(PlainText(monitor.metrics().await))
}
