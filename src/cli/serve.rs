//! `tollkeeper serve`

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::config::{self, Config};
use crate::{jobs, serve};
use kernel::clock::Clock;
use logging as log;

/// Approximate number of open files besides connections: the database, the log, certificates.
#[cfg(target_os = "linux")]
const OTHER_FILES: u64 = 100;
/// Maximum time that blocking work, such as a commit waiting for the disk, may continue after everything else
/// has ended.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);

pub fn run(config: Config) -> Result<(), String> {
    let _guard = log::init(&config.log);
    disable_core_dumps();
    for warning in config::warnings(&config) {
        tracing::warn!("{warning}");
    }
    raise_open_file_limit(config.server.max_connections);
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(async {
        let stop = stop_signal()?;
        let mut hangups = signal_stream(SignalKind::hangup())?;
        let app = App::new(config, Clock::System)?;
        tokio::spawn({
            let app = app.clone();
            async move {
                while hangups.recv().await.is_some() {
                    app.catalog.request_reload();
                    app.accounts.providers.request_reload();
                }
            }
        });
        let outcome = serve::run_until(app.clone(), stop).await;
        jobs::finish(&app).await;
        outcome
    });
    // A thread may wait for another process's lock, which must not delay the exit.
    runtime.0.shutdown_timeout(BLOCKING_TIMEOUT);
    outcome
}

/// Disables core dumps, which would contain secrets in memory. With a limit of one byte Linux neither writes
/// a file nor calls a handler; with zero it calls a handler.
#[cfg(target_os = "linux")]
fn disable_core_dumps() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Core).maximum.map_or(1, |most| most.min(1));
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(maximum), maximum: Some(maximum) }) {
        tracing::warn!("a crash may leave a core dump with secrets in it: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
fn disable_core_dumps() {}

/// Raises the limit of open files as far as the system allows. The default is often 1,024, for programs that
/// use `select`, and each connection is a file.
#[cfg(target_os = "linux")]
fn raise_open_file_limit(max_connections: u32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let allowed = if raised { maximum } else { current };
    let wanted = u64::from(max_connections).saturating_mul(2).saturating_add(OTHER_FILES);
    if allowed.is_some_and(|allowed| allowed < wanted) {
        tracing::warn!(
            allowed,
            wanted,
            "the limit of open files is too low for `server.max_connections`: raise it (`ulimit -n`, LimitNOFILE)"
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn raise_open_file_limit(_: u32) {}

fn signal_stream(kind: SignalKind) -> Result<Signal, String> {
    signal(kind).map_err(|error| format!("can't listen for signals: {error}"))
}

/// Returns a future that resolves at the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, String> {
    let (mut terminate, mut interrupt) =
        (signal_stream(SignalKind::terminate())?, signal_stream(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
