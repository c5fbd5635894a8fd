//! The scripts of a `RedisStore`: one per operation.

use std::sync::Arc;

use bellwether_redis_client::RedisScript;

#[derive(Debug)]
pub(super) struct StoreScripts {
    pub(super) abandon: RedisScript,
    pub(super) acquire: RedisScript,
    pub(super) change_tag: RedisScript,
    pub(super) commit: RedisScript,
    pub(super) fail: RedisScript,
    pub(super) invalidate: RedisScript,
    pub(super) lookup: RedisScript,
    pub(super) renew: RedisScript,
    pub(super) touch_tags: RedisScript,
}

impl StoreScripts {
    pub(super) fn new() -> Self {
        Self {
            abandon: script(include_str!("abandon.lua")),
            acquire: script(include_str!("acquire.lua")),
            change_tag: script(include_str!("change_tag.lua")),
            commit: script(include_str!("commit.lua")),
            fail: script(include_str!("fail.lua")),
            invalidate: script(include_str!("invalidate.lua")),
            lookup: script(include_str!("lookup.lua")),
            renew: script(include_str!("renew.lua")),
            touch_tags: script(include_str!("touch_tags.lua")),
        }
    }

    /// All of them, which are loaded on connecting.
    pub(super) fn of_operations(&self) -> Arc<[RedisScript]> {
        let Self { abandon, acquire, change_tag, commit, fail, .. } = self;
        let Self { invalidate, lookup, renew, touch_tags, .. } = self;
        let of_keys = [abandon, acquire, commit, fail, invalidate, lookup, renew];
        of_keys.into_iter().chain([change_tag, touch_tags]).cloned().collect()
    }
}

fn script(text: &str) -> RedisScript {
    RedisScript::new(&[RedisScript::PRELUDE, include_str!("prelude.lua"), text])
}
