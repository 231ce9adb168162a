//! Compares model calls through the gateway with a bare proxy and other gateways, in front of the same
//! upstream.
//!
//! The upstream and the load share this process, on the cores that the servers don't use. Each target has the
//! servers' core while it's measured, and the targets take turns within a round.

mod disconnects;
mod figures;
mod flood;
mod line;
mod load;
mod money;
mod open;
pub mod proxy;
mod soak;
mod stub;
mod target;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cluster::Cluster;
use crate::report::{self, percentile, shown};
use crate::servers::{Cores, Folder, Tollkeeper};
use crate::tenant;
use figures::{Output, Row, Unit};
use load::{Load, Sample};
use stub::{Form, Stub};
use target::Target;

/// The options of the measurement.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Duration of a measurement; the first fifth is warm-up
    #[arg(long, default_value_t = 3.0, value_name = "SECONDS", value_parser = crate::seconds)]
    seconds: f64,
    /// Number of measurements per target, interleaved with the other targets
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections, each with one call in progress
    #[arg(long, default_values_t = [1, 32, 512], value_delimiter = ',', value_name = "COUNTS",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: Vec<u16>,
    /// Measure only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS",
          default_values_t = [Part::Streams, Part::Plain, Part::Money, Part::Pace, Part::Gaps, Part::Memory, Part::Leaving])]
    only: Vec<Part>,
    /// Also measure another gateway, started by this script
    #[arg(long = "peer", value_name = "SCRIPT")]
    peers: Vec<PathBuf>,
    /// Calls per second at an even rate
    #[arg(long, default_value_t = 1_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    per_second: u32,
    /// Number of open streams whose memory is measured, or which are kept open for `--minutes`
    #[arg(long, default_value_t = 2_000, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=9_000))]
    streams: u16,
    /// Measure only random disconnects from a real llama.cpp, using a Python that can import gguf and
    /// xllamacpp
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Streams of llama.cpp
    #[arg(long, default_value_t = 10_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    disconnects: u32,
    /// Print all tables as one, in Markdown
    #[arg(long, conflicts_with_all = ["python", "minutes"])]
    markdown: bool,
    /// Only keep `--streams` streams open for this long, and check for growing memory and descriptors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: Option<u32>,
    /// File for the service's log
    #[arg(long, default_value = "/dev/null", value_name = "FILE")]
    log: PathBuf,
    /// Also measure this program: an earlier build of the service or of this program
    #[arg(long, value_name = "PROGRAM")]
    compare: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// Streams in a closed loop, event by event and in one piece
    Streams,
    /// Plain calls in a closed loop, also with PostgreSQL
    Plain,
    /// The processor time of a plain call without its money
    Money,
    /// The first events of streams at an even rate
    Pace,
    /// The delays of events that are sent 10 ms apart
    Gaps,
    /// The memory of open streams
    Memory,
    /// The time from a client's disconnect to the end of its upstream connection
    Leaving,
    /// The calls of one organization while another one floods the service, `--seconds` for each kind of flood
    Flood,
}

/// Enough credit. All other settings have their defaults.
const SETTINGS: &str = "[billing]\ncredit_limit = \"1000000000\"\n";

/// The model called by a flood, on its own upstream.
const FLOOD_MODEL: &str = r#"
[[models]]
id = "svc-flood"
kind = "chat"
description = "What a flood calls"
owned_by = "bench"
created = 1704067200
context_length = 16777216
max_tokens = 4096
max_requests_per_min = 1000000
max_concurrent_requests = 1000000
prices = [{ effective_at = "2024-01-01T00:00:00Z", prompt_tokens = "0.000001", completion_tokens = "0.000003" }]
routes = [{ upstream = "flood", model = "stub-1" }]
"#;

/// Returns the catalog entry of an upstream. If the client disconnects, its call is canceled immediately, as
/// for an inference server.
fn upstream(id: &str, address: SocketAddr) -> String {
    format!(
        "[[upstreams]]\nid = \"{id}\"\nkind = \"openai\"\nurl = \"http://{address}/v1\"\nmax_concurrent = 100000\n\
         on_disconnect = \"cancel\"\n"
    )
}

/// Runs the measurements and prints the results.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let cores = Cores::share();
    // Poll sockets often, although the load never sleeps.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().event_interval(7).build().map_err(|error| error.to_string())?;
    runtime.block_on(measure(arguments, cores))
}

/// The measured targets and their environment.
struct Setup<'a> {
    arguments: &'a Arguments,
    cores: Cores,
    output: Output,
    stub: &'a Stub,
    /// The bare proxy comes first, then the service.
    targets: Vec<Target>,
}

async fn measure(arguments: &Arguments, cores: Cores) -> Result<(), String> {
    let this =
        std::env::current_exe().map_err(|error| format!("can't find the path of this program: {error}"))?;
    if let Some(python) = &arguments.python {
        return disconnects::run(python, arguments.disconnects, &this, &arguments.log, cores).await;
    }
    let folder = Folder::new()?;
    let stub = Stub::start().await?;
    if let Some(minutes) = arguments.minutes {
        let place = folder.place(1)?;
        let (target, _) = tollkeeper(arguments, "tollkeeper", &this, "sqlite", &place, cores, &stub).await?;
        return soak::run(target, &place, arguments.streams, minutes).await;
    }
    let mut targets = vec![Target::bare(cores, stub.address).await?];
    let place = folder.place(1)?;
    let (target, money) = tollkeeper(arguments, "tollkeeper", &this, "sqlite", &place, cores, &stub).await?;
    targets.push(target);
    if let Some(program) = &arguments.compare {
        let (place, name) = (folder.place(2)?, "tollkeeper (compared)");
        targets.push(tollkeeper(arguments, name, program, "sqlite", &place, cores, &stub).await?.0);
    }
    for script in &arguments.peers {
        targets.push(Target::peer(cores, script, stub.address).await?);
    }
    let output = Output { markdown: arguments.markdown };
    let mut setup = Setup { arguments, cores, output, stub: &stub, targets };
    setup.head();
    output.begin();
    if setup.wants(Part::Flood) {
        setup.flood().await?;
    }
    if setup.wants(Part::Streams) {
        setup.streams().await?;
    }
    if setup.wants(Part::Money) {
        setup.money(&money).await?;
    }
    setup.times().await?;
    if setup.wants(Part::Plain) {
        let cluster = Cluster::start()?;
        if let Some(cluster) = &cluster {
            let (url, place) = (cluster.database("gateway").await?, folder.place(3)?);
            let name = "tollkeeper, PostgreSQL";
            let (target, _) = tollkeeper(arguments, name, &this, &url, &place, cores, &stub).await?;
            setup.targets.insert(2, target);
        }
        setup.plain().await?;
        setup.targets.clear();
    }
    Ok(())
}

/// Starts the service with a user, an organization, and a key.
async fn tollkeeper(
    arguments: &Arguments,
    name: &str,
    program: &Path,
    database: &str,
    place: &Path,
    cores: Cores,
    stub: &Stub,
) -> Result<(Target, money::Books), String> {
    std::fs::write(place.join("tollkeeper.toml"), SETTINGS).map_err(|error| error.to_string())?;
    let command = cores.of_servers(program);
    let mut upstreams = upstream("stub", stub.address);
    if arguments.only.contains(&Part::Flood) {
        upstreams += &upstream("flood", flood::start_upstream().await?);
        upstreams += FLOOD_MODEL;
    }
    let service = Tollkeeper::behind(command, place, database, &arguments.log, &upstreams).await?;
    let tenant = tenant::keeper(service.public).await?;
    let (key_id, key) = tenant.key("the first").await?;
    let Tollkeeper { server, public, service, token } = service;
    let books = money::Books { process: server.id(), service, token, key: key.clone(), key_id };
    Ok((Target::tollkeeper(name.to_owned(), server, public, &key), books))
}

impl Setup<'_> {
    fn wants(&self, part: Part) -> bool {
        self.arguments.only.contains(&part)
    }

    fn load(&self, connections: u16) -> Load {
        let length = Duration::from_secs_f64(self.arguments.seconds);
        Load { connections, length, never_sleep: self.cores.pinned }
    }

    fn head(&self) {
        let Arguments { rounds, seconds, .. } = self.arguments;
        let pinned = if self.cores.pinned {
            "the targets on core 0, upstream and load on the others"
        } else {
            "not pinned to cores"
        };
        report::print(format_args!(
            "tollkeeper {}, {} {}, cores available: {}. {rounds} interleaved rounds of {seconds:.1} s each, one tokio \
             worker\na server; {pinned}. A stream has {} events.",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH,
            self.cores.count,
            stub::EVENTS
        ));
    }

    /// Measures each target in each round, in alternating order.
    async fn rounds(&self, measure: impl AsyncFn(&Target) -> Result<Sample, String>) -> Vec<Row> {
        let mut rows: Vec<_> = self.targets.iter().map(|target| Row::new(&target.name)).collect();
        for round in 0..self.arguments.rounds {
            let mut pairs: Vec<_> = self.targets.iter().zip(&mut rows).collect();
            if round % 2 == 1 {
                pairs.reverse();
            }
            for (target, row) in pairs {
                row.add(measure(target).await);
            }
        }
        rows
    }

    async fn streams(&self) -> Result<(), String> {
        for connections in &self.arguments.connections {
            let load = self.load(*connections);
            let rows =
                self.rounds(async |target: &Target| load::closed(target, Form::Events, load).await).await;
            let title = format!("Streams, event by event, {connections} at a time");
            figures::rates(self.output, &title, Unit::Event, &rows);
        }
        let load = self.load(32);
        let rows = self.rounds(async |target: &Target| load::closed(target, Form::Joined, load).await).await;
        figures::rates(self.output, "Streams, each in one piece, 32 at a time", Unit::Event, &rows);
        Ok(())
    }

    async fn flood(&self) -> Result<(), String> {
        // The last target is the compared program, if any.
        let target = self.targets.last().ok_or("no service")?;
        let (_, key) = tenant::keeper(target.address).await?.key("the flood").await?;
        let attacker = target.of_another(&key, "svc-flood");
        let Arguments { per_second, .. } = self.arguments;
        flood::run(self.output, target, &attacker, *per_second, self.load(1).length).await
    }

    async fn plain(&self) -> Result<(), String> {
        for connections in &self.arguments.connections {
            let load = self.load(*connections);
            let rows =
                self.rounds(async |target: &Target| load::closed(target, Form::Plain, load).await).await;
            let title = format!("Plain calls, {connections} at a time");
            figures::rates(self.output, &title, Unit::Call, &rows);
        }
        Ok(())
    }

    /// Measures times, memory, and disconnects.
    async fn times(&self) -> Result<(), String> {
        let Arguments { per_second, streams, .. } = self.arguments;
        if self.wants(Part::Pace) {
            let length = self.load(1).length;
            for (form, which) in [(Form::Events, ""), (Form::Late, " whose first event takes 5 ms")] {
                let rows = self
                    .rounds(async |target: &Target| load::paced(target, form, *per_second, length).await)
                    .await;
                let title = format!("Streams{which}, {per_second} per second at an even rate");
                figures::added(self.output, &title, &rows);
            }
        }
        if self.wants(Part::Gaps) {
            self.gaps().await?;
        }
        if self.wants(Part::Memory) {
            self.output.group(&format!("Memory of an open stream, {streams} open"), &["KiB".to_owned()]);
            for target in &self.targets {
                let kib = open::memory(target, *streams).await.map(|kib| format!("{kib:.1}"));
                self.output.line(&[target.name.clone(), kib.unwrap_or_else(|error| error)]);
            }
        }
        if self.wants(Part::Leaving) {
            let title = "From a client's disconnect to the end of the upstream's connection, 300 times";
            self.output.group(title, &["p50 µs", "p99 µs", "most µs"].map(str::to_owned));
            for target in &self.targets {
                let times = open::leave(target, self.stub, 300).await;
                self.output.line(&percentiles(&target.name, times));
            }
        }
        Ok(())
    }

    async fn gaps(&self) -> Result<(), String> {
        let load = self.load(32);
        // `later` is the time since the previous event, minus the 10 ms between events.
        let names = ["delay p50 µs", "p99", "later p50 µs", "p99", "most", "of 30 ms"];
        self.output.group("32 streams, an event every 10 ms", &names.map(str::to_owned));
        for target in &self.targets {
            let mut all = load::Delays { delay_us: Vec::new(), stretch_us: Vec::new() };
            let mut problem = None;
            for _ in 0..self.arguments.rounds {
                match load::gaps(target, load).await {
                    Ok(delays) => {
                        all.delay_us.extend(delays.delay_us);
                        all.stretch_us.extend(delays.stretch_us);
                    }
                    Err(error) => problem = Some(error),
                }
            }
            all.delay_us.sort_unstable();
            all.stretch_us.sort_unstable();
            let steps = all.stretch_us.iter().filter(|us| **us >= 30_000).count();
            let at = |times: &[u32], at| shown(percentile(times, at), 0, "");
            self.output.line(&[
                target.name.clone(),
                at(&all.delay_us, 50),
                at(&all.delay_us, 99),
                at(&all.stretch_us, 50),
                at(&all.stretch_us, 99),
                shown(all.stretch_us.last().copied().map(f64::from), 0, ""),
                steps.to_string(),
            ]);
            if let Some(problem) = problem {
                self.output.problem(&problem);
            }
        }
        Ok(())
    }

    async fn money(&self, books: &money::Books) -> Result<(), String> {
        let plain = self.targets.get(1).ok_or("no service")?;
        let mut steps = money::Steps::default();
        for _ in 0..self.arguments.rounds {
            steps.round(books, plain, self.load(64)).await?;
        }
        steps.print(self.output);
        Ok(())
    }
}

fn percentiles(name: &str, times: Result<Vec<u32>, String>) -> Vec<String> {
    match times {
        Ok(times) => {
            let most = times.last().copied().map(f64::from);
            let cells = [percentile(&times, 50), percentile(&times, 99), most].map(|us| shown(us, 0, ""));
            [&[name.to_owned()], cells.as_slice()].concat()
        }
        Err(error) => vec![name.to_owned(), error],
    }
}
