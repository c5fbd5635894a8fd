//! All sentinels of a service.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::super::address::ServerAddress;
use super::super::connect_error::ConnectError;
use super::super::dial::Dialer;
use super::super::reconnect::Failovers;
use super::answer::{SentinelAnswer, choose};
use super::link::{SentinelLink, SentinelQuestion};
use crate::log_throttle::warn_throttled;

/// Asks the sentinels of a service for its primary, and follows it.
pub(in super::super) struct Sentinels {
    addresses: Vec<ServerAddress>,
    service: Arc<str>,
    /// For connections to the sentinels themselves.
    dialer: Dialer,
    /// How long a question may take after the first answer.
    timeout: Duration,
    /// How long connecting to a sentinel, or its answer, may take.
    connect_timeout: Duration,
    failovers: Arc<Failovers>,
    /// The tasks of the sentinels. Held to clone or replace it, never across an `.await`.
    links: Mutex<Vec<mpsc::Sender<SentinelQuestion>>>,
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
    /// It connects at the first question. If a sentinel hangs, a request that needs the primary still
    /// has half of its timeout left.
    pub(in super::super) fn new(
        addresses: Vec<ServerAddress>,
        service: &str,
        dialer: Dialer,
        [timeout, connect_timeout]: [Duration; 2],
        failovers: Arc<Failovers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            addresses,
            service: service.into(),
            dialer,
            timeout: timeout / 2,
            connect_timeout,
            failovers,
            links: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// The address of the primary. If it is another one than before, all connections to the former
    /// one are ended.
    ///
    /// # Errors
    /// If no sentinel answers in time, or none knows the service.
    pub(in super::super) async fn primary(self: &Arc<Self>) -> Result<ServerAddress, ConnectError> {
        let (answers, error) = self.ask_all().await;
        if answers.len() * 2 <= self.addresses.len() {
            warn_throttled!(
                target: "bellwether::store", answers = answers.len(),
                sentinels = self.addresses.len(),
                "less than a majority of the sentinels answer"
            );
        }
        let known: Vec<_> = answers.iter().flatten().cloned().collect();
        let Some(chosen) = choose(&known) else {
            let late = || {
                ConnectError::Late(format!("no answer within {:?}", self.connect_timeout).into())
            };
            let error = answers.is_empty().then(|| error.unwrap_or_else(late));
            return Err(self.failure(error));
        };
        let (primary, is_another) = settle(&mut lock(&self.known), chosen, Instant::now());
        if is_another {
            tracing::info!(target: "bellwether::store", %primary, "the sentinels name another primary");
            self.failovers.switch();
        }
        Ok(primary)
    }

    /// The answers of a majority, and of those that answer shortly after; and the last error.
    /// Without any answer, sentinels may be busy, and have as long as connecting may take.
    async fn ask_all(self: &Arc<Self>) -> (Vec<Option<SentinelAnswer>>, Option<ConnectError>) {
        let links = self.links();
        let mut deadline = Instant::now() + self.connect_timeout;
        let majority = links.len() / 2 + 1;
        let mut asked: FuturesUnordered<_> = links.into_iter().map(ask).collect();
        let (mut answers, mut last_error) = (Vec::new(), None);
        while let Ok(Some(answer)) = timeout_at(deadline, asked.next()).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => last_error = Some(error),
            }
            let rest = match answers.len() {
                0 => continue,
                answered if answered < majority => self.timeout,
                _ => GRACE,
            };
            deadline = deadline.min(Instant::now() + rest);
        }
        (answers, last_error)
    }

    fn failure(&self, error: Option<ConnectError>) -> ConnectError {
        let sentinels: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        let sentinels = sentinels.join(", ");
        let service = &self.service;
        match error {
            Some(ConnectError::Reported(error)) if error.is_io_error() => {
                ConnectError::unavailable(format!("no sentinel of {sentinels} answers: {error}"))
            }
            Some(ConnectError::Late(error)) => {
                ConnectError::Late(format!("no sentinel of {sentinels} answers: {error}").into())
            }
            Some(error) => error,
            None => ConnectError::misconfigured(format!(
                "the sentinels {sentinels} know no service `{service}`"
            )),
        }
    }

    /// The tasks of the sentinels. They are started at the first question, and again if the runtime
    /// that ran them has ended.
    fn links(self: &Arc<Self>) -> Vec<mpsc::Sender<SentinelQuestion>> {
        let mut links = lock(&self.links);
        if links.iter().all(mpsc::Sender::is_closed) {
            *links = self.start();
        }
        links.clone()
    }

    fn start(self: &Arc<Self>) -> Vec<mpsc::Sender<SentinelQuestion>> {
        let (hints, hinted) = mpsc::channel(1);
        tokio::spawn(follow(Arc::downgrade(self), hinted));
        let start = |address: &ServerAddress| {
            let (sender, questions) = mpsc::channel(QUESTIONS);
            let link = SentinelLink {
                dialer: self.dialer.clone(),
                address: address.clone(),
                service: Arc::clone(&self.service),
                timeout: self.connect_timeout,
                questions,
                hints: hints.clone(),
            };
            tokio::spawn(link.run());
            sender
        };
        self.addresses.iter().map(start).collect()
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

/// Asks again whenever a sentinel reports a failover or was not heard for a while.
async fn follow(sentinels: Weak<Sentinels>, mut hints: mpsc::Receiver<()>) {
    while hints.recv().await.is_some() {
        let Some(sentinels) = sentinels.upgrade() else { return };
        if let Err(error) = sentinels.primary().await {
            tracing::debug!(target: "bellwether::store", %error, "the sentinels name no primary");
        }
    }
}

async fn ask(link: mpsc::Sender<SentinelQuestion>) -> Result<Option<SentinelAnswer>, ConnectError> {
    let (question, answer) = oneshot::channel();
    let ended = |_| ConnectError::unavailable("the task of the sentinel has ended");
    link.send(question).await.map_err(|_| ended(()))?;
    answer.await.map_err(|_| ended(()))?
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the answers of the other sentinels are waited for when a majority has answered.
const GRACE: Duration = Duration::from_millis(20);

/// How many questions may wait for one sentinel. Each connection of the client has one at a time.
const QUESTIONS: usize = 64;

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
