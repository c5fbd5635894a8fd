//! The login of a client: asks for credentials, and renews them while a connection is open.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::credentials::{CredentialsProvider, RedisCredentials};
use super::retry_pauses::RetryPauses;
use super::server_error::ServerError;
use bellwether::adapter::{BoxFuture, locked};
use bellwether::warn_throttled;

/// The provider of the credentials of a client.
pub(super) struct Login {
    provider: Box<dyn CredentialsProvider>,
    /// The call that is under way. Held to read and replace it, never across an `.await`.
    pending: Mutex<Option<PendingCredentials>>,
}

type PendingCredentials = Shared<BoxFuture<'static, Result<RedisCredentials, Arc<str>>>>;

impl Login {
    pub(super) fn new(provider: impl CredentialsProvider) -> Arc<Self> {
        Arc::new(Self { provider: Box::new(provider), pending: Mutex::default() })
    }

    /// The credentials for a connection that is opened now.
    pub(super) async fn credentials(&self) -> Result<RedisCredentials, ServerError> {
        let pending = locked(&self.pending).get_or_insert_with(|| self.ask()).clone();
        let answer = pending.clone().await;
        // The next connection asks again.
        locked(&self.pending).take_if(|current| current.ptr_eq(&pending));
        answer.map_err(|reason| ServerError::unavailable(format!("credentials: {reason}")))
    }

    /// Authenticates again whenever it is due. It ends with the connection.
    pub(super) async fn renew(
        self: Arc<Self>,
        mut socket: MultiplexedConnection,
        mut used: RedisCredentials,
    ) {
        let mut failures = 0;
        while let Some(due) = used.renew_after {
            sleep(if failures == 0 { due } else { PAUSES.after(failures).min(due) }).await;
            match self.renew_once(&mut socket, &used).await {
                Ok(renewed) => (used, failures) = (renewed, 0),
                Err(ServerError::Reported(error)) if error.is_unrecoverable_error() => return,
                Err(error) => {
                    failures += 1;
                    warn_throttled!(target: "bellwether::store", %error, "credentials could not be renewed: trying again");
                }
            }
        }
    }

    async fn renew_once(
        &self,
        socket: &mut MultiplexedConnection,
        used: &RedisCredentials,
    ) -> Result<RedisCredentials, ServerError> {
        let renewed = self.credentials().await?;
        if !renewed.is_same(used) {
            let mut command = redis::cmd("AUTH");
            command.arg(&renewed.user).arg(&renewed.password);
            let answered = timeout(LONGEST_CALL, command.query_async::<()>(socket)).await;
            answered.map_err(io::Error::from)??;
        }
        Ok(renewed)
    }

    /// Asks the provider in a task of its own, because a connection may be given up meanwhile.
    fn ask(&self) -> PendingCredentials {
        let asked = tokio::spawn(timeout(LONGEST_CALL, self.provider.credentials()));
        let answer = async {
            match asked.await {
                Ok(Ok(answer)) => answer.map_err(|error| error.to_string().into()),
                Ok(Err(_)) => Err(format!("no answer within {LONGEST_CALL:?}").into()),
                Err(_) => Err("the provider has panicked".into()),
            }
        };
        answer.boxed().shared()
    }
}

/// How long a provider, or a server that is told a token, may take.
const LONGEST_CALL: Duration = Duration::from_secs(10);
/// Those after renewals that failed.
const PAUSES: RetryPauses = RetryPauses::new(Duration::from_secs(1), Duration::from_secs(30));

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use bellwether::BoxError;

    fn counting(calls: &Arc<AtomicU32>) -> Arc<Login> {
        let calls = Arc::clone(calls);
        Login::new(move || {
            let calls = Arc::clone(&calls);
            async move {
                sleep(Duration::from_secs(1)).await;
                let number = calls.fetch_add(1, Ordering::Relaxed);
                Ok::<_, BoxError>(RedisCredentials::password(format!("password {number}")))
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_are_opened_together_share_one_call() {
        let calls = Arc::default();
        let login = counting(&calls);
        let (one, two) = tokio::join!(login.credentials(), login.credentials());
        assert!(one.unwrap().is_same(&two.unwrap()));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        login.credentials().await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_outlives_the_connection_that_needed_it() {
        let calls = Arc::default();
        let login = counting(&calls);
        timeout(Duration::from_millis(250), login.credentials()).await.err().unwrap();
        sleep(Duration::from_secs(2)).await;
        timeout(Duration::from_millis(250), login.credentials()).await.unwrap().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_hangs_is_an_error() {
        let login = Login::new(std::future::pending);
        let error = login.credentials().await.err().unwrap();
        assert!(error.to_string().contains("no answer within 10s"), "{error}");
    }
}
