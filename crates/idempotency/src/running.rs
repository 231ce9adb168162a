//! The requests that are running in this process. A repeated request can wait for the first one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// The maximum time that a repeated request waits.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The requests with a claim that are running in this process, by the id of their row.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<HashMap<[u8; 32], watch::Receiver<()>>>);

/// A running request. It ends when the last copy of this value is dropped.
#[derive(Debug)]
pub(crate) struct Run {
    running: Arc<Running>,
    id: [u8; 32],
    /// The sender of a channel, which wakes waiting requests when it is dropped.
    end: watch::Sender<()>,
}

impl Running {
    /// Adds a running request.
    pub(crate) fn begin(self: &Arc<Self>, id: [u8; 32]) -> Arc<Run> {
        let (end, ended) = watch::channel(());
        self.requests().insert(id, ended);
        Arc::new(Run { running: Arc::clone(self), id, end })
    }

    /// Waits until the request with this id has ended. Returns `false` if no such request is running in this
    /// process, or if the wait takes too long.
    pub(crate) async fn wait(&self, id: [u8; 32]) -> bool {
        let found = self.requests().get(&id).cloned();
        let Some(mut ended) = found else { return false };
        // Nothing is ever sent. The channel is closed when the request ends.
        tokio::time::timeout(MAX_WAIT, ended.changed()).await.is_ok()
    }

    fn requests(&self) -> std::sync::MutexGuard<'_, HashMap<[u8; 32], watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut requests = self.running.requests();
        // Another request that has taken over the key has the same id.
        let is_own = requests.get(&self.id).is_some_and(|ended| ended.same_channel(&self.end.subscribe()));
        if is_own {
            requests.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn repetition_waits_for_the_end() {
        let running = Arc::new(Running::default());
        assert!(!running.wait([1; 32]).await, "nothing runs");
        let run = running.begin([1; 32]);
        let waiting = tokio::spawn({
            let running = Arc::clone(&running);
            async move { running.wait([1; 32]).await }
        });
        tokio::task::yield_now().await;
        assert!(!running.wait([2; 32]).await, "another key");
        drop(run);
        assert!(waiting.await.unwrap());
        assert!(!running.wait([1; 32]).await, "it is over");
    }

    #[tokio::test]
    async fn one_that_has_taken_the_key_over_still_runs() {
        let running = Arc::new(Running::default());
        let first = running.begin([1; 32]);
        let second = running.begin([1; 32]);
        drop(first);
        assert_eq!(running.requests().len(), 1);
        drop(second);
        assert_eq!(running.requests().len(), 0);
    }
}
