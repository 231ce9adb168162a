//! `tollkeeper serve`

use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::clock::Clock;
use crate::config::Config;
use crate::{log, server};

pub fn run(config: Config) -> Result<(), String> {
    let _guard = log::init(&config.log);
    super::runtime()?.block_on(async {
        let stop = stop_signal()?;
        let app = App::new(config, Clock::System)?;
        server::run_until(app, stop).await
    })
}

/// Resolves at the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("can't listen for signals: {error}"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
