//! `tollkeeper serve`

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::clock::Clock;
use crate::config::Config;
use crate::{jobs, log, server};

/// How long blocking work, such as a commit that waits for the disk, may go on after everything else has ended.
const THREADS_GRACE: Duration = Duration::from_secs(1);

pub fn run(config: Config) -> Result<(), String> {
    let _guard = log::init(&config.log);
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(async {
        let stop = stop_signal()?;
        let mut hangups = listen(SignalKind::hangup())?;
        let app = App::new(config, Clock::System)?;
        tokio::spawn({
            let app = app.clone();
            async move {
                while hangups.recv().await.is_some() {
                    app.catalog.order_reload();
                }
            }
        });
        let outcome = server::run_until(app.clone(), stop).await;
        jobs::finish(&app).await;
        outcome
    });
    // A thread may wait for a lock that another process holds; the end doesn't wait for that thread.
    runtime.shutdown_timeout(THREADS_GRACE);
    outcome
}

fn listen(kind: SignalKind) -> Result<Signal, String> {
    signal(kind).map_err(|error| format!("can't listen for signals: {error}"))
}

/// Resolves at the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
