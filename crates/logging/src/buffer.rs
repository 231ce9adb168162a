//! The buffer between the threads that log and the thread that writes.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::settings::Format;
use kernel::clock::Clock;

/// How long a line may wait to be written.
const FLUSH_DELAY: Duration = Duration::from_millis(50);
/// A buffer of this size in bytes is written at once.
const FLUSH_SIZE_BYTES: usize = 64 * 1024;
/// The most bytes that wait; further lines are dropped. As much again may be in the thread that writes.
pub const MAX_PENDING_BYTES: usize = 4 * 1024 * 1024;
/// How long [`Buffer::flush`] waits for a blocked stderr.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Lines that wait to be written.
pub struct Buffer {
    state: Mutex<State>,
    /// Wakes the writing thread.
    wake: Condvar,
    /// Wakes callers of [`Buffer::flush`] after a write.
    written: Condvar,
    format: Format,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    is_urgent: bool,
    /// `true` while the thread has batch lines and not yet written them.
    is_writing: bool,
    dropped: u64,
    /// The lines dropped since the start.
    total_dropped: u64,
    /// `true` if the system gave us no thread: then lines are written directly, slowly.
    has_no_thread: bool,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").finish_non_exhaustive()
    }
}

impl Buffer {
    /// Starts a buffer and its thread, which lives as long as the process.
    pub fn start(out: Box<dyn Write + Send>, format: Format) -> Arc<Self> {
        let buffer =
            Arc::new(Self { state: Mutex::default(), wake: Condvar::new(), written: Condvar::new(), format });
        let shared = Arc::clone(&buffer);
        let thread = std::thread::Builder::new().name("log".to_owned()).spawn(move || shared.run(out));
        if thread.is_err() {
            buffer.lock().has_no_thread = true;
        }
        buffer
    }

    /// Returns the format of its lines.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the bytes that wait, and the lines dropped since the start.
    pub fn load(&self) -> (usize, u64) {
        let state = self.lock();
        (state.pending.len(), state.total_dropped)
    }

    /// Appends a line, or counts it as dropped if too many wait.
    pub fn push(&self, line: &[u8], is_urgent: bool) {
        let mut state = self.lock();
        if state.has_no_thread {
            std::io::stderr().write_all(line).unwrap_or_default();
            return;
        }
        if state.pending.len() + line.len() > MAX_PENDING_BYTES {
            state.dropped += 1;
            state.total_dropped += 1;
            return;
        }
        let was_empty = state.pending.is_empty();
        append(&mut state.pending, line);
        let is_now_urgent = is_urgent || state.pending.len() >= FLUSH_SIZE_BYTES;
        let needs_wake = was_empty || (is_now_urgent && !state.is_urgent);
        state.is_urgent |= is_now_urgent;
        drop(state);
        if needs_wake {
            self.wake.notify_one();
        }
    }

    /// Waits until all lines pushed so far are written, or a second has passed.
    pub fn flush(&self) {
        let mut state = self.lock();
        if state.pending.is_empty() && !state.is_writing {
            return;
        }
        state.is_urgent = true;
        self.wake.notify_one();
        let busy = |state: &mut State| !state.pending.is_empty() || state.is_writing;
        drop(
            self.written
                .wait_timeout_while(state, FLUSH_TIMEOUT, busy)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn run(&self, mut out: Box<dyn Write + Send>) {
        let mut batch = Vec::new();
        loop {
            let dropped = self.take(&mut batch);
            if dropped > 0 {
                append(&mut batch, self.dropped_line(dropped).as_bytes());
            }
            // A failure of the log itself can't be reported anywhere.
            out.write_all(&batch).and_then(|()| out.flush()).unwrap_or_default();
            batch.clear();
            self.lock().is_writing = false;
            self.written.notify_all();
        }
    }

    /// Waits for lines and takes them all; returns how many were dropped meanwhile.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        let idle = |state: &mut State| state.pending.is_empty() && state.dropped == 0;
        let state = self.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let may_wait = |state: &mut State| !state.is_urgent;
        let outcome = self.wake.wait_timeout_while(state, FLUSH_DELAY, may_wait);
        let (mut state, _) = outcome.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.pending, batch);
        // After a flood the memory is returned to the system.
        state.pending.shrink_to(FLUSH_SIZE_BYTES * 2);
        state.is_urgent = false;
        state.is_writing = true;
        std::mem::take(&mut state.dropped)
    }

    fn dropped_line(&self, dropped: u64) -> String {
        let time = Clock::System.now();
        let message = "log lines were dropped because stderr did not take them";
        match self.format {
            Format::Text => format!("{time}  WARN tollkeeper::log: {message} dropped={dropped}\n"),
            Format::Json => {
                format!(
                    r#"{{"timestamp":"{time}","level":"WARN","message":"{message}","dropped":{dropped},"target":"tollkeeper::log"}}"#
                ) + "\n"
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends one line. Text after a line break inside it is indented, so that logged text can't look like a
/// line of its own.
fn append(pending: &mut Vec<u8>, line: &[u8]) {
    let (inner, end) = match line.split_last() {
        Some((b'\n', inner)) => (inner, "\n"),
        _ => (line, ""),
    };
    for (index, part) in inner.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            pending.extend_from_slice(b"\n    ");
        }
        pending.extend_from_slice(part);
    }
    pending.extend_from_slice(end.as_bytes());
}
