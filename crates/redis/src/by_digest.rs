//! For the tools of operators: what is stored of a key, and how it is removed, by the digest that logs show.
//!
//! A program that has the key uses its cache instead. `bellwether-cli` is built on this.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;

use super::envelope::{self, Opened};
pub use super::outbox::ledger::WithdrawnDigest;
use super::scripts::{self, LuaScript, ReplyFields, linked};
use super::{RedisStore, failure};
use bellwether::StoreError;
use bellwether::store::{Digest, Entry, Failure, Standing, Withdrawal};
use bellwether_redis_client::{RedisRequest, RedisValue};

/// What the server has of a key, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyState {
    /// The server's time, in us since the Unix epoch.
    pub now: u64,
    /// The entry, as if it had no tags; or why the bytes that are there are none.
    pub entry: Option<Result<Entry, &'static str>>,
    /// Whether the entry was made stale before the end of its ttl.
    pub is_expired: bool,
    /// The tags of the entry, and what each has made of it. They are read after the entry.
    pub tags: Vec<(Digest, Standing)>,
    /// The fence that the last invalidation left, for ten minutes: the server's time of that, in us,
    /// unless its clock was set back.
    pub watermark: Option<u64>,
    /// The last failure, what is left of its cooldown, and for how long it is remembered.
    pub failure: Option<(Failure, Duration, Duration)>,
    /// The lease, while a process has one.
    pub lease: Option<LeaseState>,
}

impl KeyState {
    /// The entry as a lookup gives it: as its tags have left it, if they have left any of it.
    pub fn found(&self) -> Option<Entry> {
        let entry = self.entry.clone()?.ok()?;
        let standing = self.tags.iter().map(|(_, standing)| *standing).min();
        standing.unwrap_or(Standing::Current).apply(entry, self.now)
    }
}

/// A lease that a process has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseState {
    /// The token of its holder.
    pub token: Vec<u8>,
    /// Its fencing token.
    pub fence: u64,
    /// After what time it lapses, unless its holder renews it.
    pub left: Duration,
    /// How many processes have left their mark, to be told of its end.
    pub waiters: u64,
    /// The trace of its load, as a W3C `traceparent`.
    pub trace: Option<String>,
}

/// Reads all that is stored of a key. It needs no right that the store does not need.
///
/// # Errors
/// Those of [`Store::lookup`](bellwether::store::Store::lookup).
///
/// # Cancel safety
/// Dropping it loses the answer.
pub async fn inspect(store: &RedisStore, key: &Digest) -> Result<KeyState, StoreError> {
    let names = scripts::names(&store.parts().client, key);
    let request = RedisRequest::script(&INSPECT, names, [], INSPECTING);
    let mut state = store.parts().client.run(&request, |reply| read(reply, key)).await?;
    if let Some(Ok(entry)) = &state.entry
        && !entry.epochs().is_empty()
    {
        let tags = store.parts().tags.read(&entry.tags()).await?;
        state.tags = tags.standings(entry, key, || state.now).collect();
    }
    Ok(state)
}

/// Invalidates or expires a key or a tag, as [`Store::withdraw`](bellwether::store::Store::withdraw) does:
/// processes are told. Returns whether there was an entry of a key.
///
/// # Errors
/// Those of that.
///
/// # Cancel safety
/// If it is dropped, it is kept, and repeated while the process lives.
pub async fn change(
    store: &RedisStore,
    target: WithdrawnDigest,
    change: Withdrawal,
) -> Result<bool, StoreError> {
    store.parts().outbox.withdraw(target, change, None).await
}

/// Reads the reply of the script, which has all but the tags.
pub(super) fn read(reply: RedisValue, key: &Digest) -> Option<KeyState> {
    let mut fields = ReplyFields::of(reply)?;
    let (now, sealed) = (fields.whole()?, fields.bytes()?);
    let opened = sealed.map(|sealed| envelope::open(Bytes::from(sealed), key));
    let watermark = Some(fields.whole()?).filter(|watermark| *watermark > 0);
    let failed = fields.bytes()?.and_then(|failed| failure::read(&failed));
    let remembered = Duration::from_millis(fields.left()?);
    let lease = match fields.bytes()? {
        None => None,
        Some(token) => Some(LeaseState {
            token,
            fence: fields.whole()?,
            left: Duration::from_millis(fields.left()?),
            waiters: fields.whole()?,
            trace: fields.bytes()?.and_then(|trace| String::from_utf8(trace).ok()),
        }),
    };
    Some(KeyState {
        now,
        is_expired: opened.as_ref().is_some_and(|it| it.as_ref().is_ok_and(|it| it.stale_at > 0)),
        entry: opened.map(|opened| opened.map(|opened| whole(opened, now))),
        tags: Vec::new(),
        watermark,
        failure: failed.map(|failure| {
            let age = failure.life.saturating_sub(remembered);
            let cooldown = failure.cooldown.saturating_sub(age);
            (failure, cooldown, remembered)
        }),
        lease,
    })
}

/// An entry with what is left of its life at a time of the server, if only nothing.
fn whole(opened: Opened, now: u64) -> Entry {
    let left = opened.life_left(now).unwrap_or_default();
    opened.entry.with_remaining(Some(left))
}

/// Not among the scripts that every process loads on connecting.
static INSPECT: LuaScript = LazyLock::new(|| linked(include_str!("inspect.lua")));

const INSPECTING: &str = "inspecting a key";
