//! All sentinels of a service.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::super::address::ServerAddress;
use super::super::connect_error::ConnectError;
use super::super::dial::{Dialer, Driver};
use super::super::failovers::Failovers;
use super::super::options::RedisClientOptions;
use super::answer::{SentinelAnswer, choose};
use super::link::{LinkState, SentinelLink, ask};
use bellwether::warn_throttled;

/// Asks the sentinels of a service for its primary, and follows it.
pub(in super::super) struct Sentinels {
    addresses: Vec<ServerAddress>,
    service: Arc<str>,
    /// For connections to the sentinels themselves.
    dialer: Dialer,
    /// How long an answer may take.
    timeout: Duration,
    /// How long connecting to a sentinel may take.
    connect_timeout: Duration,
    failovers: Arc<Failovers>,
    /// What the task has connected to. Held to start it, never across an `.await`.
    links: Mutex<Option<(Vec<watch::Receiver<LinkState>>, Driver)>>,
    /// The primary that is used. Held to replace it, never across an `.await`.
    known: Mutex<Option<KnownPrimary>>,
}

/// The primary, as sentinels have named it.
#[derive(Clone, Debug)]
struct KnownPrimary {
    answer: SentinelAnswer,
    since: Instant,
}

impl Sentinels {
    /// It connects at the first question.
    pub(in super::super) fn new(
        addresses: &[ServerAddress],
        service: &str,
        options: &RedisClientOptions,
        failovers: &Arc<Failovers>,
    ) -> Self {
        Self {
            addresses: addresses.to_vec(),
            service: service.into(),
            dialer: options.sentinel_dialer(),
            timeout: options.request_timeout(),
            connect_timeout: options.connect_limit(),
            failovers: Arc::clone(failovers),
            links: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// The address of the primary. If it is another one than before, all connections to the former
    /// one are ended.
    ///
    /// # Errors
    /// If no sentinel answers in time, or none knows the service.
    pub(in super::super) async fn primary(self: &Arc<Self>) -> Result<ServerAddress, ConnectError> {
        let answers = self.answers().await?;
        if answers.len() * 2 <= self.addresses.len() {
            warn_throttled!(
                target: "bellwether::store", answers = answers.len(),
                sentinels = self.addresses.len(),
                "less than a majority of the sentinels answer"
            );
        }
        let known: Vec<_> = answers.into_iter().flatten().collect();
        let Some(chosen) = choose(&known) else {
            let message =
                format!("the sentinels {} know no service `{}`", self.list(), self.service);
            return Err(ConnectError::misconfigured(message));
        };
        let (primary, is_another) = settle(&mut lock(&self.known), chosen, Instant::now());
        if is_another {
            tracing::info!(target: "bellwether::store", %primary, "the sentinels name another primary");
            self.failovers.switch();
        }
        Ok(primary)
    }

    /// The answers of a majority, and of those that answer shortly after. If a sentinel hangs, a
    /// request that needs the primary still has half of its timeout left. Without any answer,
    /// sentinels may be busy, and have as long as connecting may take.
    async fn answers(self: &Arc<Self>) -> Result<Vec<Option<SentinelAnswer>>, ConnectError> {
        let links = self.links().into_iter();
        let asked = links.map(|link| ask(link, &self.service, self.timeout));
        let mut asked = asked.collect::<FuturesUnordered<_>>();
        let (mut answers, mut error) = (Vec::new(), ConnectError::unavailable("there is none"));
        let mut deadline = Instant::now() + 2 * self.connect_timeout;
        while let Ok(Some(answer)) = timeout_at(deadline, asked.next()).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failed) => error = failed,
            }
            let rest = match answers.len() {
                0 => continue,
                answered if answered <= self.addresses.len() / 2 => self.timeout / 2,
                _ => GRACE,
            };
            deadline = deadline.min(Instant::now() + rest);
        }
        if answers.is_empty() { Err(self.unanswered(error)) } else { Ok(answers) }
    }

    /// The error if no sentinel answers, by that of one of them.
    fn unanswered(&self, error: ConnectError) -> ConnectError {
        let message = format!("no sentinel of {} answers: {error}", self.list());
        match error {
            ConnectError::Late(_) => ConnectError::Late(message.into()),
            ConnectError::Reported(error) if !error.is_io_error() => error.into(),
            ConnectError::Misconfigured(_) => error,
            _ => ConnectError::unavailable(message),
        }
    }

    fn list(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The connections of the task, which is started at the first question, and again if the runtime
    /// that ran it has ended.
    fn links(self: &Arc<Self>) -> Vec<watch::Receiver<LinkState>> {
        let mut links = lock(&self.links);
        let is_alive = |link: &watch::Receiver<LinkState>| link.has_changed().is_ok();
        match &*links {
            Some((links, _)) if links.iter().any(is_alive) => links.clone(),
            _ => links.insert(self.start()).0.clone(),
        }
    }

    fn start(self: &Arc<Self>) -> (Vec<watch::Receiver<LinkState>>, Driver) {
        let hints = Arc::<Notify>::default();
        let link = |address: &ServerAddress| {
            let (state, link) = watch::channel(None);
            let (dialer, service) = (self.dialer.clone(), Arc::clone(&self.service));
            let (address, hints) = (address.clone(), Arc::clone(&hints));
            let timeout = self.connect_timeout;
            (SentinelLink { dialer, address, service, timeout, hints, state }.run(), link)
        };
        let (running, links): (Vec<_>, _) = self.addresses.iter().map(link).unzip();
        let task = join(join_all(running), follow(Arc::downgrade(self), hints));
        (links, Driver::of(tokio::spawn(task).abort_handle()))
    }
}

/// Asks again whenever a sentinel reports a failover or is connected to.
async fn follow(sentinels: Weak<Sentinels>, hints: Arc<Notify>) {
    loop {
        hints.notified().await;
        let Some(sentinels) = sentinels.upgrade() else { return };
        if let Err(error) = sentinels.primary().await {
            tracing::debug!(target: "bellwether::store", %error, "the sentinels name no primary");
        }
    }
}

/// The primary to use after an answer, and whether it is another one than before.
///
/// For a while after a failover, the other sentinels do not know of it yet, and answers to earlier
/// questions may arrive late. So an answer of a lower epoch is not used then.
fn settle(
    known: &mut Option<KnownPrimary>,
    chosen: &SentinelAnswer,
    now: Instant,
) -> (ServerAddress, bool) {
    if let Some(known) = known
        && known.answer.epoch > chosen.epoch
        && now.saturating_duration_since(known.since) < SPREAD
    {
        return (known.answer.primary.clone(), false);
    }
    let former = known.as_ref().map(|known| known.answer.clone());
    if former.as_ref() != Some(chosen) {
        *known = Some(KnownPrimary { answer: chosen.clone(), since: now });
    }
    let is_another = former.is_some_and(|former| former.primary != chosen.primary);
    (chosen.primary.clone(), is_another)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the answers of the other sentinels are waited for when a majority has answered.
const GRACE: Duration = Duration::from_millis(20);

/// How long a failover takes to be known to all sentinels that work. They tell each other every two
/// seconds.
const SPREAD: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(port: u16, epoch: u64) -> SentinelAnswer {
        let primary = ServerAddress::Tcp { host: "10.0.0.1".to_owned(), port };
        SentinelAnswer { primary, epoch }
    }

    fn settled(
        known: &mut Option<KnownPrimary>,
        chosen: &SentinelAnswer,
        at: Instant,
    ) -> (String, bool) {
        let (primary, is_another) = settle(known, chosen, at);
        (primary.to_string(), is_another)
    }

    #[test]
    fn the_first_answer_is_no_failover_and_another_primary_is_one() {
        let mut known = None;
        let now = Instant::now();
        assert_eq!(settled(&mut known, &answer(1, 3), now), ("10.0.0.1:1".to_owned(), false));
        assert_eq!(settled(&mut known, &answer(1, 3), now), ("10.0.0.1:1".to_owned(), false));
        assert_eq!(settled(&mut known, &answer(2, 4), now), ("10.0.0.1:2".to_owned(), true));
    }

    #[test]
    fn after_a_failover_older_answers_are_not_used_for_a_while() {
        let mut known = None;
        let now = Instant::now();
        settled(&mut known, &answer(1, 3), now);
        settled(&mut known, &answer(2, 4), now);
        assert_eq!(settled(&mut known, &answer(1, 3), now), ("10.0.0.1:2".to_owned(), false));
        // The sentinels may have been replaced by others.
        let later = now + SPREAD;
        assert_eq!(settled(&mut known, &answer(1, 0), later), ("10.0.0.1:1".to_owned(), true));
    }
}
