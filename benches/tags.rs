//! What tags cost: a hit with 0, 1, 4 and 32 tags against one through a layer without tags, in
//! memory, in the near tier and in Redis, also for tags that only the answer tells; what a bare `MGET` of
//! as many names costs against a bare `GET`; and the [invalidation of a tag](crate::tag_members) with
//! few and with many entries.

use std::convert::Infallible;
use std::future::ready;
use std::hint::black_box;
use std::time::Duration;

use bellwether::store::Store;
use bellwether::{Error, Key, MemoryStore, ReadThroughLayer, Tag};
use bellwether_testkit::servers::RedisServer;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tower::{Layer, Service, service_fn};

use crate::figures::Wanted;
use crate::hits_in_redis::connection;
use crate::paired::{Effort, Race, timed};
use crate::product::Product;
use crate::tag_members::{self, options};

pub(crate) fn run(effort: Effort) {
    let runtime = Runtime::new().expect("a runtime");
    in_process("memory", &runtime, || MemoryStore::new(10_000), effort);
    let server = RedisServer::start();
    let mut number = 0;
    let near = || {
        number += 1;
        let hour = Duration::from_secs(3600);
        let options = options(&server, &format!("near{number}"));
        let options = options.near(16 * 1024 * 1024).near_ttl(hour);
        runtime.block_on(options.connect()).expect("a store")
    };
    in_process("near", &runtime, near, effort);
    for callers in [1, 64] {
        in_redis(&server, &runtime, callers, Sharing::Shared, effort.in_long_turns());
    }
    in_redis(&server, &runtime, 64, Sharing::Own, effort.in_long_turns());
    for callers in [1, 64] {
        in_redis(&server, &runtime, callers, Sharing::Answer, effort.in_long_turns());
    }
    bare_names(&server, &runtime, 64, effort.in_long_turns());
    tag_members::run(&runtime, effort);
}

/// Whether keys have their tags in common, or own ones, of the request or of the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sharing {
    Shared,
    Own,
    Answer,
}

trait Catalog: Service<u64, Response = Product, Error = Error<Infallible>> + Clone {}

impl<S: Service<u64, Response = Product, Error = Error<Infallible>> + Clone> Catalog for S {}

/// A layer with so many tags, or without any.
fn catalog(
    store: impl Store,
    tags: Option<u64>,
    sharing: Sharing,
) -> impl Catalog<Future: Send> + Send + 'static {
    let key: fn(&u64) -> Key = |sku| Key::of("item").with(*sku);
    let layer = ReadThroughLayer::builder(store, key).ttl(Duration::from_secs(7200));
    let of = move |sku: u64, count| {
        let of = if sharing == Sharing::Shared { 0 } else { sku };
        (0..count).map(move |number| Tag::of("shelf").with(of).with(number))
    };
    let of_request = tags.filter(|_| sharing != Sharing::Answer);
    let layer = match of_request {
        None => layer,
        Some(count) => layer.tags(move |sku: &u64| of(*sku, count)),
    };
    let of_answer = tags.unwrap_or_default() - of_request.unwrap_or_default();
    let layer = layer.answer_tags(move |product: &Product| of(product.sku(), of_answer));
    layer
        .build()
        .expect("options")
        .layer(service_fn(|sku| ready(Ok::<_, Infallible>(Product::of_json_len(sku, JSON_LEN)))))
}

fn in_process<S: Store>(
    place: &'static str,
    runtime: &Runtime,
    mut store: impl FnMut() -> S,
    effort: Effort,
) {
    let alone = Builder::new_current_thread().build().expect("a runtime");
    let mut catalogs: Vec<_> = COUNTS.map(|tags| catalog(store(), tags, Sharing::Shared)).into();
    for catalog in &mut catalogs {
        for _ in 0..3 {
            runtime.block_on(catalog.call(SKU)).expect("an answer");
        }
    }
    let mut race = Race::new("tags", format!("a hit, {place}"));
    let numbers: Vec<_> = catalogs
        .iter_mut()
        .zip(COUNTS)
        .map(|(catalog, tags)| {
            race.enter_async(name(tags), &alone, move || catalog.call(black_box(SKU)))
        })
        .collect();
    let outcome = race.run(effort);
    outcome.print(&numbers);
    for (number, tags) in numbers[1..].iter().zip(&COUNTS[1..]) {
        let wanted = match (place, tags) {
            ("near", Some(2)) => Wanted::AtMost(1.2),
            _ => Wanted::Nothing,
        };
        outcome.print_times(*number, numbers[0], wanted);
    }
}

fn in_redis(
    server: &RedisServer,
    runtime: &Runtime,
    callers: usize,
    sharing: Sharing,
    effort: Effort,
) {
    let mut race = Race::new("tags", format!("a hit, Redis, {callers} callers, {sharing:?} tags"));
    let mut numbers = Vec::new();
    for (at, tags) in COUNTS.into_iter().enumerate() {
        let namespace = format!("redis{callers}{sharing:?}{at}");
        let store = runtime.block_on(options(server, &namespace).connect()).expect("a store");
        let catalog = catalog(store, tags, sharing);
        runtime.block_on(join_all((0..callers as u64).map(|sku| catalog.clone().call(sku))));
        numbers.push(race.enter(name(tags), callers, move |times| {
            timed(|| {
                runtime.block_on(async {
                    let calls = (0..callers as u64).map(|sku| {
                        let mut catalog = catalog.clone();
                        async move {
                            for _ in 0..times {
                                black_box(catalog.call(sku).await.expect("an answer"));
                            }
                        }
                    });
                    calls.collect::<JoinSet<()>>().join_all().await;
                });
            })
        }));
    }
    let outcome = race.run(effort);
    outcome.print(&numbers);
    for (number, tags) in numbers[1..].iter().zip(&COUNTS[1..]) {
        let is_judged = *tags == Some(4)
            && match sharing {
                Sharing::Shared => true,
                Sharing::Own => false,
                // That they take no round trip of their own. By many callers, their bytes count.
                Sharing::Answer => callers == 1,
            };
        let wanted = if is_judged { Wanted::AtMost(1.3) } else { Wanted::Nothing };
        outcome.print_times(*number, numbers[0], wanted);
    }
}

/// What the names of four tags cost a client that does nothing else.
fn bare_names(server: &RedisServer, runtime: &Runtime, callers: u64, effort: Effort) {
    let mut race = Race::new("tags", format!("bare commands, {callers} callers, own names"));
    let connection = runtime.block_on(connection(server));
    let numbers = [("GET", 1), ("MGET", 5)].map(|(command, count)| {
        let names = move |caller: u64| {
            (0..count)
                .map(move |nth| format!("bw:bare:{{{caller:040x}}}:{nth}"))
                .collect::<Vec<_>>()
        };
        let mut filling = connection.clone();
        runtime.block_on(async {
            for (nth, name) in (0..callers).flat_map(names).enumerate() {
                let value = vec![7; if nth % count == 0 { JSON_LEN } else { 16 }];
                let mut set = redis::cmd("SET");
                set.arg(name).arg(value);
                set.query_async::<()>(&mut filling).await.expect("it is stored");
            }
        });
        let connection = connection.clone();
        race.enter(format!("bare {command} of {count}"), callers as usize, move |times| {
            timed(|| {
                runtime.block_on(async {
                    let calls = (0..callers).map(|caller| {
                        let mut connection = connection.clone();
                        async move {
                            for _ in 0..times {
                                let mut read = redis::cmd(command);
                                read.arg(names(caller));
                                let read = read.query_async::<redis::Value>(&mut connection);
                                black_box(read.await.expect("an answer"));
                            }
                        }
                    });
                    calls.collect::<JoinSet<()>>().join_all().await;
                });
            })
        })
    });
    let outcome = race.run(effort);
    outcome.print(&numbers);
    outcome.print_times(numbers[1], numbers[0], Wanted::Nothing);
}

fn name(tags: Option<u64>) -> String {
    tags.map_or_else(|| "without tags".to_owned(), |count| format!("{count} tags"))
}

const COUNTS: [Option<u64>; 6] = [None, Some(0), Some(1), Some(2), Some(4), Some(32)];
const SKU: u64 = 42;
const JSON_LEN: usize = 1024;
