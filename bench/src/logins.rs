//! The cost of a login in addition to its hash, its effect on other calls, and the benefit of a cached token.
//!
//! Here, servers and load share all cores, because the effect of sharing them is measured.

use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Block, Params, Version};
use tokio::task::JoinSet;
use tollkeeper::config::Config;

use crate::client::{self, Load, Target};
use crate::report::{median, percentile, print, shown};
use crate::servers::{Folder, Tollkeeper};
use crate::tenant::{self, Account, Tenant};

/// The parameters of the service (docs/contract/accounts.md#password-hashing): memory in KiB, passes, lanes.
const ARGON2: (u32, u32, u32) = (19_456, 2, 1);

/// The number of users who log in repeatedly at the same time.
const PEOPLE: u16 = 8;

/// Calls per second by a user who doesn't log in. They are too few to cause a queue on their own.
const CALLS_PER_S: u32 = 250;

/// The number of tokens that are used for the first time in each round.
const TOKENS: usize = 500;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements of each kind, interleaved
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "URL")]
    database: String,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
    /// Measure this build of this program instead
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

/// The results of one round.
struct Round {
    raw_per_s: f64,
    logins_per_s: f64,
    /// Latencies in microseconds, sorted.
    idle: Vec<u32>,
    busy: Vec<u32>,
    first: Vec<u32>,
    remembered: Vec<u32>,
}

pub fn run(arguments: &Arguments) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(measure(arguments))
}

async fn measure(arguments: &Arguments) -> Result<(), String> {
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    let program = arguments.program.as_ref().unwrap_or(&this);
    let folder = Folder::new()?;
    let place = folder.place(0)?;
    // All users log in from one address, more often than users normally do.
    let settings = place.join("tollkeeper.toml");
    std::fs::write(&settings, "[limits]\nenabled = false\n").map_err(|error| error.to_string())?;
    let service = Tollkeeper::on_all_cores(program, &place, &arguments.database, &arguments.log).await?;
    let tenant = tenant::prepare(service.public).await?;
    let mut people = Vec::new();
    for number in 0..PEOPLE {
        people.push(tenant::register(service.public, number).await?);
    }
    let threads = Config::default().passwords.hash_threads;
    let length = Duration::from_secs_f64(arguments.seconds);
    head(arguments, threads);
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        rounds.push(round(&service, &tenant, &people, threads, length).await?);
    }
    table(&rounds);
    Ok(())
}

async fn round(
    service: &Tollkeeper,
    tenant: &Tenant,
    people: &[Account],
    threads: usize,
    length: Duration,
) -> Result<Round, String> {
    let models = tenant.models(service.public)?;
    let raw_per_s = raw(threads, length)?;
    let logins_per_s = log_in(service, people, length).await?;
    let idle = client::paced(&models, CALLS_PER_S, length).await?;
    let (busy, saturated) =
        tokio::join!(client::paced(&models, CALLS_PER_S, length), log_in(service, people, length));
    saturated?;
    let person = people.first().ok_or("no account")?;
    let mut tokens = Vec::new();
    for _ in 0..TOKENS {
        tokens.push(person.fresh_token(service.public).await?);
    }
    let me = |token: &String| Target::get(service.public, "/v1/auth/me", Some(token), "\"SUCCESS\"");
    let first: Vec<_> = tokens.iter().map(me).collect();
    let remembered: Vec<_> = tokens.iter().take(1).cycle().take(TOKENS).map(me).collect();
    let first = client::in_turn(&first).await?;
    let remembered = client::in_turn(&remembered).await?;
    Ok(Round { raw_per_s, logins_per_s, idle, busy: busy?, first, remembered })
}

/// Measures hashes per second of the bare library. Each thread reuses its memory.
pub fn raw(threads: usize, length: Duration) -> Result<f64, String> {
    let (memory, passes, lanes) = ARGON2;
    let params = Params::new(memory, passes, lanes, None).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let (from, until) = (begin + length / 5, begin + length);
    let hash = || {
        let mut memory = vec![Block::new(); params.block_count()];
        let (argon2, mut hash) = (Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone()), [0; 32]);
        let mut count = 0_u32;
        while Instant::now() < until {
            argon2
                .hash_password_into_with_memory(b"Correct-Horse-7-Staple", &[7; 16], &mut hash, &mut memory)
                .map_err(|error| error.to_string())?;
            let now = Instant::now();
            count += u32::from(now >= from && now < until);
        }
        Ok::<_, String>(count)
    };
    let counts: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(hash)).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut total = 0;
    for count in counts {
        total += count.map_err(|_| "a hash panicked".to_owned())??;
    }
    Ok(f64::from(total) / (until - from).as_secs_f64())
}

/// Measures logins per second, while each user logs in repeatedly.
async fn log_in(service: &Tollkeeper, people: &[Account], length: Duration) -> Result<f64, String> {
    let load = Load { connections: 1, length, never_sleep: false };
    let mut tasks = JoinSet::new();
    for person in people {
        let (target, id) = (person.login(service.public), service.server.id());
        tasks.spawn(async move { client::load(&target, id, load).await });
    }
    let mut per_s = 0.0;
    while let Some(sample) = tasks.join_next().await {
        per_s += sample.map_err(|error| error.to_string())??.requests_per_s;
    }
    Ok(per_s)
}

fn head(arguments: &Arguments, threads: usize) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    print(format_args!(
        "{} rounds of {:.1} s per measurement; server and load share {cores} cores; {threads} hash thread(s), \
         argon2id {} KiB, t={}, p={};\n{PEOPLE} people log in at a time; medians over the rounds, of each round's own \
         ratio.\n",
        arguments.rounds, arguments.seconds, ARGON2.0, ARGON2.1, ARGON2.2
    ));
}

fn table(rounds: &[Round]) {
    let middle = |value: &dyn Fn(&Round) -> Option<f64>| median(rounds.iter().filter_map(value).collect());
    let per_s =
        |what: &str, value: Option<f64>| print(format_args!("{what:<34}{:>12}", shown(value, 1, " /s")));
    per_s("raw argon2", middle(&|round| Some(round.raw_per_s)));
    per_s("POST /v1/auth/login", middle(&|round| Some(round.logins_per_s)));
    let ratio = middle(&|round| Some(100.0 * round.logins_per_s / round.raw_per_s));
    print(format_args!("{:<34}{:>12}\n", "of raw", shown(ratio, 1, " %")));
    print(format_args!("{:<34}{:>12}{:>12}", "", "p50 µs", "p99 µs"));
    let compare = |names: [&str; 3], of: &dyn Fn(&Round) -> [&Vec<u32>; 2]| {
        let both = |value: &dyn Fn(&Round, usize) -> Option<f64>, decimals, unit| {
            [50, 99].map(|at| shown(middle(&|round| value(round, at)), decimals, unit))
        };
        let line = |name: &str, [p50, p99]: [String; 2]| print(format_args!("{name:<34}{p50:>12}{p99:>12}"));
        line(names[0], both(&|round, at| percentile(of(round)[0], at), 0, ""));
        line(names[1], both(&|round, at| percentile(of(round)[1], at), 0, ""));
        let ratio = |round: &Round, at| Some(percentile(of(round)[1], at)? / percentile(of(round)[0], at)?);
        line(names[2], both(&ratio, 2, " x"));
    };
    let models = ["GET /v1/models, no logins", "GET /v1/models, many logins", "busy / idle"];
    compare(models, &|round| [&round.idle, &round.busy]);
    print("");
    let me = ["GET /v1/auth/me, cached token", "GET /v1/auth/me, new token", "new / cached"];
    compare(me, &|round| [&round.remembered, &round.first]);
}
