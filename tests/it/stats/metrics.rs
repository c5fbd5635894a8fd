//! What is published through the `metrics` facade is what the statistics say.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use bellwether::MemoryStore;
use bellwether::metrics::{publish_cache, publish_memory_store};
use bellwether_testkit::caches::{answer, answers, burst, cached};
use bellwether_testkit::loaders::Loader;
use metrics_facade::atomics::AtomicU64;
use metrics_facade::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

/// Every counter and gauge, by its name and labels; and of every histogram, how many values it has.
#[derive(Default)]
struct Recorded(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

/// Counts the values of a histogram.
struct Values(Arc<AtomicU64>);

impl HistogramFn for Values {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Recorded {
    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
        let name = format!("{} {}", key.name(), labels.collect::<Vec<_>>().join(" "));
        let mut cells = self.0.lock().unwrap();
        Arc::clone(cells.entry(name).or_insert_with(|| Arc::new(AtomicU64::new(0))))
    }

    fn value(&self, name: &str) -> u64 {
        let cells = self.0.lock().unwrap();
        cells.get(name).unwrap_or_else(|| panic!("no {name}")).load(SeqCst)
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Values(self.cell(key))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_comes_late_gets_everything_once() {
    let memory = MemoryStore::new(10);
    let cached = cached(memory.clone(), &Loader::new());
    answers(burst(&cached, 1, 10)).await;
    for _ in 0..5 {
        answer(&cached, 1).await;
    }
    let recorded = Recorded::default();
    for _ in 0..2 {
        with_local_recorder(&recorded, || {
            publish_cache("catalog", &cached.stats());
            publish_memory_store("pages", &memory.stats());
        });
    }
    let requests = |outcome: &str, detail: &str| {
        let labels = format!("cache=catalog outcome={outcome} detail={detail}");
        recorded.value(&format!("bellwether_requests_total {labels}"))
    };
    assert_eq!((requests("led", "stored"), requests("collapsed", "local")), (1, 9));
    assert_eq!((requests("hit", "local"), requests("left", "")), (5, 0));
    assert_eq!(recorded.value("bellwether_loads_started_total cache=catalog why=miss"), 1);
    assert_eq!(recorded.value("bellwether_loads_ended_total cache=catalog result=succeeded"), 1);
    let values = |name: &str| recorded.value(&format!("bellwether_{name}"));
    assert_eq!(values("load_duration_seconds cache=catalog result=succeeded"), 1);
    assert_eq!(values("load_duration_seconds cache=catalog result=failed"), 0);
    assert_eq!(values("wait_duration_seconds cache=catalog place=here"), 9);
    assert_eq!(values("flight_callers cache=catalog"), 1);
    assert_eq!(values("notice_lag_seconds cache=catalog"), 0);
    let entries = recorded.value("bellwether_store_entries store=pages");
    assert_eq!(f64::from_bits(entries), 1.0);
}

#[tokio::test(start_paused = true)]
async fn labels_have_few_values_however_many_keys_there_are() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    let recorded = Recorded::default();
    let publish = || {
        with_local_recorder(&recorded, || publish_cache("catalog", &cached.stats()));
        recorded.0.lock().unwrap().len()
    };
    let before = publish();
    for item in 0..1_000 {
        answer(&cached, item).await;
    }
    assert_eq!(publish(), before);
}
