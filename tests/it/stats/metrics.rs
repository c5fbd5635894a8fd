//! What is published through the `metrics` facade is what the statistics say.

use bellwether::MemoryStore;
use bellwether::metrics::publish;
use bellwether::store::MemoryOptions;
use bellwether_testkit::caches::{answer, answers, burst, cached};
use bellwether_testkit::loaders::Loader;
use bellwether_testkit::recorder::{Published, Snapshot};
use metrics_facade::with_local_recorder;

#[tokio::test(start_paused = true)]
async fn a_recorder_that_comes_late_gets_everything_once() {
    let memory = MemoryStore::new(MemoryOptions::new(10).name("pages"));
    let cached = cached(memory.clone(), &Loader::new());
    answers(burst(&cached, 1, 10)).await;
    for _ in 0..5 {
        answer(&cached, 1).await;
    }
    let recorded = Published::default();
    for _ in 0..2 {
        with_local_recorder(&recorded, || {
            publish(&Snapshot("catalog", cached.stats()));
            publish(&memory);
        });
    }
    let requests = |outcome: &str, detail: &str| {
        let labels = format!("cache=catalog outcome={outcome} detail={detail}");
        recorded.value(&format!("bellwether_requests_total {labels}"))
    };
    assert_eq!((requests("led", "stored"), requests("collapsed", "local")), (1, 9));
    assert_eq!((requests("hit", "local"), requests("left", "")), (5, 0));
    assert_eq!(recorded.value("bellwether_loads_started_total cache=catalog why=miss"), 1);
    let values = |name: &str| recorded.value(&format!("bellwether_{name}"));
    assert_eq!(values("load_duration_seconds cache=catalog result=succeeded"), 1);
    assert_eq!(values("load_duration_seconds cache=catalog result=failed"), 0);
    assert_eq!(values("wait_duration_seconds cache=catalog place=here"), 9);
    assert_eq!(values("flight_callers cache=catalog"), 1);
    assert_eq!(values("notice_lag_seconds cache=catalog"), 0);
    assert_eq!(recorded.gauge("bellwether_store_entries store=pages"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn labels_have_few_values_however_many_keys_there_are() {
    let cached = cached(MemoryStore::new(10), &Loader::new());
    let recorded = Published::default();
    let publish = || {
        with_local_recorder(&recorded, || publish(&Snapshot("catalog", cached.stats())));
        recorded.len()
    };
    let before = publish();
    for item in 0..1_000 {
        answer(&cached, item).await;
    }
    assert_eq!(publish(), before);
}
