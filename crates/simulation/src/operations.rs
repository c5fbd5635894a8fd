//! The callers: what they do with a cache, and when they leave.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bellwether::{Cache, CacheError, CacheStatus, Tag};
use bellwether_redis::RedisStore;
use tokio::time::{Instant, sleep};

use crate::history::{Asked, Loaded, Shared};
use crate::host::Millis;
use crate::promises::{ChangeOf, Incarnation};

/// A process as its callers see it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) shared: Arc<Shared>,
    pub(crate) process: Incarnation,
    pub(crate) cache: Cache<u64, Loaded>,
    /// For how long it may serve a near copy that was invalidated. None if it has no copies.
    pub(crate) near: Option<Millis>,
    /// Whether tags are known only from what was loaded.
    pub(crate) tags_of_answers: bool,
    /// Whether no load fails.
    pub(crate) never_fails: bool,
    /// After how long a caller loads without a lease. None if it does not.
    pub(crate) loads_alone_after: Option<Millis>,
    /// Whether only a second link that ends makes a request fail.
    pub(crate) outlives_faults: bool,
    /// How long a caller waits at most, without a fault and with faults.
    pub(crate) bounds: [Millis; 2],
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get {
    pub(crate) key: u64,
    /// How long the load takes before and after it reads the source.
    pub(crate) load: [Millis; 2],
    pub(crate) load_fails: bool,
    pub(crate) deadline: Option<Millis>,
    pub(crate) forces_refresh: bool,
}

/// How the cache is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    Invalidate,
    Expire,
    /// With the new value. For keys.
    Put,
}

impl Caller {
    fn cache_of(&self, key: u64) -> Cache<u64, Loaded> {
        let tags = self.shared.tag_of(key).filter(|_| !self.tags_of_answers);
        self.cache.tagged(tags.map(tag))
    }

    /// Asks for a value, and leaves after so many polls.
    pub(crate) async fn get(self, get: Get, leaves_after: Option<u32>) {
        let Get { key, load, load_fails, deadline, forces_refresh } = get;
        let asked = self.shared.ask(key, self.process, self.near);
        let mut cache = self.cache_of(key);
        if let Some(deadline) = deadline {
            cache = cache.with_deadline(Instant::now() + Duration::from_millis(deadline));
        }
        if forces_refresh {
            cache = cache.with_refresh();
        }
        let (shared, process, at) = (Arc::clone(&self.shared), self.process, asked.at);
        let loads_alone_after = self.loads_alone_after;
        let load = move || async move {
            let may_be_second = loads_alone_after.is_some_and(|it| shared.network.now() >= at + it);
            let running = shared.begin_load(key, process, may_be_second);
            sleep(Duration::from_millis(load[0])).await;
            let loaded = shared.versions(key);
            sleep(Duration::from_millis(load[1])).await;
            drop(running);
            if load_fails { Err("the source fails") } else { Ok(loaded) }
        };
        let answer = cache.get_or_load(key, load).with_status();
        let answered = patient(answer, leaves_after).await;
        let what = match &answered {
            None => "has left".to_owned(),
            Some((Ok(loaded), status)) => {
                self.shared.check(&asked, self.process, self.near, *loaded, status);
                format!("{loaded:?} {status}")
            }
            Some((Err(error), _)) => {
                self.shared.failed(error);
                if asked.is_calm && self.never_fails && deadline.is_none() {
                    self.shared.violation(format_args!("without a fault, key {key}: {error}"));
                }
                error.to_string()
            }
        };
        if answered.is_some() {
            self.check_wait(&asked, deadline);
        }
        self.end(&asked, "get", &what);
    }

    /// Asks for the values of this key and of those after it that have its tag, so many at most, with one load
    /// for those that are missing.
    pub(crate) async fn get_many(self, get: Get, most: usize, leaves_after: Option<u32>) {
        let Get { key, load, load_fails, .. } = get;
        let (shared, process) = (&self.shared, self.process);
        let step = shared.tags.max(1) as usize;
        let keys: Vec<_> = (key..shared.keys).step_by(step).take(most).collect();
        let asked: Vec<_> = keys.iter().map(|key| shared.ask(*key, process, self.near)).collect();
        let at = asked[0].at;
        let (loading, loads_alone_after) = (Arc::clone(shared), self.loads_alone_after);
        let load = move |keys: Vec<u64>| async move {
            let may_be_second =
                loads_alone_after.is_some_and(|it| loading.network.now() >= at + it);
            let begin = |key: &u64| loading.begin_load(*key, process, may_be_second);
            let running: Vec<_> = keys.iter().map(begin).collect();
            sleep(Duration::from_millis(load[0])).await;
            let loaded: Vec<_> = keys.iter().map(|key| Ok(loading.versions(*key))).collect();
            sleep(Duration::from_millis(load[1])).await;
            drop(running);
            if load_fails { Err("the source fails") } else { Ok(loaded) }
        };
        let answer = self.cache_of(key).get_or_load_many(keys, load);
        let answered = patient(answer.with_status(), leaves_after).await;
        for (nth, asked) in asked.iter().enumerate() {
            let what = match answered.as_ref().map(|answers| &answers[nth]) {
                None => "has left".to_owned(),
                Some((Ok(loaded), status)) => {
                    shared.check(asked, process, self.near, *loaded, status);
                    format!("{loaded:?} {status}")
                }
                Some((Err(error), _)) => {
                    shared.failed(error);
                    if asked.is_calm && self.never_fails {
                        shared.violation(format_args!("without a fault, of many: {error}"));
                    }
                    error.to_string()
                }
            };
            if answered.is_some() {
                self.check_wait(asked, None);
            }
            self.end(asked, "get of many", &what);
        }
    }

    /// Reads a value that is stored.
    pub(crate) async fn lookup(self, key: u64, leaves_after: Option<u32>) {
        let asked = self.shared.ask(key, self.process, self.near);
        let cache = self.cache_of(key);
        let found = patient(cache.get(key), leaves_after).await;
        if let Some(Ok(Some(loaded))) = found {
            let hit = CacheStatus::Hit { fresh_for: None };
            self.shared.check(&asked, self.process, self.near, loaded, &hit);
        }
        if let Some(Err(error)) = &found {
            self.check_error(&asked, format_args!("a lookup: {error}"));
        }
        if found.is_some() {
            self.check_wait(&asked, None);
        }
        self.end(
            &asked,
            "lookup",
            format_args!("{:?}", found.map(|it| it.map_err(|error| error.kind()))),
        );
    }

    /// Changes the source, and tells the cache.
    pub(crate) async fn change(self, what: ChangeOf, how: Telling, leaves_after: Option<u32>) {
        let subject = self.shared.subject(what);
        let Some(version) = self.shared.begin_change(subject) else { return };
        let asked = self.shared.ask(subject % self.shared.keys, self.process, self.near);
        self.shared.note(format_args!("{:?} begins {how:?} of {what:?} {version}", self.process));
        let done = patient(self.tell(what, how), leaves_after).await;
        let is_ok = matches!(done, Some(Ok(())));
        // What was dropped is kept, and so is what has failed.
        let is_kept =
            done.as_ref().is_none_or(|done| done.as_ref().is_err_and(CacheError::is_pending));
        let is_kept = is_kept && how != Telling::Put && leaves_after != Some(0);
        let promise =
            (is_ok || is_kept).then_some((version, how == Telling::Expire, self.process, is_ok));
        self.shared.end_change(subject, promise);
        if let Some(Err(error)) = &done {
            self.check_error(&asked, format_args!("{how:?} of {what:?}: {error}"));
        }
        let done = done.map(|it| it.map_err(|error| error.kind()));
        self.check_wait(&asked, None);
        self.end(&asked, "change", format_args!("{what:?} {how:?} {version}: {done:?}"));
    }

    /// Applies what a database has recorded, as a follower does.
    pub(crate) async fn apply_recorded(self, what: ChangeOf) {
        let done = self.tell(what, Telling::Invalidate).await;
        self.shared.end_recorded(what, self.process, done.is_ok());
    }

    /// If the store has connected since, applies again what was applied lately, as a follower does.
    pub(crate) async fn apply_again(self, store: RedisStore) {
        let (shared, process) = (&self.shared, self.process);
        let opened = store.opened().await;
        let mut is_ok = true;
        if shared.with(|it| it.recorded.may_have_lost(process, opened)) {
            let now = shared.network.now();
            for row in shared.with(|it| it.recorded.retained(now)) {
                let began_at = shared.begin_again(&row);
                is_ok = self.tell(row.what, Telling::Invalidate).await.is_ok();
                if !is_ok {
                    break;
                }
                shared.end_again(&row, process, began_at);
            }
        }
        let now = shared.network.now();
        shared.with(|it| it.recorded.looked(process, is_ok.then_some(opened), now));
    }

    async fn tell(&self, what: ChangeOf, how: Telling) -> Result<(), CacheError> {
        let handle = self.cache.handle();
        match (what, how) {
            (ChangeOf::Key(key), Telling::Put) => {
                let put =
                    RunningPut { shared: &self.shared, key, value: self.shared.begin_put(key) };
                self.cache_of(key).put(key, put.value).await.map(drop)
            }
            (ChangeOf::Key(key), Telling::Invalidate) => self.cache.invalidate(key).await.map(drop),
            (ChangeOf::Key(key), Telling::Expire) => self.cache.expire(key).await.map(drop),
            (ChangeOf::Tag(number), Telling::Expire) => {
                handle.expire_tag(&tag(number), Duration::ZERO).await
            }
            (ChangeOf::Tag(number), _) => handle.invalidate_tag(&tag(number)).await,
        }
    }

    /// Checks whether a request to the store may fail. One that is lost with its link is sent again.
    fn check_error(&self, asked: &Asked, error: fmt::Arguments<'_>) {
        let may_fail = self.shared.network.with(|it| it.may_fail(self.process.0));
        if !may_fail && (asked.is_calm || self.outlives_faults) {
            self.shared.violation(format_args!("without a fault that excuses it, {error}"));
        }
    }

    /// Checks how long a caller has waited.
    fn check_wait(&self, asked: &Asked, deadline: Option<Millis>) {
        let waited = self.shared.waited(asked, self.process);
        let bound = self.bounds[usize::from(!asked.is_calm)];
        let bound = deadline.map_or(bound, |deadline| bound.min(deadline + 2));
        if waited > bound {
            let key = asked.key;
            self.shared.violation(format_args!(
                "a caller of key {key} has waited for {waited} ms, bound {bound}"
            ));
        }
    }

    fn end(&self, asked: &Asked, operation: &str, what: impl fmt::Display) {
        let Asked { key, at, .. } = asked;
        self.shared.note(format_args!("{:?} {operation} {key} since {at}: {what}", self.process));
        self.shared.with(|history| {
            history.operations += 1;
            history.under_way -= 1;
            history.ends(self.process);
        });
    }
}

/// A `put` under way. It ends when this is dropped.
struct RunningPut<'a> {
    shared: &'a Shared,
    key: u64,
    value: Loaded,
}

impl Drop for RunningPut<'_> {
    fn drop(&mut self) {
        self.shared.end_put(self.key, self.value);
    }
}

/// A future that is dropped after so many polls. None if it was.
async fn patient<T>(future: impl Future<Output = T>, polls: Option<u32>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == Some(0) {
            return Poll::Ready(None);
        }
        left = left.map(|left| left - 1);
        match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == Some(0) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub(crate) fn tag(number: u64) -> Tag {
    Tag::of("group").with(number)
}
