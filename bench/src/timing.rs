//! Measures whether the latency of an answer reveals an account. Logins and requests for a new password are
//! sent in pairs, with an address that has an account and one that doesn't, in random order. The medians are
//! compared.
//!
//! The limits stay on but are high, so that the usual statements run. Only one request is in flight at a
//! time, because an outside attacker can't measure with less noise than that.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollkeeper::random::Random;

use crate::client::{self, Target};
use crate::report;
use crate::servers::{Cores, Folder, Tollkeeper};

/// The number of accounts, and of addresses without an account. It is high enough that no address reaches the
/// limit of a thousand attempts.
const ADDRESSES: usize = 10;
/// The number of pairs that don't count, at least one for every address.
const WARM_UP: usize = 50;
/// An address without an account. A request for a new password is answered before its e-mail is sent. After a
/// server has sent an e-mail, its caches are warmer, and its next answer is a few percent faster. Within a
/// pair, each kind of request usually follows the other kind. For this reason, a request with this address is
/// sent before every sample, so that all samples follow the same request.
const UNKNOWN_EMAIL: &str = "other@example.com";
/// The pause after a request, long enough to send an e-mail.
const MAIL_PAUSE: Duration = Duration::from_millis(30);
const LIMITS: &str = "[limits]
logins_per_minute = 1000000
password_resets_per_hour = 1000000
login_failures = 1000
";

/// A comparison.
struct Case {
    label: &'static str,
    path: &'static str,
    status: &'static str,
    pause: Duration,
    /// Whether to measure the next request instead, for an address that never has an account. The e-mail is
    /// sent during that request.
    next: bool,
}

const CASES: [Case; 3] = [
    Case {
        label: "login, wrong password",
        path: "/v1/auth/login",
        status: "401",
        pause: Duration::ZERO,
        next: false,
    },
    Case {
        label: "forgot-password",
        path: "/v1/auth/forgot-password",
        status: "200",
        pause: MAIL_PAUSE,
        next: false,
    },
    Case {
        label: "the next request",
        path: "/v1/auth/forgot-password",
        status: "200",
        pause: MAIL_PAUSE,
        next: true,
    },
];

/// Runs the measurements and prints the results.
pub async fn run(database: &str, log: &Path, samples: u32, cores: Cores) -> Result<(), String> {
    let folder = Folder::new()?;
    let place = folder.place(1)?;
    std::fs::write(place.join("tollkeeper.toml"), LIMITS).map_err(|error| error.to_string())?;
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let service = Tollkeeper::start(&this, &place, database, log, cores).await?;
    for number in 0..ADDRESSES {
        let name = format!("known{number}");
        let account = json!({"email": address("known", number), "password": "Correct-Horse-7-Staple", "username": name});
        client::once(&Target::post(service.public, "/v1/auth/register", None, &account, "SUCCESS")).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    report::line(&[
        format!("{samples} pairs"),
        "account µs".into(),
        "none µs".into(),
        "difference".into(),
        "noise".into(),
    ]);
    for case in &CASES {
        let [known, unknown] = measure(service.public, case, samples).await?;
        let (with, without) = (median(&known), median(&unknown));
        // A case compared with itself shows the noise of the machine.
        let noise = |times: &[f64]| {
            let half = |odd| times.iter().copied().skip(odd).step_by(2).collect::<Vec<_>>();
            percent(median(&half(0)), median(&half(1))).abs()
        };
        report::line(&[
            case.label.to_owned(),
            format!("{with:.0}"),
            format!("{without:.0}"),
            format!("{:+.2} %", percent(with, without)),
            format!("{:.2} %", noise(&known).max(noise(&unknown))),
        ]);
    }
    Ok(())
}

/// Returns the latencies with an account and without one, in microseconds.
async fn measure(server: SocketAddr, case: &Case, samples: u32) -> Result<[Vec<f64>; 2], String> {
    let (mut stream, random) = (connect(server).await?, Random::system());
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for pair in 0..WARM_UP + samples as usize {
        let [byte] = random.bytes::<1>();
        let known_first = byte % 2 == 0;
        for has_account in [known_first, !known_first] {
            let (word, times) = if has_account { ("known", &mut known) } else { ("never", &mut unknown) };
            let email = address(word, pair % ADDRESSES);
            let body = match case.path {
                "/v1/auth/login" => json!({"email": email, "password": "Wrong-Kettle-1"}),
                _ => json!({ "email": email }),
            };
            if !case.pause.is_zero() {
                timed(&mut stream, server, case, &json!({ "email": UNKNOWN_EMAIL })).await?;
                tokio::time::sleep(case.pause).await;
            }
            let mut microseconds = timed(&mut stream, server, case, &body).await?;
            if case.next {
                microseconds = timed(&mut stream, server, case, &json!({ "email": UNKNOWN_EMAIL })).await?;
            }
            if pair >= WARM_UP {
                times.push(microseconds);
            }
        }
    }
    Ok([known, unknown])
}

/// Returns an address. All addresses have the same length.
fn address(word: &str, number: usize) -> String {
    format!("{word}{number}@example.com")
}

async fn connect(server: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(server).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Times one request on an open connection, from its first byte to the last byte of the answer.
async fn timed(stream: &mut TcpStream, server: SocketAddr, case: &Case, body: &Value) -> Result<f64, String> {
    let request = Target::post(server, case.path, None, body, "").request;
    let (mut answer, mut buffer) = (Vec::new(), [0; 8192]);
    let begin = Instant::now();
    stream.write_all(&request).await.map_err(|error| error.to_string())?;
    loop {
        match stream.read(&mut buffer).await.map_err(|error| error.to_string())? {
            0 => return Err("the server hung up".to_owned()),
            count => answer.extend_from_slice(buffer.get(..count).unwrap_or_default()),
        }
        if is_whole(&answer) {
            break;
        }
    }
    let microseconds = begin.elapsed().as_secs_f64() * 1e6;
    let text = String::from_utf8_lossy(&answer);
    if text.split(' ').nth(1) == Some(case.status) {
        return Ok(microseconds);
    }
    Err(format!("unexpected answer: {text}"))
}

fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| body.len() >= length)
}

fn median(times: &[f64]) -> f64 {
    report::median(times.to_vec()).unwrap_or(f64::NAN)
}

fn percent(one: f64, other: f64) -> f64 {
    (one - other) / other * 100.0
}
