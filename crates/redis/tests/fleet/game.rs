//! A worker that plays at random: readers and writers in an order that the seed decides.

use std::time::Duration;

use bellwether_testkit::clock;
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;
use tower::Service;

use crate::answer::Answer;
use crate::messages::{Event, Game, What};
use crate::rows::{Ask, Rows, key_of};
use crate::worker::Member;

/// One operation of a round, with all its random choices.
#[derive(Debug)]
struct Operation {
    key: u64,
    /// How long after the round began, in us.
    delay: u64,
    kind: Kind,
    ask: Ask,
    /// The service that reads.
    service: usize,
}

#[derive(Debug)]
enum Kind {
    Expire,
    Invalidate,
    Read,
}

impl Member {
    /// Plays some rounds, and returns their history.
    pub(crate) async fn play(&self, game: Game) -> Vec<Event> {
        // Lives and leases so short that both run out now and then.
        let services = [self.another(8, 100), self.another(400, 150)];
        let tracks = (0..game.tracks).map(|track| {
            let rng = StdRng::seed_from_u64(game.seed.wrapping_mul(TRACKS) + track);
            let rounds = game.rounds / game.tracks + u64::from(track < game.rounds % game.tracks);
            self.track(&services, rng, rounds, game.keys)
        });
        join_all(tracks).await.concat()
    }

    async fn track(
        &self,
        services: &[Rows],
        mut rng: StdRng,
        rounds: u64,
        keys: u64,
    ) -> Vec<Event> {
        let mut history = Vec::new();
        for _ in 0..rounds {
            let operations: Vec<_> =
                (0..rng.random_range(3..=6)).map(|_| Operation::draw(&mut rng, keys)).collect();
            let round = operations.iter().map(|operation| self.perform(operation, services));
            history.extend(join_all(round).await.into_iter().flatten());
        }
        history
    }

    async fn perform(&self, operation: &Operation, services: &[Rows]) -> Vec<Event> {
        sleep(Duration::from_micros(operation.delay)).await;
        match operation.kind {
            Kind::Read => vec![self.read(operation, services).await],
            // A writer reads its key next.
            Kind::Expire | Kind::Invalidate => {
                vec![self.change(operation).await, self.read(operation, services).await]
            }
        }
    }

    async fn change(&self, operation: &Operation) -> Event {
        let Operation { key, kind, .. } = operation;
        let version = self.write(*key).await;
        let handle = self.handle();
        let began = clock::now();
        let done = match kind {
            Kind::Expire => handle.expire(&key_of(*key)).await,
            _ => handle.invalidate(&key_of(*key)).await,
        };
        let ended = clock::now();
        let what = What::of_change(done.map(drop), version);
        Event { key: *key, began, ended, what }
    }

    async fn read(&self, operation: &Operation, services: &[Rows]) -> Event {
        let mut service = services[operation.service].clone();
        let began = clock::now();
        let answer = service.call(operation.ask).with_status().await;
        let Answer { version, how, at: ended } = Answer::of(answer);
        let what = match version {
            Ok(version) => What::Read { version, how },
            Err(error) => What::ReadFailed(error),
        };
        Event { key: operation.key, began, ended, what }
    }
}

impl Operation {
    fn draw(rng: &mut StdRng, keys: u64) -> Self {
        let key = rng.random_range(0..keys);
        let kind = match rng.random_range(0..100) {
            0..15 => Kind::Invalidate,
            15..20 => Kind::Expire,
            _ => Kind::Read,
        };
        let [before, after] = [load_time(rng), load_time(rng)];
        Self {
            key,
            delay: rng.random_range(0..3_000),
            kind,
            ask: Ask { key, before, after },
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

/// More tracks than any worker has, so that no two seeds share one.
const TRACKS: u64 = 1_000;
