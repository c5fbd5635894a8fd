//! A worker that plays with tags at random. A value is the version of its group, which is a tag.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether::codec::{Json, RuledCodec};
use bellwether::service::ReadThrough;
use bellwether::store::Store;
use bellwether::{CacheStatus, Error, Key, ReadThroughLayer, Tag};
use bellwether_testkit::clock;
use futures_util::future::{BoxFuture, join_all};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;
use tower::{Layer, Service};

use super::blind::BlindStore;
use crate::answer::How;
use crate::database::{Client, Query};
use crate::messages::{Event, TagGame, TagUse, What};
use crate::worker::Member;

/// A row: its group, and the version of that.
type GroupVersion = (u64, u64);

type TaggedRows = ReadThrough<GroupLoader, fn(&TaggedAsk) -> Key, RuledCodec<GroupVersion, Json>>;

/// A request, and the time of its load, if there is one.
#[derive(Clone, Copy, Debug)]
struct TaggedAsk {
    key: u64,
    before: u64,
    after: u64,
}

/// One operation of a round, with all its random choices.
#[derive(Debug)]
struct TagOperation {
    /// How long after the round began, in us.
    delay: u64,
    change: Option<TagChange>,
    ask: TaggedAsk,
    /// The service that reads.
    service: usize,
}

#[derive(Clone, Copy, Debug)]
enum TagChange {
    Expire,
    Invalidate,
    /// A tag whose source has not changed.
    InvalidateOther,
}

pub(crate) fn key_of(key: u64) -> Key {
    Key::of("tagged row").with(key)
}

pub(crate) fn tag_of(group: u64) -> Tag {
    Tag::of("group").with(group)
}

/// Two tags: the one that counts, and one that all groups share.
fn tags_of(group: u64) -> Vec<Tag> {
    vec![tag_of(group), Tag::of("all")]
}

fn service(
    store: impl Store,
    client: &Arc<Client>,
    of: TagUse,
    [ttl, lease]: [u64; 2],
) -> TaggedRows {
    let key: fn(&TaggedAsk) -> Key = |ask| key_of(ask.key);
    let of_answer: fn(&GroupVersion) -> Vec<Tag> = match of {
        TagUse::OfRequest => |_| Vec::new(),
        TagUse::OfAnswer => |(group, _)| tags_of(*group),
    };
    ReadThroughLayer::builder(store, key)
        .ttl(Duration::from_millis(ttl))
        .lease(Duration::from_millis(lease))
        .tags(move |ask: &TaggedAsk| match of {
            TagUse::OfRequest => tags_of(ask.key % GROUPS),
            TagUse::OfAnswer => Vec::new(),
        })
        .answer_tags(of_answer)
        .build()
        .expect("a lease")
        .layer(GroupLoader(Arc::clone(client)))
}

impl Member {
    /// Plays some rounds, and returns their history. The key of an event is a group.
    pub(crate) async fn play_tags(&self, game: TagGame) -> Vec<Event> {
        // Lives and leases so short that both run out now and then.
        let times = [[8, 100], [400, 150]];
        let services = times.map(|times| self.tagged_rows(game, times));
        let tracks = (0..game.tracks).map(|track| {
            let rng = StdRng::seed_from_u64(game.seed.wrapping_mul(TRACKS) + track);
            let rounds = game.rounds / game.tracks + u64::from(track < game.rounds % game.tracks);
            self.tag_track(&services, rng, rounds)
        });
        join_all(tracks).await.concat()
    }

    async fn tag_track(&self, services: &[TaggedRows], mut rng: StdRng, rounds: u64) -> Vec<Event> {
        let mut history = Vec::new();
        for _ in 0..rounds {
            let operations: Vec<_> =
                (0..rng.random_range(3..=6)).map(|_| TagOperation::draw(&mut rng)).collect();
            let round = operations.iter().map(|operation| self.perform_tagged(operation, services));
            history.extend(join_all(round).await.into_iter().flatten());
        }
        history
    }

    fn tagged_rows(&self, game: TagGame, times: [u64; 2]) -> TaggedRows {
        let store = self.store().clone();
        match game.is_blind {
            true => service(BlindStore(store), self.database(), game.of, times),
            false => service(store, self.database(), game.of, times),
        }
    }

    async fn perform_tagged(
        &self,
        operation: &TagOperation,
        services: &[TaggedRows],
    ) -> Vec<Event> {
        sleep(Duration::from_micros(operation.delay)).await;
        let service = &services[operation.service];
        let changed = match operation.change {
            Some(change) => self.change_tag(operation.ask.key % GROUPS, change, service).await,
            None => None,
        };
        // A writer reads next.
        changed.into_iter().chain([read(operation.ask, service).await]).collect()
    }

    async fn change_tag(
        &self,
        group: u64,
        change: TagChange,
        service: &TaggedRows,
    ) -> Option<Event> {
        let handle = service.handle();
        if let TagChange::InvalidateOther = change {
            // It promises nothing, whether it works or not.
            _ = handle.invalidate_tag(&Tag::of("all")).await;
            return None;
        }
        let version = self.write(ROWS + group).await;
        let began = clock::now();
        let done = match change {
            TagChange::Expire => handle.expire_tag(&tag_of(group), Duration::ZERO).await,
            _ => handle.invalidate_tag(&tag_of(group)).await,
        };
        let ended = clock::now();
        Some(Event { key: group, began, ended, what: What::of_change(done, version) })
    }
}

async fn read(ask: TaggedAsk, service: &TaggedRows) -> Event {
    let began = clock::now();
    let (answer, status): (Result<GroupVersion, Error<io::Error>>, CacheStatus) =
        service.clone().call(ask).with_status().await;
    let ended = clock::now();
    let group = ask.key % GROUPS;
    let what = match answer {
        Ok((of, version)) => {
            assert_eq!(of, group, "the answer of another group");
            What::Read { version, how: How::from(&status) }
        }
        Err(error) => What::ReadFailed(error.to_string()),
    };
    Event { key: group, began, ended, what }
}

impl TagOperation {
    fn draw(rng: &mut StdRng) -> Self {
        let key = rng.random_range(0..KEYS);
        let change = match rng.random_range(0..1000) {
            0..60 => Some(TagChange::Invalidate),
            60..90 => Some(TagChange::Expire),
            90..95 => Some(TagChange::InvalidateOther),
            _ => None,
        };
        let [before, after] = [load_time(rng), load_time(rng)];
        let delay = rng.random_range(0..3_000);
        Self {
            delay,
            change,
            ask: TaggedAsk { key, before, after },
            service: rng.random_range(0..2),
        }
    }
}

/// Mostly none; sometimes some; now and then longer than a lease.
fn load_time(rng: &mut StdRng) -> u64 {
    match rng.random_range(0..1_000) {
        0..600 => 0,
        600..960 => rng.random_range(0..4_000),
        960..995 => rng.random_range(5_000..20_000),
        _ => rng.random_range(120_000..250_000),
    }
}

/// Asks the database for the version of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupLoader(Arc<Client>);

impl Service<TaggedAsk> for GroupLoader {
    type Response = GroupVersion;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<GroupVersion>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, TaggedAsk { key, before, after }: TaggedAsk) -> Self::Future {
        let client = Arc::clone(&self.0);
        let group = key % GROUPS;
        let query = Query::Load { key: ROWS + group, before, after };
        Box::pin(async move { client.ask(query).await.map(|version| (group, version)) })
    }
}

/// How many keys there are, and how many groups they are in.
pub(crate) const KEYS: u64 = 12;
pub(crate) const GROUPS: u64 = 4;

/// The number of the row of the first group. Rows of keys have smaller numbers.
const ROWS: u64 = 1_000;

/// More tracks than any worker has, so that no two seeds share one.
const TRACKS: u64 = 1_000;
