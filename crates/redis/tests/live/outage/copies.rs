//! A request that is sent again after its connection broke may arrive twice, and the first copy last.

use std::time::Duration;

use bellwether::store::{
    Accept, Acquire, Claim, Draft, Failure, Lease, Renew, Settled, Store, Value,
};
use bellwether::{Cache, FailureCause, Key, Lifetimes};
use bellwether_redis::{RedisOptions, RedisStore};
use bellwether_test::StoreExt as _;
use bellwether_testkit::faults::HeldCommand;
use bellwether_testkit::servers::Reply;
use bellwether_testkit::wait::within;

use super::Site;

const MINUTE: Duration = Duration::from_secs(60);

/// How long a copy may be under way before the server refuses it, and how long a test waits for an
/// event that has no delay.
const PATIENCE: Duration = Duration::from_secs(20);

/// What another process does before the copy arrives.
#[derive(Clone, Copy, Debug)]
enum Change {
    Invalidate,
    Expire,
    Put,
}

const CHANGES: [Change; 3] = [Change::Invalidate, Change::Expire, Change::Put];

/// A process that has taken a lease by a request of which a copy is held back, and another process
/// with an entry of the key.
struct Copied {
    site: Site,
    ours: RedisStore,
    lease: Lease,
    copy: HeldCommand,
    theirs: Cache<u64, String>,
}

impl Copied {
    async fn start() -> Self {
        let site = Site::start().await;
        let options = site.options().timeout(PATIENCE);
        let ours = options.connect().await.expect("a store");
        let there = RedisOptions::new(&site.server.url(), "test")
            .expect("an address")
            .connect()
            .await
            .expect("another process");
        let theirs = Cache::builder("item", there)
            .ttl(MINUTE)
            .stale_if_error(MINUTE)
            .build()
            .expect("options");
        theirs.put(1, "before".to_owned()).await.expect("an answer");
        let claim = Claim::new(theirs.key(1));
        let copy = site.proxy.hold(claim.token().as_bytes());
        let asking = tokio::spawn(ours.acquire(claim, MINUTE, Accept::Nothing));
        within(PATIENCE, || copy.is_held()).await;
        site.proxy.cut();
        let lease = match asking.await.expect("no panic") {
            Ok(Acquire::Lead { lease, .. }) => lease,
            other => panic!("{other:?} instead of a lease"),
        };
        Self { site, ours, lease, copy, theirs }
    }

    async fn change(&self, change: Change) {
        let changed = match change {
            Change::Invalidate => self.theirs.invalidate(1).await,
            Change::Expire => self.theirs.expire(1).await,
            Change::Put => self.theirs.put(1, "after".to_owned()).await,
        };
        assert!(changed.expect("an answer"), "{change:?}");
    }

    fn key(&self) -> Key {
        self.theirs.key(1)
    }

    fn lease_left(&self) -> i64 {
        self.site.lease_left(&self.key())
    }
}

fn draft() -> Draft {
    Draft::new(Value::new("loaded before the change".into()), 0, Lifetimes::fresh_for(MINUTE))
}

#[tokio::test]
async fn a_late_copy_of_an_acquire_does_not_undo_an_invalidation() {
    for change in CHANGES {
        let mut this = Copied::start().await;
        this.change(change).await;
        this.copy.deliver().await;
        assert!(this.lease_left() > 0, "{change:?}: or the copy has done nothing");
        let renewed = this.ours.renew(&this.lease, MINUTE).await.expect("an answer");
        assert_eq!(renewed, Renew::Lost, "{change:?}");
        let committed = this.ours.commit(this.lease, draft()).await.expect("an answer");
        assert_eq!(committed, Settled::Superseded, "{change:?}");
        let after = matches!(change, Change::Put).then_some("after");
        assert_eq!(this.theirs.get(1).await.expect("an answer").as_deref(), after, "{change:?}");
        assert!(this.site.lease_left(&this.theirs.key(1)) < 0, "{change:?}: the lease is left");
    }
}

#[tokio::test]
async fn a_failure_after_a_late_copy_of_an_acquire_does_not_outlive_an_invalidation() {
    for change in CHANGES {
        let mut this = Copied::start().await;
        this.change(change).await;
        this.copy.deliver().await;
        let failure = Failure::new(FailureCause::Error, 2, MINUTE);
        let key = this.key();
        this.ours.fail(this.lease, failure).await.expect("an answer");
        let name = format!("bw:test:{{{}}}:failed", key.digest());
        let left = this.site.server.command(&["EXISTS", &name]);
        assert_eq!(left, Reply::Integer(0), "{change:?}");
        assert!(this.site.lease_left(&key) < 0, "{change:?}: the lease is left");
    }
}

#[tokio::test]
async fn a_late_copy_of_an_acquire_leaves_a_lease_that_holds_as_it_is() {
    let mut this = Copied::start().await;
    let renew = || this.ours.renew(&this.lease, 2 * MINUTE);
    assert_eq!(renew().await.expect("an answer"), Renew::Held);
    this.copy.deliver().await;
    assert!(this.lease_left() > 60_000, "it holds for {} ms", this.lease_left());
    assert_eq!(renew().await.expect("an answer"), Renew::Held);
    let committed = this.ours.commit(this.lease, draft()).await.expect("an answer");
    assert_eq!(committed, Settled::Done);
}

#[tokio::test]
async fn a_late_copy_of_a_commit_does_not_undo_an_invalidation() {
    for change in CHANGES {
        let site = Site::start().await;
        let options = site.options().timeout(PATIENCE);
        let ours = options.connect().await.expect("a store");
        let there = RedisOptions::new(&site.server.url(), "test")
            .expect("an address")
            .connect()
            .await
            .expect("another process");
        let theirs =
            Cache::<u64, String>::builder("item", there).ttl(MINUTE).build().expect("options");
        let claim = Claim::new(theirs.key(1));
        let token = claim.token();
        let Ok(Acquire::Lead { lease, .. }) = ours.acquire(claim, MINUTE, Accept::Fresh).await
        else {
            panic!("no lease");
        };
        let mut copy = site.proxy.hold(token.as_bytes());
        let storing = tokio::spawn(ours.commit(lease, draft()));
        within(PATIENCE, || copy.is_held()).await;
        site.proxy.cut();
        let committed = storing.await.expect("no panic").expect("an answer");
        assert_eq!(committed, Settled::Done);
        match change {
            Change::Invalidate => theirs.invalidate(1).await.map(drop),
            Change::Expire => theirs.expire(1).await.map(drop),
            Change::Put => theirs.put(1, "after".to_owned()).await.map(drop),
        }
        .expect("an answer");
        copy.deliver().await;
        let after = matches!(change, Change::Put).then_some("after");
        assert_eq!(theirs.get(1).await.expect("an answer").as_deref(), after, "{change:?}");
    }
}
