//! `StoreExt`: each way to settle a lease or to change what is stored as a method of its own.

use std::time::Duration;

use bellwether::adapter::BoxFuture;
use bellwether::store::{
    Claim, Draft, End, Entry, Failure, Lease, Settled, Store, StoreFuture, Tags, Withdrawal,
    WithdrawalTarget,
};
use bellwether::{Key, StoreError, Tag};

/// The verbs of a [`Store`] with their arguments spelled out, for tests that call a store by hand.
///
/// ```
/// use bellwether::{Key, MemoryStore};
/// use bellwether_test::StoreExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), bellwether::StoreError> {
/// let store = MemoryStore::new(10);
/// assert!(!store.invalidate(Key::of("item").with(1)).await?);
/// # Ok(())
/// # }
/// ```
pub trait StoreExt: Store {
    /// A [`lookup`](Store::lookup) without tags.
    fn find(&self, key: Key) -> StoreFuture<Option<Entry>> {
        self.lookup(key, Tags::none())
    }

    /// [`End::Commit`].
    fn commit(&self, lease: Lease, draft: Draft) -> StoreFuture<Settled> {
        self.settle(End::Commit(lease, draft))
    }

    /// [`End::Fail`].
    fn fail(&self, lease: Lease, failure: Failure) -> StoreFuture<()> {
        done(self.settle(End::Fail(lease, failure)))
    }

    /// [`End::Abandon`].
    fn abandon(&self, claim: Claim) -> StoreFuture<()> {
        done(self.settle(End::Abandon(claim)))
    }

    /// [`Withdrawal::Invalidate`] of a key.
    fn invalidate(&self, key: Key) -> StoreFuture<bool> {
        self.withdraw(WithdrawalTarget::Key(key), Withdrawal::Invalidate)
    }

    /// [`Withdrawal::Expire`] of a key.
    fn expire(&self, key: Key) -> StoreFuture<bool> {
        self.withdraw(WithdrawalTarget::Key(key), Withdrawal::EXPIRE)
    }

    /// [`Withdrawal::Invalidate`] of a tag.
    fn invalidate_tag(&self, tag: Tag) -> StoreFuture<()> {
        done(self.withdraw(WithdrawalTarget::Tag(tag), Withdrawal::Invalidate))
    }

    /// [`Withdrawal::Expire`] of a tag.
    fn expire_tag(&self, tag: Tag, over: Duration) -> StoreFuture<()> {
        done(self.withdraw(WithdrawalTarget::Tag(tag), Withdrawal::Expire { over }))
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

fn done<T: 'static>(
    answer: BoxFuture<'static, Result<T, StoreError>>,
) -> BoxFuture<'static, Result<(), StoreError>> {
    Box::pin(async { answer.await.map(drop) })
}
