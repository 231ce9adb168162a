//! Open streams: the memory of many, and the end of a stream whose client disconnects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::line::Line;
use super::load::micros;
use super::stub::{Form, Stub};
use super::target::Target;

/// The pause before memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// Maximum time to wait for a connection to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the memory of each open stream in KiB, measured with this number of streams.
pub async fn memory(target: &Target, streams: u16) -> Result<f64, String> {
    drop(open(target, 64).await?);
    tokio::time::sleep(SETTLE).await;
    let before = target.resident_mib();
    let lines = open(target, streams).await?;
    tokio::time::sleep(SETTLE).await;
    let after = target.resident_mib();
    drop(lines);
    tokio::time::sleep(SETTLE).await;
    Ok((after - before) * 1024.0 / f64::from(streams))
}

async fn open(target: &Target, streams: u16) -> Result<Vec<Line>, String> {
    let request: Arc<[u8]> = target.request(Form::Endless).into();
    let (mut tasks, mut lines, address) = (JoinSet::new(), Vec::new(), target.address);
    for number in 0..streams {
        let request = Arc::clone(&request);
        tasks.spawn(async move {
            // The connections are opened one after the other, because the queue of new connections is short.
            tokio::time::sleep(Duration::from_millis(u64::from(number))).await;
            let mut line = Line::open(address).await?;
            line.begin(&request, 1).await.map(|()| line)
        });
    }
    while let Some(line) = tasks.join_next().await {
        lines.push(line.map_err(|error| error.to_string())??);
    }
    Ok(lines)
}

/// Measures disconnects. Opens a stream `times` times, disconnects, and waits until the upstream's connection
/// is closed. Returns the waits in microseconds, sorted.
pub async fn leave(target: &Target, stub: &Stub, times: u32) -> Result<Vec<u32>, String> {
    let request = target.request(Form::Endless);
    let mut closed_us = Vec::new();
    // Another target may never close the connections that it opened.
    until_closed(target, stub, 0).await.unwrap_or_default();
    let others = stub.open();
    for _ in 0..times {
        let mut line = Line::open(target.address).await?;
        line.begin(&request, 1).await?;
        // Events are further apart than this pause, so the client disconnects between two of them.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let left = Instant::now();
        drop(line);
        until_closed(target, stub, others).await?;
        let closed = stub.last_closed_at().ok_or("nothing was closed")?;
        closed_us.push(micros(closed.saturating_duration_since(left)));
    }
    closed_us.sort_unstable();
    Ok(closed_us)
}

/// Waits until the upstream has at most `others` open streams.
async fn until_closed(target: &Target, stub: &Stub, others: usize) -> Result<(), String> {
    let begin = Instant::now();
    while stub.open() > others {
        if begin.elapsed() > CLOSE_TIMEOUT {
            return Err(format!("{} continues without a client", target.name));
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}
