//! A fleet: a Redis, a database, and the processes that share them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use std::{fmt, io};

use bellwether::Cache;
use bellwether_redis::RedisOptions;
use bellwether_testkit::faults::FaultProxy;
use bellwether_testkit::servers::{RedisServer, Reply};
use bellwether_testkit::wait::until;
use futures_util::future::join_all;

use crate::answer::{Answer, How};
use crate::database::Database;
use crate::messages::{NAMESPACE, Setup};
use crate::process::Worker;
use crate::rows::key_of;

/// The scheduling delay of a few processes on a busy machine of two cores. A bound with this added
/// still detects a lost push message, which would cost a lease, or a pause that is long on purpose.
pub(crate) const SLACK: Duration = Duration::from_millis(250);

/// The server and the database that the workers of a test share.
pub(crate) struct Fleet {
    pub(crate) redis: RedisServer,
    pub(crate) database: Database,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A fleet whose Redis has these options of its command line.
    async fn start_with(options: &[&str]) -> Self {
        let redis = RedisServer::start_with(options);
        let database = Database::start().await;
        knows_the_scripts(&redis).await;
        Self { redis, database }
    }

    /// A fleet, and a proxy before its server for the workers with a bad network.
    pub(crate) async fn proxied() -> (Self, FaultProxy) {
        Self::proxied_with(&[]).await
    }

    /// The same, with options of the command line of Redis.
    pub(crate) async fn proxied_with(options: &[&str]) -> (Self, FaultProxy) {
        let fleet = Self::start_with(options).await;
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, fleet.redis.port()));
        let proxy = FaultProxy::start(server).await;
        (fleet, proxy)
    }

    pub(crate) fn setup(&self) -> Setup {
        Setup::over(self.redis.url(), &self.database)
    }

    /// The address for a user with such rights to commands, and to all names and channels.
    pub(crate) fn url_of_user(&self, rights: &[&str]) -> String {
        self.redis.url_of_user(&[&["~*", "&*"], rights].concat())
    }

    /// A setup in which waiters find the value by a push message, or not at all.
    pub(crate) fn setup_without_pauses(&self) -> Setup {
        Setup { lease_ms: 60_000, pause_ms: Some(60_000), ..self.setup() }
    }

    pub(crate) async fn workers(&self, count: usize, setup: &Setup) -> Vec<Worker> {
        join_all((0..count).map(|_| Worker::start(setup.clone()))).await
    }

    /// How often the server has executed which command.
    pub(crate) fn calls(&self) -> Calls {
        Calls::on([&self.redis])
    }

    /// Waits until the server has executed so many commands since then.
    pub(crate) async fn has_called(&self, since: &Calls, command: &str, times: u64) {
        let what = format!("{times} times {command}");
        until(&what, || self.calls().since(since).of(command) >= times).await;
    }

    /// The connections over which the last thing asked was a script, by their numbers.
    pub(crate) fn asking_clients(&self) -> Vec<String> {
        let clients = self.redis.command(&["CLIENT", "LIST"]).text();
        let asking = clients.lines().filter(|client| client.contains(" cmd=evalsha "));
        let ids = asking.filter_map(|client| client.strip_prefix("id=")?.split_once(' '));
        ids.map(|(id, _)| id.to_owned()).collect()
    }

    /// Waits until so many connections beside the known ones have asked, and says which.
    pub(crate) async fn new_connections_ask(&self, known: &[String], count: usize) -> Vec<String> {
        let new = || {
            let mut asking = self.asking_clients();
            asking.retain(|id| !known.contains(id));
            asking
        };
        until(&format!("{count} ask"), || new().len() >= count).await;
        new()
    }

    pub(crate) fn kill_clients(&self, ids: &[String]) {
        for id in ids {
            self.redis.command(&["CLIENT", "KILL", "ID", id]);
        }
    }

    /// Ends all connections over which processes are told.
    pub(crate) fn end_subscriptions(&self) {
        self.redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    pub(crate) fn entry(&self, key: u64) -> RedisName<'_> {
        self.redis_name(format!("bw:{NAMESPACE}:{{{}}}", key_of(key).digest()))
    }

    pub(crate) fn lease(&self, key: u64) -> RedisName<'_> {
        self.redis_name(format!("bw:{NAMESPACE}:{{{}}}:lease", key_of(key).digest()))
    }

    /// Asserts that no lease is left, and that no key of the namespace lives for ever.
    pub(crate) fn nothing_is_left_behind(&self) {
        let Reply::Array(names) = self.redis.command(&["KEYS", "*"]) else {
            panic!("no names");
        };
        for name in names.into_iter().map(Reply::text) {
            assert!(name.starts_with("bw:"), "{name} is none of ours");
            assert!(!name.ends_with(":lease"), "{name} is left behind");
            let life = self.redis_name(name.clone()).life();
            assert!(life.is_some(), "{name} lives for ever");
        }
    }

    fn redis_name(&self, name: String) -> RedisName<'_> {
        RedisName { redis: &self.redis, name }
    }
}

impl Setup {
    /// A setup with the defaults of the crate, except where a test would depend on the speed of the
    /// machine: the timeout of the store is long, and so is the ttl.
    pub(crate) fn over(url: String, database: &Database) -> Self {
        Self {
            url,
            database: database.address(),
            resp2: false,
            near: false,
            timeout_ms: 10_000,
            ttl_ms: 600_000,
            stale_if_error_ms: 0,
            lease_ms: 10_000,
            pause_ms: None,
            cancels: false,
        }
    }
}

/// One name in Redis.
pub(crate) struct RedisName<'a> {
    redis: &'a RedisServer,
    name: String,
}

impl RedisName<'_> {
    /// Its remaining life: `None` if it lives for ever, zero if it does not exist.
    pub(crate) fn life(&self) -> Option<Duration> {
        let Reply::Integer(millis) = self.redis.command(&["PTTL", &self.name]) else {
            panic!("no life");
        };
        (millis != -1).then(|| Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    /// A digest of its value, because values are no text.
    pub(crate) fn mark(&self) -> Option<String> {
        let hash = "local kept = redis.call('GET', KEYS[1]) return kept and redis.sha1hex(kept)";
        match self.redis.command(&["EVAL", hash, "1", &self.name]) {
            Reply::Text(mark) => Some(mark),
            _ => None,
        }
    }

    /// A digest of what a lease says of its holder. The marks of those that wait for it come and go.
    pub(crate) fn holder(&self) -> Option<String> {
        let hash = "local kept = redis.call('GETRANGE', KEYS[1], 0, 23) \
             return kept ~= '' and redis.sha1hex(kept)";
        match self.redis.command(&["EVAL", hash, "1", &self.name]) {
            Reply::Text(holder) => Some(holder),
            _ => None,
        }
    }

    pub(crate) fn delete(&self) {
        self.redis.command(&["DEL", &self.name]);
    }
}

/// How often a server executed which command.
#[derive(Clone, PartialEq)]
pub(crate) struct Calls(BTreeMap<String, u64>);

impl Calls {
    /// How often some servers have executed which command.
    pub(crate) fn on<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> Self {
        let mut all = BTreeMap::new();
        for server in servers {
            let info = server.command(&["INFO", "commandstats"]).text();
            for line in info.lines().filter_map(|line| line.strip_prefix("cmdstat_")) {
                let (command, stats) = line.split_once(":calls=").expect("calls");
                let calls = stats.split(',').next().expect("a number");
                let calls: u64 = calls.parse().expect("a number");
                *all.entry(command.to_owned()).or_default() += calls;
            }
        }
        Self(all)
    }

    /// The calls since then, without those of the test itself.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let more = self.0.iter().map(|(name, calls)| {
            let before = earlier.of(name);
            (name.clone(), calls - before)
        });
        let more = more.filter(|(name, calls)| *calls > 0 && !is_of_the_test(name));
        Self(more.collect())
    }

    pub(crate) fn of(&self, command: &str) -> u64 {
        self.0.get(command).copied().unwrap_or(0)
    }

    /// What clients sent, which is nothing that scripts use.
    pub(crate) fn of_clients(&self) -> u64 {
        let sent = self.0.iter().filter(|(name, _)| !is_used_by_scripts(name));
        sent.map(|(_, calls)| calls).sum()
    }

    /// Asserts that clients have sent plain hits and scripts only, and that the scripts have used
    /// nothing else than what the documented permissions allow.
    pub(crate) fn are_those_of_a_burst(&self) {
        let expected = |name: &str| ["mget", "evalsha"].contains(&name) || is_used_by_scripts(name);
        let others: Vec<_> = self.0.keys().filter(|name| !expected(name)).collect();
        assert!(others.is_empty(), "{others:?} in {self:?}");
    }
}

fn is_of_the_test(command: &str) -> bool {
    // Before Redis 7, subcommands were not counted apart.
    ["client", "client|kill", "client|list", "info"].contains(&command)
}

fn is_used_by_scripts(command: &str) -> bool {
    ["get", "setrange", "set", "del", "pttl", "pexpire", "publish", "time"].contains(&command)
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}

/// A server that has just started asks for the text of each script once. That is not what is counted here.
async fn knows_the_scripts(server: &RedisServer) {
    let options = RedisOptions::new(&server.url(), "before").expect("a URL");
    let store = options.timeout(Duration::from_secs(10)).connect().await.expect("a store");
    let items = Cache::<u64, u64>::builder("item", store).ttl(Duration::from_secs(60));
    let items = items.build().expect("a cache");
    let load = async || Ok::<_, io::Error>(1);
    assert_eq!(items.get_or_load(1, load).await.expect("an answer"), 1);
    assert!(items.invalidate(1).await.expect("an answer"));
    server.command(&["FLUSHALL"]);
}

/// Lets callers in each of some workers miss a key: one first, and the others when it has asked for
/// the lease. So all of them wait when this returns, in any scheduling. If all came together, one
/// would make a lookup of its own, whose miss could arrive after the load.
pub(crate) async fn gather(fleet: &Fleet, workers: &[Worker], key: u64, callers: usize) {
    let before = fleet.calls();
    begin(workers, key, key, 1).await;
    fleet.has_called(&before, "evalsha", workers.len() as u64).await;
    begin(workers, key, key, callers - 1).await;
}

/// Begins a burst of callers in each of some workers.
pub(crate) async fn begin(workers: &[Worker], burst: u64, key: u64, callers: usize) {
    join_all(workers.iter().map(|worker| worker.begin(burst, key, callers))).await;
}

/// The answers of a burst.
pub(crate) async fn end(workers: &[Worker], burst: u64) -> Vec<Answer> {
    let answers = join_all(workers.iter().map(|worker| worker.end(burst))).await;
    answers.into_iter().flatten().collect()
}

/// Asserts that every caller was answered by this version.
pub(crate) fn all_have(answers: &[Answer], version: u64) {
    for answer in answers {
        assert_eq!(answer.version, Ok(version), "{answer:?}");
    }
}

/// How many callers were answered in this way.
pub(crate) fn count(answers: &[Answer], how: How) -> usize {
    answers.iter().filter(|answer| answer.how == how).count()
}

/// How long after a moment of the [clock](bellwether_testkit::clock) the last answer came.
pub(crate) fn last_after(answers: &[Answer], moment: u64) -> Duration {
    let last = answers.iter().map(|answer| answer.at).max();
    Duration::from_micros(last.expect("there are callers").saturating_sub(moment))
}
