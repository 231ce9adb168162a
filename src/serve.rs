//! The service, from start to stop: both listeners and the jobs.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::jobs;
use billing::rules::credit_limits::DEMO_CREDIT;
use web::server::{AbortOnDrop, Addresses, BoundListeners};

/// Maximum time to wait for the last traces to be exported when stopping.
const TRACES_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time the listeners wait for the application to start, so that early requests wait in the sockets'
/// queues instead of getting a 503.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves both listeners until `shutdown` resolves, then waits for requests in flight up to the grace period.
///
/// # Errors
/// A sentence for the operator: an address that can't be bound, or a database that can't be used.
pub async fn run_until(app: App, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), String> {
    let addresses = Addresses { public: app.config.listen, service: app.config.service_listen };
    let listeners = BoundListeners::bind(addresses, &app.config.tls).await?;
    let mut boot = tokio::spawn({
        let app = app.clone();
        async move { app.boot_until_ready().await }
    });
    let booted = tokio::time::timeout(START_TIMEOUT, &mut boot).await;
    let mut still_booting = match booted {
        Ok(outcome) => outcome.map_err(|error| error.to_string())?.map(|()| false)?,
        Err(_) => true,
    };
    tracing::info!(public = %addresses.public, service = %addresses.service, "listening");
    if app.catalog.now().uses_demo() {
        tracing::warn!(
            "the built-in demo answers model calls: add your inference servers to the catalog as `[[upstreams]]`"
        );
    }
    log_credit(&app);
    let mut jobs = AbortOnDrop(tokio::spawn(jobs::run(app.clone())));
    let _health = AbortOnDrop(tokio::spawn(gateway::health::watch(app.gateway.clone())));
    let mut running = api::routes::serve(listeners, &app.api, &app.routes());
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            outcome = &mut boot, if still_booting => {
                outcome.map_err(|error| error.to_string())??;
                still_booting = false;
            }
            failure = running.failure() => return Err(failure),
        }
    }
    tracing::info!("stopping: no new connections, requests in flight finish");
    app.stop();
    let grace_ms = app.config.shutdown_grace_ms;
    let deadline = Instant::now() + Duration::from_millis(u64::from(grace_ms));
    let (all_finished, cut_calls) = tokio::join!(running.stop(deadline), app.gateway.stop(deadline));
    if cut_calls > 0 {
        tracing::warn!(
            grace_ms,
            cut_calls,
            "some model calls did not finish in time: they were cut off and settled"
        );
    }
    if !all_finished {
        tracing::warn!(grace_ms, "some requests did not finish in time and were cut off");
    }
    // An e-mail whose delivery is cut off is sent again, so it may arrive twice.
    if timeout_at(deadline, &mut jobs.0).await.is_err() {
        tracing::warn!(
            grace_ms,
            "some e-mails were cut off during delivery: they are sent again in two minutes, so they may \
             arrive twice"
        );
    }
    end_traces(&app).await;
    tracing::info!("stopped");
    Ok(())
}

/// Logs the credit that a user's first organization gets, unless `billing.credit_limit` is configured.
fn log_credit(app: &App) {
    if app.config.billing.credit_limit.is_some() {
        return;
    }
    let currency = &app.config.billing.currency;
    if app.catalog.is_demo() {
        tracing::info!(
            "each user's first organization can spend {DEMO_CREDIT} {currency} on the built-in demo, until you \
             configure your own catalog"
        );
    } else {
        tracing::info!(
            "a user's first organization no longer gets the {DEMO_CREDIT} {currency} of credit for the \
             built-in demo: with your own catalog, calls need added (`tollkeeper credit add`) or purchased \
             credit, a credit limit of the organization (`tollkeeper organization set-credit-limit`), or \
             `billing.credit_limit` for new organizations"
        );
    }
}

/// Exports the last traces.
async fn end_traces(app: &App) {
    if let Some(tracer) = &app.frame.tracer
        && let Err(why) = tracer.shut_down(TRACES_TIMEOUT).await
    {
        tracing::warn!("the last traces are lost: {why}");
    }
}
