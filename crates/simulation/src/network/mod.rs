//! The network: links between processes and servers, and what befalls them.

mod clocks;
mod excuses;
mod hindrances;
mod link;
mod link_task;
mod state;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;

pub(crate) use self::link::{Fate, NodeId};
pub(crate) use self::link_task::connect;
pub(crate) use self::state::NetworkState;
use crate::host::Millis;
use crate::locked;
use crate::server::ModelServer;
use crate::time_costs::TimeCosts;

/// The network and the servers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<NetworkParts>);

#[derive(Debug)]
struct NetworkParts {
    now: AtomicU64,
    /// Where links and servers run.
    runtime: Handle,
    state: Mutex<NetworkState>,
}

impl Network {
    /// A network of these servers. The clocks of their shards differ from that of the world by these errors,
    /// in microseconds. Servers and processes need so much time.
    pub(crate) fn new(
        seed: u64,
        runtime: Handle,
        servers: Vec<(String, ModelServer)>,
        clock_errors: &[i64],
        costs: Option<TimeCosts>,
    ) -> Self {
        let state = Mutex::new(NetworkState::new(seed, servers, clock_errors, costs));
        Self(Arc::new(NetworkParts { now: AtomicU64::new(0), runtime, state }))
    }

    pub(crate) fn now(&self) -> Millis {
        self.0.now.load(Ordering::Relaxed)
    }

    pub(crate) fn set_now(&self, now: Millis) {
        self.0.now.store(now, Ordering::Relaxed);
        self.with(|state| state.now = now);
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut NetworkState) -> T) -> T {
        change(&mut locked(&self.0.state))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio::task::yield_now;

    use super::excuses::LATEST_FAILURE;
    use super::*;
    use crate::server::ServerVersion;

    /// A link of the process 0, and the network.
    async fn linked() -> (Network, DuplexStream) {
        let servers =
            vec![("10.0.0.1:6379".to_owned(), ModelServer::new(ServerVersion::V7, [].into()))];
        let network = Network::new(1, Handle::current(), servers, &[0], None);
        let link = connect(network.clone(), 0, "10.0.0.1:6379".to_owned()).await;
        (network, link.expect("a link"))
    }
    /// Sends a command at each of these times. Returns whether the process counts as one that uses a link that
    /// loses all.
    async fn uses_lost_link(times: &[Millis]) -> bool {
        let (network, link) = linked().await;
        uses(network, link, times).await
    }

    async fn uses(network: Network, mut link: DuplexStream, times: &[Millis]) -> bool {
        network.with(|state| state.doom((0, 1), Fate::HalfOpen));
        for time in times {
            network.set_now(*time);
            link.write_all(b"*1\r\n$4\r\nPING\r\n").await.expect("it takes bytes");
            for _ in 0..10 {
                yield_now().await;
            }
        }
        network.with(|state| !state.silent.is_empty())
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_may_not_go_on_to_use_a_link_that_loses_all() {
        assert!(uses_lost_link(&[10, 900, 1_800, 2_700]).await);
        assert!(!uses_lost_link(&[10, 900, 1_800]).await);
        assert!(!uses_lost_link(&[10, 3_000]).await, "it has stood still");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_has_stood_still_begins_its_time_anew() {
        let paused = async |until| {
            let (network, link) = linked().await;
            network.with(|state| state.paused_until.insert(0, until));
            uses(network, link, &[10, 900, 1_800, 2_700]).await
        };
        assert!(!paused(1_000).await);
        assert!(paused(5).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_ends_while_it_is_new_counts_twice() {
        for (cut_at, is_twice) in [(10, true), (100, false)] {
            let (network, _link) = linked().await;
            network.with(|state| state.excuses.executed(0, 0));
            network.set_now(cut_at);
            network.with(|state| state.doom((0, 1), Fate::CutReply));
            network.with(|state| state.cut((0, 1)));
            network.set_now(cut_at + LATEST_FAILURE);
            assert_eq!(network.with(|state| state.may_fail(0)), is_twice);
        }
    }
}
