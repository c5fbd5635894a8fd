#[expect(dead_code, unreachable_pub, reason = "what is not interleaved here")]
#[path = "../../src/store/watch.rs"]
pub(crate) mod watch;

mod entry {
    /// By its fence.
    pub(crate) type Entry = u64;
}
