//! A pool of an application: what a check-out costs, and what a restart of the server does to it.
//!
//! Our manager takes the place of that of `bb8-redis`, in the same pool of four. Without its `PING`,
//! that one takes every connection for a good one.

use std::fmt::Debug;

use bb8_redis::RedisConnectionManager;
use bb8_redis::bb8::{ManageConnection, Pool};
use bb8_redis::redis::aio::ConnectionLike;
use bb8_redis::redis::cmd;
use bellwether_redis::{RedisClientOptions, RedisPoolManager};
use bellwether_testkit::servers::RedisServer;
use tokio::runtime::Runtime;

use crate::figures::{Number, Wanted, line};
use crate::paired::{Effort, Race};

/// After a restart.
const COMMANDS: usize = 200;

pub(crate) fn run(effort: Effort) {
    let runtime = Runtime::new().expect("a runtime");
    check_outs(&runtime, effort);
    let print = |name: &str, answered: usize| {
        let figure = format!("{answered:>10} of {COMMANDS}");
        line("pool", "after a restart", name, &figure, effort.is_smoke());
    };
    print(OURS, runtime.block_on(restarted(ours, true)));
    print("bellwether, unchecked", runtime.block_on(restarted(ours, false)));
    print(PING, runtime.block_on(restarted(theirs, true)));
    print(NO_PING, runtime.block_on(restarted(theirs, false)));
}

const OURS: &str = "bellwether";
const PING: &str = "bb8-redis";
const NO_PING: &str = "bb8-redis without PING";

fn check_outs(runtime: &Runtime, effort: Effort) {
    let server = RedisServer::start();
    let [ping, no_ping] =
        [true, false].map(|checks| runtime.block_on(pool(theirs(&server.url()), checks)));
    let own = runtime.block_on(pool(ours(&server.url()), true));
    let mut race = Race::new("pool", "a check-out");
    let own = enter(&mut race, OURS, own, runtime);
    let ping = enter(&mut race, PING, ping, runtime);
    let no_ping = enter(&mut race, NO_PING, no_ping, runtime);
    let outcome = race.run(effort);
    outcome.print(&[own, ping, no_ping]);
    outcome.print_times(ping, own, Wanted::AtLeast(10.0));
    outcome.print_times(own, no_ping, Wanted::AtMost(1.25));
}

fn enter<'r, M: ManageConnection<Error: Debug>>(
    race: &mut Race<'r>,
    name: &str,
    pool: Pool<M>,
    runtime: &'r Runtime,
) -> Number {
    race.enter_async(name, runtime, move || {
        let pool = pool.clone();
        async move { drop(pool.get().await.expect("a connection")) }
    })
}

fn ours(url: &str) -> RedisPoolManager {
    let options = RedisClientOptions::new(url, "pool").expect("an address");
    RedisPoolManager::new(options).expect("options")
}

fn theirs(url: &str) -> RedisConnectionManager {
    RedisConnectionManager::new(url).expect("an address")
}

async fn pool<M: ManageConnection<Error: Debug>>(manager: M, checks: bool) -> Pool<M> {
    let pool = Pool::builder().max_size(4).min_idle(4).test_on_check_out(checks);
    pool.build(manager).await.expect("a pool")
}

/// How many commands are answered through a pool whose server was restarted.
async fn restarted<M>(manager: fn(&str) -> M, checks: bool) -> usize
where
    M: ManageConnection<Error: Debug, Connection: ConnectionLike>,
{
    let mut server = RedisServer::start();
    let pool = pool(manager(&server.url()), checks).await;
    server.restart();
    let mut answered = 0;
    for _ in 0..COMMANDS {
        let Ok(mut connection) = pool.get().await else { continue };
        let reply = cmd("INCR").arg("count").query_async::<u64>(&mut *connection).await;
        answered += usize::from(reply.is_ok());
    }
    answered
}
