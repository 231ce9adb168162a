//! Threads for CPU-heavy work, at a lower priority than the threads that answer requests.

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinError;

/// The increment of the niceness, from 0 to 19. With each step, a thread gets about a fifth less of a
/// contended processor (nice(2)).
pub const NICENESS: i32 = 10;

/// Threads with a lower priority, started on demand, for background work only.
#[derive(Debug)]
pub struct BackgroundThreads {
    /// The runtime; `None` if it couldn't be created, and during drop.
    runtime: Option<Runtime>,
}

impl BackgroundThreads {
    /// Returns a pool of at most `max` threads with this name.
    pub fn new(name: &str, max: usize) -> Self {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(max.max(1))
            .thread_name(name)
            .on_thread_start(lower_priority)
            .build();
        Self { runtime: runtime.ok() }
    }

    /// Runs `work` as soon as a thread is free. The work is completed even if this future is dropped.
    ///
    /// # Errors
    /// `None` if no threads could be started, and the `JoinError` if the work panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Result<T, JoinError>> {
        Some(self.runtime.as_ref()?.spawn_blocking(work).await)
    }
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        // Dropping a runtime blocks, which isn't allowed on an async thread. Its threads end on their own.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lowers the priority of this thread only (nice(2)), so that threads that answer requests run first on busy
/// cores.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if rustix::process::nice(NICENESS).is_err() {
        // If this fails, the work keeps its normal priority.
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn threads_have_a_lower_priority() {
        /// Returns the 19th word of `/proc/…/stat`, which is the 17th word after the name (proc(5)).
        fn niceness() -> i32 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().parse().unwrap()
        }
        let before = niceness();
        let threads = super::BackgroundThreads::new("test", 1);
        let background = threads.run(niceness).await.unwrap().unwrap();
        assert_eq!(background, (before + super::NICENESS).min(19));
        let others = tokio::task::spawn_blocking(niceness).await.unwrap();
        assert_eq!((niceness(), others), (before, before), "other threads keep theirs");
    }
}
