//! Foreign code may run when the crate drops or wakes something. It may call the store.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bellwether::codec::{Codec, EncodeBuffer};
use bellwether::store::Watchers;
use bellwether::{Cache, CacheError, CacheErrorKind, CacheStatus, MemoryStore, ReadThroughLayer};
use bellwether_testkit::caches::{KeyOf, MINUTE, key};
use futures_util::FutureExt;
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt, service_fn};

/// It would wait for itself.
#[tokio::test(start_paused = true)]
async fn a_load_that_asks_for_its_own_key_gets_an_error_at_once() {
    let began = Instant::now();
    let cache = Cache::<u64, u64>::builder("item", MemoryStore::new(10)).ttl(MINUTE).build();
    let cache = cache.expect("options");
    let inner = cache.clone();
    let load = || async move {
        let own = inner.get_or_load(1, || async { Ok::<_, BoxError>(2) }).await.unwrap_err();
        assert_eq!(own.cache().map(CacheError::kind), Some(CacheErrorKind::Recursive));
        let many = inner.get_or_load_many([1], async |_| Ok::<_, BoxError>(vec![Ok(2)])).await;
        assert!(many[0].as_ref().is_err_and(|error| error.to_string().contains("its own key")));
        let other = inner.get_or_load(2, || async { Ok::<_, BoxError>(2) }).await;
        assert_eq!(other.unwrap(), 2);
        Err(BoxError::from(own.to_string()))
    };
    let error = cache.get_or_load(1, load).await.unwrap_err().to_string();
    assert!(error.contains("the loader of `item#") && error.contains("its own key"), "{error}");
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Runs `deed` on a thread of its own, because it may hang for ever.
fn ends(deed: impl FnOnce() + Send + 'static) -> bool {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        deed();
        sender.send(())
    });
    receiver.recv_timeout(Duration::from_secs(5)).is_ok()
}

/// Keeps something that asks the store when it is dropped.
#[derive(Clone, Debug)]
struct Asking(MemoryStore);

#[derive(Debug)]
struct Asker(MemoryStore);

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.len();
    }
}

impl Codec<usize> for Asking {
    type Kept = Asker;

    fn id(&self) -> u8 {
        77
    }

    fn keep(&self, _: usize) -> Asker {
        Asker(self.0.clone())
    }

    fn restore(&self, _: &Asker, _: &CacheStatus) -> usize {
        0
    }

    fn encode(&self, _: &Asker, room: &mut EncodeBuffer) -> Result<(), BoxError> {
        Ok(room.write_all(b"0")?)
    }

    fn decode(&self, _: &[u8]) -> Result<Asker, BoxError> {
        Ok(self.keep(0))
    }
}

/// The store drops its decoded copy, whose type may be any.
#[test]
fn what_the_store_evicts_may_ask_the_store() {
    assert!(ends(|| {
        let store = MemoryStore::new(1);
        let layer = ReadThroughLayer::builder(store.clone(), (|item| key(*item)) as KeyOf);
        let codec = Asking(store);
        let loader = service_fn(async |_: u64| Ok::<_, std::io::Error>(0));
        let cached = layer.ttl(MINUTE).codec(codec).build().unwrap().layer(loader);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            for item in 0..3 {
                cached.clone().oneshot(item).await.unwrap();
            }
        });
    }));
}

/// Asks as soon as it is woken, on the thread that wakes.
struct Eager(Watchers);

impl Wake for Eager {
    fn wake(self: Arc<Self>) {
        self.0.len();
    }
}

#[test]
fn a_waker_of_a_change_may_ask_the_store_at_once() {
    assert!(ends(|| {
        let watchers = Watchers::default();
        let mut watch = watchers.watch(key(1).digest());
        let waker = Waker::from(Arc::new(Eager(watchers.clone())));
        let mut changed = Box::pin(watch.changed());
        assert!(changed.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        watchers.tell(&key(1).digest(), None);
    }));
}

#[test]
fn a_waker_of_a_possible_change_may_ask_the_store_at_once() {
    assert!(ends(|| {
        let watchers = Watchers::default();
        let mut watch = watchers.watch(key(1).digest());
        let waker = Waker::from(Arc::new(Eager(watchers.clone())));
        let mut changed = Box::pin(watch.changed());
        assert!(changed.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        watchers.tell_all();
    }));
}
