//! The hosts of a URL, and a check of which ones are primaries.

use std::cmp::Reverse;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::connect::{self, Connector};

/// The timeout of a host's response.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The hosts of a URL; empty for a single host.
pub(super) struct Hosts(Vec<HostWatch>);

/// A host, and the connection for checking it.
struct HostWatch {
    connector: Connector,
    client: Mutex<Option<ClientWrapper>>,
}

impl Hosts {
    pub(super) fn new(connector: &Connector) -> Self {
        let watch = |connector| HostWatch { connector, client: Mutex::default() };
        Self(connector.of_each_host().into_iter().map(watch).collect())
    }

    pub(super) fn are_several(&self) -> bool {
        !self.0.is_empty()
    }

    /// Checks all hosts at once. Returns the names and the timelines of the primaries, the highest timeline
    /// first.
    pub(super) async fn primaries(&self) -> Vec<(String, u32)> {
        let answers = join_all(self.0.iter().map(HostWatch::timeline)).await;
        let hosts = self.0.iter().map(|watch| watch.connector.host());
        let primaries = hosts.zip(answers).filter_map(|(host, timeline)| Some((host.to_owned(), timeline?)));
        let mut primaries: Vec<_> = primaries.collect();
        primaries.sort_by_key(|(_, timeline)| Reverse(*timeline));
        primaries
    }
}

impl HostWatch {
    /// Returns the timeline of a primary; `None` for a standby, and for a host that doesn't respond.
    async fn timeline(&self) -> Option<u32> {
        let mut client = self.client.lock().await;
        if client.as_ref().is_none_or(|client| client.is_closed()) {
            *client = timeout(TIMEOUT, self.connector.connect()).await.ok()?.ok();
        }
        let asked = timeout(TIMEOUT, connect::timeline(client.as_ref()?)).await;
        if asked.is_err() {
            *client = None;
        }
        asked.ok()?
    }
}
