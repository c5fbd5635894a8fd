//! Messages: a commit tells the processes that wait for its lease, with the entry if that is short.
//!
//! The message is the name of the entry and the sealed bytes. Its flight judges it by what the store has
//! [said of the lease](bellwether::store::OtherLease). Here, the entry is read like one of a lookup: damaged
//! bytes, an entry whose life may be over by the server's time, and one from before dropped invalidations
//! count as none, and the message is a hint only.
//!
//! Nothing is read over an invalidation that is re-asserted: when that begins, all watches are told, and
//! a watch gives no entry after another change. One that has failed and is kept needs no more. The acquire
//! that was told of the lease has repeated it before, if it had failed by then.

use std::sync::Arc;

use bytes::Bytes;

use super::envelope;
use super::kept::KeptInvalidations;
use super::life::{life_left, may_be_over};
use bellwether::Digest;
use bellwether::store::{Entry, Remaining};
use bellwether_redis_client::{MessageReader, ServerTime};

/// Reads the messages to a store, which keeps these invalidations.
#[derive(Debug)]
pub(super) struct StoredMessages(pub(super) Arc<KeptInvalidations>);

impl MessageReader for StoredMessages {
    fn read(&self, key: &Digest, sealed: &[u8], now: ServerTime) -> Option<Entry> {
        let (draft, stamp, epochs) = envelope::open(Bytes::copy_from_slice(sealed), key).ok()?;
        let lifetimes = draft.lifetimes();
        if stamp.fence < self.0.floor() || may_be_over(lifetimes, stamp, Some(now)) {
            return None;
        }
        let remaining = Remaining::Known(life_left(lifetimes, stamp, now.latest)?);
        Some(draft.into_tagged_entry(stamp.fence, stamp.stored_at, remaining, epochs))
    }
}
