//! The loader, the same for all ways: it takes a connection, waits for the added latency, and queries.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::catalog::Product;
use crate::database::Database;
use crate::messages::{Ask, Load, Setup};
use crate::ways::Way;
use crate::{Fault, clock};

/// Loads products for one way, and logs when.
#[derive(Clone)]
pub(crate) struct Loader {
    way: Way,
    database: Database,
    latency: Duration,
    /// The connections of this process: a load holds one until its answer is there.
    connections: Arc<Semaphore>,
    log: LoadLog,
}

/// The loads of this process since the last `take`.
#[derive(Clone, Default)]
pub(crate) struct LoadLog(Arc<Mutex<Vec<Load>>>);

/// The database did not answer.
#[derive(Clone, Debug)]
pub(crate) struct LoadError(Arc<Fault>);

impl Loader {
    pub(crate) fn new(way: Way, database: Database, setup: &Setup, log: LoadLog) -> Self {
        let latency = Duration::from_millis(setup.load_ms);
        let connections = Arc::new(Semaphore::new(setup.connections as usize));
        Self { way, database, latency, connections, log }
    }

    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    pub(crate) async fn load(&self, ask: Ask) -> Result<Product, LoadError> {
        let started = clock::now();
        let connection = self.connections.acquire().await;
        sleep(self.latency).await;
        let product = self.database.find(self.way, &ask).await;
        drop(connection);
        self.log.push(Load { ask, started, ended: clock::now() });
        product.map_err(|fault| LoadError(Arc::new(fault)))
    }
}

impl LoadLog {
    fn push(&self, load: Load) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(load);
    }

    pub(crate) fn take(&self) -> Vec<Load> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the query failed: {}", self.0)
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&**self.0)
    }
}
