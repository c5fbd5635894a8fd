//! The parts of a hit in Redis beside the client and the server, each by itself.
//!
//! The layer is measured as a whole, over a store that answers at once with an entry that is not
//! decoded yet. So are the parts that can be called from outside. What remains of the layer without
//! them is the lookup in the table of flights, and the states of the future. Two parts are
//! substitutes, because ours are private: a pool that manages nothing, and the checksum, which is
//! all of the envelope that takes time.

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::time::Duration;

use bb8_redis::bb8::{ManageConnection, Pool};
use bellwether::store::{
    Accept, Acquire, Claim, Draft, End, Entry, Lease, Renew, Settled, Store, StoreFuture, Tags,
    Value, Withdrawal, WithdrawalTarget,
};
use bellwether::{Key, Lifetimes, ReadThroughLayer};
use bytes::Bytes;
use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;
use tower::{Layer, Service, service_fn};

use crate::figures::{Number, Outcome, Wanted};
use crate::paired::{Effort, Race};
use crate::product::{Product, Shelf, json};

pub(crate) fn run(effort: Effort) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    of_the_layer(&runtime, effort);
    of_the_store(&runtime, effort);
}

fn of_the_layer(runtime: &Runtime, effort: Effort) {
    let product = Product::of_json_len(SKU, JSON_LEN);
    let bytes = json(&product);
    let nested = json(&Shelf::of_json_len(SKU, JSON_LEN));
    let store = AtOnce(Bytes::from(bytes.clone()));
    let made = key(&SKU);
    let mut race = Race::new("parts", "of the layer");
    let whole = enter_layer(&mut race, &store, runtime);
    let parts = [
        race.enter_plain("a key", || key(&black_box(SKU))),
        race.enter_async("that store by itself", runtime, || {
            store.lookup(made.clone(), Tags::none())
        }),
        race.enter_plain("decoding", || decode::<Product>(&bytes)),
        race.enter_plain("a clone of the answer", || product.clone()),
    ];
    let other = race.enter_plain("decoding many small products", || decode::<Shelf>(&nested));
    let outcome = race.run(effort);
    outcome.print(&[whole]);
    print_shares(&outcome, whole, &parts);
    outcome.print_remainder(
        "the remainder: the table of flights, and the states of the future",
        whole,
        &parts,
    );
    print_shares(&outcome, whole, &[other]);
}

fn of_the_store(runtime: &Runtime, effort: Effort) {
    let pool = runtime.block_on(Pool::builder().max_size(1).build(Nothing)).expect("a pool");
    let made = key(&SKU);
    let digest = key(&SKU).digest();
    let name = format!("bw:test:{{{digest}}}");
    let sealed = vec![b'x'; HEADER + JSON_LEN];
    let store = AtOnce(json(&Product::of_json_len(SKU, JSON_LEN)).into());
    let mut race = Race::new("parts", "of the store");
    let whole = enter_layer(&mut race, &store, runtime);
    let parts = [
        race.enter_plain("the digest", || made.digest()),
        race.enter_plain("the name", || format!("bw:test:{{{}}}", black_box(digest))),
        race.enter_plain("the command", || redis::Cmd::get(black_box(&name))),
        race.enter_async("a checkout", runtime, || async { drop(pool.get().await) }),
        race.enter_async("waiting once", runtime, yield_now),
        race.enter_async("waiting once, with a timeout", runtime, || timeout(TIMEOUT, yield_now())),
        race.enter_plain("the checksum", || crc32fast::hash(black_box(&sealed))),
    ];
    print_shares(&race.run(effort), whole, &parts);
}

fn enter_layer<'r>(race: &mut Race<'r>, store: &AtOnce, runtime: &'r Runtime) -> Number {
    let mut catalog =
        ReadThroughLayer::builder(store.clone(), key).build().unwrap().layer(service_fn(never));
    race.enter_async("the layer", runtime, move || {
        catalog.call(black_box(SKU)).map(|answer| answer.expect("a hit"))
    })
}

fn print_shares(outcome: &Outcome, whole: Number, parts: &[Number]) {
    for part in parts {
        outcome.print(&[*part]);
        outcome.print_times(*part, whole, Wanted::Nothing);
    }
}

async fn never(_: u64) -> Result<Product, Infallible> {
    unreachable!("it is there")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> T {
    serde_json::from_slice(black_box(bytes)).expect("what was written")
}

fn key(sku: &u64) -> Key {
    Key::of("item").with(*sku)
}

/// A store that answers at once, with an entry that is not decoded yet.
#[derive(Clone, Debug)]
struct AtOnce(Bytes);

impl Store for AtOnce {
    fn lookup(&self, _: Key, _: Tags) -> StoreFuture<Option<Entry>> {
        let windows = Lifetimes::fresh_for(Duration::from_secs(60));
        let draft = Draft::new(Value::new(self.0.clone()), 1, windows);
        ready(Ok(Some(draft.into_entry(1, 1, None, Vec::new())))).boxed()
    }

    fn acquire(&self, _: Claim, _: Duration, _: Accept) -> StoreFuture<Acquire> {
        unreachable!("a hit takes no lease")
    }

    fn renew(&self, _: &Lease, _: Duration) -> StoreFuture<Renew> {
        unreachable!("a hit takes no lease")
    }

    fn settle(&self, _: End) -> StoreFuture<Settled> {
        unreachable!("a hit takes no lease")
    }

    fn withdraw(&self, _: WithdrawalTarget, _: Withdrawal) -> StoreFuture<bool> {
        unreachable!("nothing changes")
    }
}

/// What a pool manages when its checkouts are measured.
struct Nothing;

impl ManageConnection for Nothing {
    type Connection = ();
    type Error = Infallible;

    async fn connect(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn is_valid(&self, (): &mut ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, (): &mut ()) -> bool {
        false
    }
}

const SKU: u64 = 42;
const JSON_LEN: usize = 1024;

/// As long as the header of an envelope.
const HEADER: usize = 96;

/// The default timeout of a store.
const TIMEOUT: Duration = Duration::from_millis(250);
