//! The scripts of a `RedisStore`, one per operation, and what their requests and replies consist of.

use std::sync::{Arc, LazyLock};

use bellwether::adapter::jitter;
use bellwether::store::Digest;
use bellwether_redis_client::{RedisClient, RedisScript, RedisValue};

/// A script of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoreScript {
    Abandon,
    Acquire,
    ChangeTag,
    Commit,
    Fail,
    Invalidate,
    Lookup,
    Renew,
    TouchTags,
}

/// All of them, in that order. They are loaded on connecting.
pub(super) static SCRIPTS: LazyLock<Arc<[RedisScript]>> = LazyLock::new(|| {
    let texts = [
        include_str!("abandon.lua"),
        include_str!("acquire.lua"),
        include_str!("change_tag.lua"),
        include_str!("commit.lua"),
        include_str!("fail.lua"),
        include_str!("invalidate.lua"),
        include_str!("lookup.lua"),
        include_str!("renew.lua"),
        include_str!("touch_tags.lua"),
    ];
    texts.map(|text| RedisScript::linked("", &[include_str!("prelude.lua")], text)).into()
});

impl StoreScript {
    pub(super) fn get(self) -> &'static RedisScript {
        &SCRIPTS[self as usize]
    }
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
