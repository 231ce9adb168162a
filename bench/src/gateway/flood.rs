//! Floods of the gateway by one organization, by means that cost it little, while another organization calls
//! at an even rate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tollkeeper::kernel::background::BackgroundThreads;

use super::figures::Output;
use super::load::{self, Sample};
use super::stub::{Form, Stub};
use super::target::Target;
use crate::report::{percentile, shown};

/// Number of connections of the flood.
const CONNECTIONS: usize = 64;
/// Pause after a connection was refused or closed, so that the flood doesn't use up the load's processor.
const PAUSE: Duration = Duration::from_millis(50);
/// Time that each connection of the flood stays open.
const HELD: Duration = Duration::from_secs(20);
/// Size of a large body, in bytes: the maximum of a model call.
const LARGE_BYTES: usize = 16 << 20;

/// A kind of flood.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flood {
    None,
    /// Announces large bodies, and sends only the beginning of each.
    Bodies,
    /// Plain calls with large bodies.
    Plain,
    /// Large plain answers that are never read.
    Unread,
    /// Long streams read at 4 KiB/s.
    Slow,
    /// Streams abandoned after the first event.
    Abandoned,
}

impl Flood {
    const ALL: [(Self, &str); 6] = [
        (Self::None, "alone"),
        (Self::Bodies, "unfinished bodies"),
        (Self::Plain, "large plain calls"),
        (Self::Unread, "unread answers"),
        (Self::Slow, "slow readers"),
        (Self::Abandoned, "abandoned streams"),
    ];
}

/// Starts the upstream of a flood, which runs until this process exits. In reality, the clients and the
/// upstream of a flood would be on other computers, so they get separate threads with a lower priority. On
/// the thread of the measured calls, the flood's own work would be part of the measured times.
pub async fn start_upstream() -> Result<SocketAddr, String> {
    let (started, address) = oneshot::channel();
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let stub = Stub::start().await;
            started.send(stub.map(|stub| stub.address)).unwrap_or_default();
            std::future::pending().await
        })
    };
    let threads = BackgroundThreads::new("upstream", 1);
    drop(tokio::spawn(async move { threads.run::<std::io::Result<()>>(serve).await }));
    address.await.map_err(|_| "the thread of the flood's upstream has failed")?
}

/// Measures the calls of `target` during each flood by `attacker`, another organization on the same service.
pub async fn run(
    output: Output,
    target: &Target,
    attacker: &Target,
    per_s: u32,
    length: Duration,
) -> Result<(), String> {
    let title = format!("Plain calls, {per_s} per second, during a flood over {CONNECTIONS} connections");
    let names = ["calls/s", "p50 µs", "p99 µs", "max MiB", "flood/s"];
    output.group(&title, &names.map(str::to_owned));
    let threads = BackgroundThreads::new("flood", 1);
    for (flood, name) in Flood::ALL {
        let until = Instant::now() + length;
        let (address, request) = (attacker.address, request(flood, attacker));
        let attack = threads.run(move || attack(flood, address, &request, until));
        let memory = async {
            let mut most_mib = 0_f64;
            while Instant::now() < until {
                most_mib = most_mib.max(target.resident_mib());
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            most_mib
        };
        let load = load::paced(target, Form::Plain, per_s, length);
        let (sample, most_mib, attempts) = tokio::join!(load, memory, attack);
        let attempts = attempts.and_then(Result::ok).ok_or("the flood's thread has failed")??;
        let attempts_per_s = f64::from(attempts) / length.as_secs_f64();
        output.line(&row(name, sample, most_mib, attempts_per_s));
        // Calls of the flood that are still in progress end during this pause.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

fn row(name: &str, sample: Result<Sample, String>, most_mib: f64, attempts_per_s: f64) -> Vec<String> {
    let (memory, attempts) = (shown(Some(most_mib), 0, ""), shown(Some(attempts_per_s), 1, ""));
    match sample {
        Ok(sample) => vec![
            name.to_owned(),
            shown(Some(sample.calls_per_s), 1, ""),
            shown(percentile(&sample.whole_us, 50), 0, ""),
            shown(percentile(&sample.whole_us, 99), 0, ""),
            memory,
            attempts,
        ],
        Err(error) => vec![name.to_owned(), error, String::new(), String::new(), memory, attempts],
    }
}

/// Returns the request that each connection of a flood sends.
fn request(flood: Flood, attacker: &Target) -> Arc<[u8]> {
    let bytes = match flood {
        Flood::None | Flood::Unread => attacker.request(Form::Large),
        Flood::Slow => attacker.request(Form::Long),
        Flood::Abandoned => attacker.request(Form::Slow),
        Flood::Bodies => attacker.padded_request(Form::Plain, LARGE_BYTES),
        Flood::Plain => attacker.padded_request(Form::Plain, LARGE_BYTES / 4),
    };
    bytes.into()
}

/// Floods this address until a time. Returns the number of calls started.
fn attack(flood: Flood, address: SocketAddr, request: &Arc<[u8]>, until: Instant) -> Result<u32, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let attempts = runtime.map_err(|error| error.to_string())?.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in (0..CONNECTIONS).filter(|_| flood != Flood::None) {
            tasks.spawn(repeat(flood, address, Arc::clone(request), until));
        }
        tasks.join_all().await
    });
    Ok(attempts.iter().sum())
}

/// Makes one call after another. The last one is abandoned at `until`.
async fn repeat(flood: Flood, address: SocketAddr, request: Arc<[u8]>, until: Instant) -> u32 {
    let mut attempts = 0;
    while Instant::now() < until {
        attempts += 1;
        // Most calls are refused, as intended.
        drop(tokio::time::timeout_at(until.into(), once(flood, address, &request)).await);
        tokio::time::sleep(PAUSE).await;
    }
    attempts
}

/// Makes one call of a flood, and keeps it open for a while.
async fn once(flood: Flood, address: SocketAddr, request: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut piece = vec![0; 4 << 10];
    let end = Instant::now() + HELD;
    match flood {
        Flood::None => {}
        Flood::Bodies => {
            // Send the headers, and a sixteenth of the body spread over that time.
            for part in request.chunks(64 << 10).take(16) {
                stream.write_all(part).await?;
                tokio::time::sleep(HELD / 16).await;
            }
        }
        Flood::Plain => {
            stream.write_all(request).await?;
            while stream.read(&mut piece).await? == piece.len() {}
        }
        Flood::Unread => {
            stream.write_all(request).await?;
            tokio::time::sleep(HELD).await;
        }
        Flood::Slow => {
            stream.write_all(request).await?;
            while Instant::now() < end && stream.read(&mut piece).await? > 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        Flood::Abandoned => {
            stream.write_all(request).await?;
            let mut byte = [0];
            stream.read_exact(&mut byte).await?;
        }
    }
    Ok(())
}
