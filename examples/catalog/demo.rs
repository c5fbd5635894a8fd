//! The actions of the buttons of the page.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Notify};

use crate::Fault;
use crate::shop::Shop;
use crate::way::Way;

/// Callers of a burst.
pub(crate) const CALLERS: usize = 1_000;
/// The product that only bursts ask for.
pub(crate) const PRODUCT: u32 = 50_000;

/// The shop, and what can be done to it.
pub(crate) struct Demo {
    pub(crate) shop: Shop,
    /// Held during a burst and an invalidation, whose figures would mix otherwise.
    stage: Mutex<()>,
}

/// A burst, all ways.
#[derive(Serialize)]
pub(crate) struct Bursts {
    callers: usize,
    product: u32,
    unprotected: Burst,
    plain: Burst,
    protected: Burst,
}

/// The results of a burst, for one way.
#[derive(Serialize)]
struct Burst {
    queries: u64,
    errors: usize,
    /// Until the last caller had an answer or an error.
    all_ms: f64,
    median_ms: f64,
    /// Between the first answer and the last.
    spread_ms: f64,
}

/// The cost of an invalidation.
#[derive(Serialize)]
pub(crate) struct Invalidation {
    product: u32,
    /// Of the request after it, and of one more.
    queries: [u64; 2],
    millis: [f64; 2],
    failed: bool,
}

/// What can be switched on and off.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Switch {
    Slow,
    Broken,
    Stopped,
}

impl Demo {
    pub(crate) fn new(shop: Shop) -> Self {
        Self { shop, stage: Mutex::new(()) }
    }

    pub(crate) fn set(&self, switch: Switch, is_on: bool) {
        let weather = &self.shop.source.weather;
        match switch {
            Switch::Slow => weather.slow.store(is_on, Ordering::Relaxed),
            Switch::Broken => weather.broken.store(is_on, Ordering::Relaxed),
            Switch::Stopped => self.shop.store.stop(is_on),
        }
    }

    /// A thousand callers of one product that is not cached: without bellwether, and then with it.
    pub(crate) async fn burst(self: &Arc<Self>) -> Bursts {
        let _stage = self.stage.lock().await;
        // A stopped store has no answer either, which is as good.
        let _ = self.shop.invalidate(PRODUCT).await;
        // One after the other, so that they do not disturb each other.
        let unprotected = self.burst_of(Way::Unprotected).await;
        let plain = self.burst_of(Way::Plain).await;
        // Another process over the same store may have loaded it meanwhile.
        let _ = self.shop.invalidate(PRODUCT).await;
        let protected = self.burst_of(Way::Protected).await;
        Bursts { callers: CALLERS, product: PRODUCT, unprotected, plain, protected }
    }

    /// Removes a product from the cache, and asks for it twice.
    pub(crate) async fn invalidate(&self) -> Result<Invalidation, Fault> {
        let _stage = self.stage.lock().await;
        self.shop.invalidate(PRODUCT).await?;
        let first = self.ask_once().await;
        let second = self.ask_once().await;
        Ok(Invalidation {
            product: PRODUCT,
            queries: [first.0, second.0],
            millis: [first.1, second.1],
            failed: first.2 || second.2,
        })
    }

    /// Queries, milliseconds, and whether it failed.
    async fn ask_once(&self) -> (u64, f64, bool) {
        let queries = || self.shop.source.of(Way::Protected).queries_for(PRODUCT);
        let before = queries();
        let began = Instant::now();
        let answer = self.shop.product(Way::Protected, PRODUCT).await;
        (queries() - before, millis(began.elapsed()), answer.is_err())
    }

    async fn burst_of(self: &Arc<Self>, way: Way) -> Burst {
        let before = self.shop.source.of(way).queries_for(PRODUCT);
        let start = Arc::new(Notify::new());
        let callers = (0..CALLERS).map(|_| {
            let demo = Arc::clone(self);
            let start = Arc::clone(&start).notified_owned();
            tokio::spawn(async move {
                start.await;
                let began = Instant::now();
                let answer = demo.shop.product(way, PRODUCT).await;
                (began.elapsed(), answer.is_ok())
            })
        });
        let callers: Vec<_> = callers.collect();
        let began = Instant::now();
        start.notify_waiters();
        let answers = join_all(callers).await;
        let all = began.elapsed();
        let mut times: Vec<_> = answers.iter().flatten().map(|(took, _)| *took).collect();
        times.sort_unstable();
        let ends = times.first().zip(times.last());
        Burst {
            queries: self.shop.source.of(way).queries_for(PRODUCT) - before,
            errors: CALLERS - answers.iter().flatten().filter(|(_, is_ok)| *is_ok).count(),
            all_ms: millis(all),
            median_ms: times.get(times.len() / 2).map_or(0.0, |median| millis(*median)),
            spread_ms: ends.map_or(0.0, |(first, last)| millis(*last - *first)),
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
