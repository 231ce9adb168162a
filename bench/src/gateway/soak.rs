//! Many streams for a long time: complete ones, abandoned ones, and streams whose clients pause reading.
//! Fails if a stream is cut off, if memory or descriptors grow, or if reservations or connections remain at
//! the end.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;
use tollkeeper::db::{Db, Settings, sql};
use tollkeeper::random::Random;

use super::line::Line;
use super::stub::Form;
use super::target::Target;
use crate::report;
use crate::soak::watch::{self, MinuteSample};

const MINUTE: Duration = Duration::from_secs(60);
/// The time for which a client doesn't read.
const DEAF: Duration = Duration::from_secs(6);
/// Maximum time until the last streams are settled and idle connections are closed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximum number of open descriptors at the end, in addition to those at the beginning, as in
/// [`watch::grown`].
const SLACK_DESCRIPTORS: f64 = 8.0;

/// Totals of the clients so far.
#[derive(Default)]
struct Counts {
    /// Calls whose first event has arrived.
    begun: u64,
    whole: u64,
    left: u64,
    problems: Vec<String>,
}

/// The behavior of a client that reads a stream.
#[derive(Clone, Copy)]
enum Habit {
    Whole,
    /// Disconnects after this number of events.
    Leave(usize),
    Deaf,
}

impl Habit {
    fn draw(random: &Random) -> Self {
        let [kind, events] = random.bytes::<2>();
        match kind % 8 {
            0 | 1 => Self::Leave(1 + usize::from(events % 20)),
            2 => Self::Deaf,
            _ => Self::Whole,
        }
    }
}

/// Keeps this number of streams open, and prints a line per minute.
pub async fn run(target: Target, place: &Path, streams: u16, minutes: u32) -> Result<(), String> {
    report::print(format_args!(
        "{minutes} minutes of {streams} streams on SQLite, each with two events per second and 24 in total; a quarter of their\n\
         clients disconnect, and an eighth don't read for 6 seconds.\n"
    ));
    let names = ["minute", "begun", "whole", "left", "cut", "memory MiB", "descriptors"];
    report::line(&names.map(str::to_owned));
    let first_descriptors = target.descriptors();
    let counts = Rc::<RefCell<Counts>>::default();
    let begin = Instant::now();
    let until = begin + MINUTE * minutes;
    let clients = LocalSet::new();
    for number in 0..streams {
        let (request, address) = (target.request(Form::Slow), target.address);
        let counts = Rc::clone(&counts);
        clients.spawn_local(async move {
            // The connections are opened one after the other, because the queue of new connections is short.
            tokio::time::sleep(Duration::from_millis(3) * u32::from(number)).await;
            let (random, mut line) = (Random::system(), None);
            while Instant::now() < until {
                match call(address, &request, Habit::draw(&random), line.take(), &counts).await {
                    Ok(kept) => line = kept,
                    Err(error) => {
                        counts.borrow_mut().problems.push(error);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        });
    }
    let mut samples = Vec::new();
    for minute in 1..=minutes {
        clients.run_until(tokio::time::sleep_until((begin + MINUTE * minute).into())).await;
        let sample = MinuteSample { resident_mib: target.resident_mib(), descriptors: target.descriptors() };
        line(minute, &counts.borrow(), &sample);
        samples.push(sample);
    }
    clients.await;
    let counts = counts.take();
    if let Some(problem) = counts.problems.first() {
        return Err(format!("{} streams were cut off, including: {problem}", counts.problems.len()));
    }
    settled(&target, place, counts.begun, first_descriptors).await?;
    report::print(format_args!("\n{}", watch::grown(&samples)?));
    Ok(())
}

/// Makes one call, and returns its connection if it can be reused.
async fn call(
    address: std::net::SocketAddr,
    request: &[u8],
    habit: Habit,
    line: Option<Line>,
    counts: &RefCell<Counts>,
) -> Result<Option<Line>, String> {
    let mut line = match line {
        Some(line) => line,
        None => Line::open(address).await?,
    };
    line.begin(request, 1).await?;
    if !line.has("data: ") {
        return Err(line.text());
    }
    counts.borrow_mut().begun += 1;
    match habit {
        Habit::Leave(events) => {
            while line.events() < events {
                line.receive().await?;
            }
            counts.borrow_mut().left += 1;
            return Ok(None);
        }
        Habit::Deaf => tokio::time::sleep(DEAF).await,
        Habit::Whole => {}
    }
    while !line.is_whole() {
        line.receive().await?;
    }
    if !line.has("[DONE]") {
        return Err(line.whole_text());
    }
    counts.borrow_mut().whole += 1;
    Ok(Some(line))
}

/// Waits until every call has its usage event, nothing is reserved, and about as many descriptors are open as
/// at the beginning.
async fn settled(target: &Target, place: &Path, begun: u64, first_descriptors: f64) -> Result<(), String> {
    let settings = Settings::Sqlite { path: place.join("tollkeeper.db") };
    let db = Db::open(&settings).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    loop {
        let text =
            "SELECT (SELECT COUNT(*) FROM usage_events WHERE source = 'gateway'), COUNT(*) FROM reservations";
        let mut tx = db.read().await.map_err(|error| error.to_string())?;
        let (events, held): (i64, i64) = sql(text).one(&mut tx).await.map_err(|error| error.to_string())?;
        drop(tx);
        let (memory_mib, descriptors) = (target.resident_mib(), target.descriptors());
        let found = format!(
            "{begun} calls, {events} usage events, {held} reservations; without streams {memory_mib:.1} MiB and \
             {descriptors:.0} descriptors, {first_descriptors:.0} at the beginning"
        );
        let is_settled = u64::try_from(events) == Ok(begun)
            && held == 0
            && descriptors <= first_descriptors + SLACK_DESCRIPTORS;
        if is_settled {
            report::print(format_args!("\n{found}, after {:.0} s.", begin.elapsed().as_secs_f64()));
            return Ok(());
        }
        if begin.elapsed() > SETTLE_TIMEOUT {
            return Err(found);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn line(minute: u32, counts: &Counts, sample: &MinuteSample) {
    report::line(&[
        minute.to_string(),
        counts.begun.to_string(),
        counts.whole.to_string(),
        counts.left.to_string(),
        counts.problems.len().to_string(),
        format!("{:.1}", sample.resident_mib),
        format!("{:.0}", sample.descriptors),
    ]);
}
