//! The scripts of a `RedisStore`, one per operation, and what their requests and replies consist of.

use std::sync::LazyLock;

use bellwether::adapter::jitter;
use bellwether::store::Digest;
use bellwether_redis_client::{RedisClient, RedisScript, RedisValue};

pub(super) type StoreScript = LazyLock<RedisScript>;

pub(super) static ABANDON: StoreScript = LazyLock::new(|| linked(include_str!("abandon.lua")));
pub(super) static ACQUIRE: StoreScript = LazyLock::new(|| linked(include_str!("acquire.lua")));
pub(super) static CHANGE_TAG: StoreScript =
    LazyLock::new(|| linked(include_str!("change_tag.lua")));
pub(super) static COMMIT: StoreScript = LazyLock::new(|| linked(include_str!("commit.lua")));
pub(super) static FAIL: StoreScript = LazyLock::new(|| linked(include_str!("fail.lua")));
pub(super) static INVALIDATE: StoreScript =
    LazyLock::new(|| linked(include_str!("invalidate.lua")));
pub(super) static RENEW: StoreScript = LazyLock::new(|| linked(include_str!("renew.lua")));
pub(super) static TOUCH_TAGS: StoreScript =
    LazyLock::new(|| linked(include_str!("touch_tags.lua")));

/// A script with the functions of the store that it uses.
pub(super) fn linked(text: &str) -> RedisScript {
    RedisScript::linked("", &[include_str!("prelude.lua")], text)
}

/// All names of a key: its entry, lease, watermark and failure.
pub(super) fn names(client: &RedisClient, digest: &Digest) -> Vec<Vec<u8>> {
    ["", ":lease", ":watermark", ":failed"].map(|suffix| client.name(digest, suffix)).into()
}

pub(super) fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn random_bytes(count: usize) -> Vec<u8> {
    (0..count).map(|_| (jitter() * 256.0) as u8).collect()
}

/// Reads 1 or 0.
pub(super) fn is_done(reply: RedisValue) -> Option<bool> {
    Some(reply.whole()? == 1)
}

/// Accepts any reply.
pub(super) fn any(_: RedisValue) -> Option<()> {
    Some(())
}

/// The maximum of a time in milliseconds. Scripts add and double times in floating point. No layer sets
/// such times.
pub(super) const LONGEST_MS: u64 = 1 << 50;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::envelope::DRIFT;
    use super::super::tags::TAG_LIFE;
    use bellwether::adapter::millis;
    use bellwether::store::WATERMARK_TTL;

    #[test]
    fn the_scripts_go_by_the_same_times() {
        let prelude = include_str!("prelude.lua");
        let has = |name, value: u64| prelude.contains(&format!("local {name} = {value}\n"));
        assert!(has("watermark_life", millis(WATERMARK_TTL)) && has("tag_life", millis(TAG_LIFE)));
        assert!(has("drift", DRIFT) && Duration::from_micros(DRIFT) < TAG_LIFE);
    }
}
