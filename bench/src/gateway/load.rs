//! The loads: connections that send the next call after the previous answer, and calls at an even rate.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, LocalSet};

use super::line::Line;
use super::stub::{EVENTS, Form};
use super::target::Target;
use crate::client::yield_core;

/// The result of one measurement.
#[derive(Default)]
pub struct Sample {
    pub calls_per_s: f64,
    /// The times until the first bytes of the bodies, sorted.
    pub first_us: Vec<u32>,
    /// The times of complete answers, sorted.
    pub whole_us: Vec<u32>,
    /// The processor time per call, if the system reports it.
    pub cpu_us: Option<f64>,
    /// The load of the server's only core, from 0 to 1.
    pub busy: Option<f64>,
}

/// The parameters of a load.
#[derive(Clone, Copy)]
pub struct Load {
    pub connections: u16,
    pub length: Duration,
    /// Whether this thread may busy-wait.
    pub never_sleep: bool,
}

/// The times of each call: until the first bytes of the body, and until its end.
type Spans = Vec<(u32, u32)>;

/// Sends a call over each connection, and the next one after each answer. The first fifth doesn't count.
pub async fn closed(target: &Target, form: Form, load: Load) -> Result<Sample, String> {
    let request: Arc<[u8]> = target.request(form).into();
    let mut lines = Vec::new();
    for _ in 0..load.connections {
        lines.push(checked_line(target, form, &request).await?);
    }
    let begin = Instant::now();
    let (from, until) = (begin + load.length / 5, begin + load.length);
    let mut tasks = JoinSet::new();
    for line in lines {
        tasks.spawn(repeat(line, Arc::clone(&request), from, until));
    }
    let busy = tokio::spawn(async move {
        while load.never_sleep && Instant::now() < until {
            yield_core().await;
        }
    });
    tokio::time::sleep_until(from.into()).await;
    let (before, watched_from) = (target.processor_time(), Instant::now());
    tokio::time::sleep_until(until.into()).await;
    let (after, watched) = (target.processor_time(), watched_from.elapsed());
    busy.await.map_err(|error| error.to_string())?;
    let mut spans = Vec::new();
    while let Some(outcome) = tasks.join_next().await {
        spans.extend(outcome.map_err(|error| error.to_string())??);
    }
    let spent = before.zip(after).map(|(before, after)| after - before);
    Ok(sample(&spans, until - from, watched, spent))
}

fn sample(spans: &Spans, length: Duration, watched: Duration, spent: Option<f64>) -> Sample {
    let count = u32::try_from(spans.len()).map_or(f64::INFINITY, f64::from);
    let sorted = |time: fn(&(u32, u32)) -> u32| {
        let mut times: Vec<_> = spans.iter().map(time).collect();
        times.sort_unstable();
        times
    };
    Sample {
        calls_per_s: count / length.as_secs_f64(),
        first_us: sorted(|span| span.0),
        whole_us: sorted(|span| span.1),
        cpu_us: spent.filter(|_| count > 0.0).map(|seconds| seconds * 1e6 / count),
        busy: spent.map(|seconds| seconds / watched.as_secs_f64()),
    }
}

/// Opens a connection, and checks an answer.
async fn checked_line(target: &Target, form: Form, request: &[u8]) -> Result<Line, String> {
    let mut line = Line::open(target.address).await?;
    line.call(request).await.map_err(|error| format!("{}: {error}", target.name))?;
    let least = if form.is_stream() { usize::try_from(EVENTS).unwrap_or(0) - 3 } else { 0 };
    // Other gateways may omit the role or the usage.
    let is_right = if form.is_stream() { line.has("[DONE]") } else { line.has("some words some words") };
    if !is_right || line.events() < least {
        return Err(format!("{}: {} events: {}", target.name, line.events(), line.text()));
    }
    Ok(line)
}

async fn repeat(mut line: Line, request: Arc<[u8]>, from: Instant, until: Instant) -> Result<Spans, String> {
    let mut spans = Vec::new();
    let mut sent = Instant::now();
    while sent < until {
        let times = line.call(&request).await?;
        if times.end >= from && times.end < until {
            spans.push((micros(times.first - sent), micros(times.end - sent)));
        }
        sent = times.end;
    }
    Ok(spans)
}

/// Maximum lateness of a timer of the runtime.
const TIMER_PRECISION: Duration = Duration::from_millis(2);

/// Sends calls at an even rate, each over a free connection. The first fifth doesn't count.
pub async fn paced(target: &Target, form: Form, per_s: u32, length: Duration) -> Result<Sample, String> {
    let request: Rc<[u8]> = target.request(form).into();
    let mut lines = VecDeque::new();
    for _ in 0..32 {
        lines.push_back(checked_line(target, form, &request).await?);
    }
    let free = Rc::new(RefCell::new(lines));
    let spans = Rc::<RefCell<Spans>>::default();
    let begin = Instant::now();
    let (from, until) = (begin + length / 5, begin + length);
    let (mut due, mut before) = (begin, None);
    let tasks = LocalSet::new();
    let failed = Rc::<RefCell<Option<String>>>::default();
    tasks
        .run_until(async {
            while due < until && failed.borrow().is_none() {
                // Sleep until shortly before it is due, so that the core is free for other processes.
                tokio::time::sleep_until((due - TIMER_PRECISION).into()).await;
                while Instant::now() < due {
                    yield_core().await;
                }
                if due >= from && before.is_none() {
                    before = Some((target.processor_time(), Instant::now()));
                }
                let (free, spans, request) = (Rc::clone(&free), Rc::clone(&spans), Rc::clone(&request));
                let (failed, address) = (Rc::clone(&failed), target.address);
                drop(tokio::task::spawn_local(async move {
                    let line = free.borrow_mut().pop_front();
                    let called = async {
                        let mut line = match line {
                            Some(line) => line,
                            None => Line::open(address).await?,
                        };
                        let times = line.call(&request).await?;
                        Ok::<_, String>((line, times))
                    };
                    match called.await {
                        Ok((line, times)) => {
                            if due >= from {
                                spans.borrow_mut().push((micros(times.first - due), micros(times.end - due)));
                            }
                            free.borrow_mut().push_back(line);
                        }
                        Err(error) => *failed.borrow_mut() = Some(error),
                    }
                }));
                due += Duration::from_secs(1) / per_s;
            }
        })
        .await;
    let watched = before.map(|(before, at)| (before, at.elapsed(), target.processor_time()));
    // Late answers count too.
    tasks.await;
    if let Some(error) = failed.borrow_mut().take() {
        return Err(format!("{}: {error}", target.name));
    }
    let (before, watched, after) = watched.ok_or("nothing was measured")?;
    let spent = before.zip(after).map(|(before, after)| after - before);
    Ok(sample(&spans.borrow(), until - from, watched, spent))
}

/// The delays of events that were sent 10 ms apart.
pub struct Delays {
    /// The delays of events, in microseconds, sorted.
    pub delay_us: Vec<u32>,
    /// The differences between the intervals at which events arrived and were sent, in microseconds, sorted.
    /// Only positive differences count; others are 0.
    pub stretch_us: Vec<u32>,
}

/// Repeatedly reads streams with gaps between their events. The streams don't all begin at the same time.
pub async fn gaps(target: &Target, load: Load) -> Result<Delays, String> {
    let request: Arc<[u8]> = target.request(Form::Gaps).into();
    let begin = Instant::now();
    let until = begin + load.length;
    let mut tasks = JoinSet::new();
    for number in 0..load.connections {
        let mut line = checked_line(target, Form::Events, &target.request(Form::Events)).await?;
        let request = Arc::clone(&request);
        tasks.spawn(async move {
            let (mut delay_us, mut stretch_us) = (Vec::new(), Vec::new());
            tokio::time::sleep(Duration::from_micros(u64::from(number) * 317)).await;
            while Instant::now() < until {
                let mut delays = Vec::new();
                line.send(&request).await?;
                while !line.is_whole() {
                    line.receive().await?;
                    line.delays(&mut delays);
                }
                let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
                stretch_us.extend(delays.windows(2).filter_map(|two| match two {
                    [before, after] => Some(us(after.saturating_sub(*before))),
                    _ => None,
                }));
                delay_us.extend(delays.into_iter().map(us));
            }
            Ok::<_, String>((delay_us, stretch_us))
        });
    }
    let busy = tokio::spawn(async move {
        while load.never_sleep && Instant::now() < until {
            yield_core().await;
        }
    });
    let mut all = Delays { delay_us: Vec::new(), stretch_us: Vec::new() };
    while let Some(outcome) = tasks.join_next().await {
        let (delay_us, stretch_us) = outcome.map_err(|error| error.to_string())??;
        all.delay_us.extend(delay_us);
        all.stretch_us.extend(stretch_us);
    }
    busy.await.map_err(|error| error.to_string())?;
    all.delay_us.sort_unstable();
    all.stretch_us.sort_unstable();
    Ok(all)
}

pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
