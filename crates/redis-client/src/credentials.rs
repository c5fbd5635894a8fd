//! Credentials: users, passwords and tokens, and where they come from.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use super::retry_pauses::RetryPauses;
use super::server_error::ServerError;
use super::shared_task::{SharedTask, start};
use bellwether::adapter::{BoxFuture, locked};
use bellwether::{BoxError, warn_throttled};

/// A user and a password, or a token in place of the password.
#[derive(Clone)]
pub struct RedisCredentials {
    pub(super) user: Option<String>,
    pub(super) password: String,
    /// After what time they are renewed.
    pub(super) renew_after: Option<Duration>,
}

/// Gives the credentials for connections, as they are at that time.
///
/// It is asked before each connection is opened. If the server refuses the credentials, it is asked
/// once more, because they may have been changed in between. Credentials with a
/// [`renew_after`](RedisCredentials::renew_after) are also renewed while a connection is open.
/// Connections that need credentials at the same time share one call.
///
/// A call may take longer than the timeout of a request, because it does not end with the request
/// that needs it. After ten seconds it is given up.
///
/// # Providers
/// - [`RedisCredentials`] that never change;
/// - an async closure.
///
/// A password in a file, as orchestrators provide secrets, is read again for each connection:
///
/// ```no_run
/// use bellwether_redis_client::{RedisClientOptions, RedisCredentials};
///
/// # fn options() -> Result<(), Box<dyn std::error::Error>> {
/// let options = RedisClientOptions::new("redis://cache.example.org", "shop")?.credentials(|| async {
///     let password = tokio::fs::read_to_string("/run/secrets/redis").await?;
///     Ok(RedisCredentials::new("cache", password.trim()))
/// });
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
///
/// # Tokens
/// A service that authenticates by its identity asks its cloud for a token. This crate needs none of
/// their SDKs: a closure calls it.
///
/// ```no_run
/// use bellwether_redis_client::{RedisClientOptions, RedisCredentials};
///
/// # async fn token_of_the_cloud() -> Result<(String, std::time::Duration), bellwether::BoxError> { unimplemented!() }
/// # fn options() -> Result<(), Box<dyn std::error::Error>> {
/// let options = RedisClientOptions::new("redis://cache.example.org", "shop")?.credentials(|| async {
///     let (token, lifetime) = token_of_the_cloud().await?;
///     // Some servers close a connection when its token expires, so it is renewed well before.
///     Ok(RedisCredentials::new("object-id", token).renew_after(lifetime * 3 / 4))
/// });
/// # let _ = options;
/// # Ok(())
/// # }
/// ```
///
/// | service | user | password | `renew_after` |
/// |---|---|---|---|
/// | AWS ElastiCache, MemoryDB (IAM) | the user id | a signed URL, valid for 15 minutes | 11 h: a connection is closed 12 h after its last `AUTH` |
/// | Azure (Entra ID) | the object id | an access token | 5 min before it expires |
/// | Google Memorystore (IAM) | none | an access token | none: connections outlive their token |
///
/// # Cancel safety
/// Its future runs as a task of its own, and is dropped only after ten seconds or with the runtime.
pub trait CredentialsProvider: Send + Sync + 'static {
    /// The credentials for a connection that is opened now.
    ///
    /// # Errors
    /// The provider's own. They are shown in the errors of the connection, so they must not hold a
    /// secret.
    fn credentials(&self) -> BoxFuture<'static, Result<RedisCredentials, BoxError>>;
}

impl RedisCredentials {
    /// The password or the token of a user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..Self::password(password) }
    }

    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into(), renew_after: None }
    }

    /// Sets after what time the provider is asked again and open connections authenticate by its
    /// answer (`AUTH`). Where that fails, it is tried again with pauses of up to half a minute, and
    /// the connection is used as it is.
    ///
    /// Default: never. A server keeps the connections of a user whose password changes. Servers with
    /// tokens may close a connection when its token expires.
    #[must_use]
    pub fn renew_after(self, time: Duration) -> Self {
        Self { renew_after: Some(time.max(SHORTEST)), ..self }
    }

    /// The same with the name of the default user, for a server without passwords. None if they have a user.
    pub(super) fn of_default_user(&self) -> Option<Self> {
        let (user, password) = (Some("default".to_owned()), self.password.clone());
        self.user.is_none().then_some(Self { user, password, renew_after: None })
    }

    /// Whether a server takes them for the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.user == other.user && self.password == other.password
    }
}

impl CredentialsProvider for RedisCredentials {
    fn credentials(&self) -> BoxFuture<'static, Result<RedisCredentials, BoxError>> {
        let credentials = self.clone();
        Box::pin(async { Ok(credentials) })
    }
}

impl<F, C> CredentialsProvider for F
where
    F: Fn() -> C + Send + Sync + 'static,
    C: Future<Output = Result<RedisCredentials, BoxError>> + Send + 'static,
{
    fn credentials(&self) -> BoxFuture<'static, Result<RedisCredentials, BoxError>> {
        Box::pin(self())
    }
}

// Shows neither the user nor the password.
bellwether::debug_fields! { RedisCredentials => |it| renew_after = it.renew_after }

/// The shortest time between two renewals, so that a mistake does not keep a server busy.
const SHORTEST: Duration = Duration::from_millis(100);

/// The provider of the credentials of a client.
pub(super) struct Login {
    provider: Box<dyn CredentialsProvider>,
    /// The call that is under way. Held to read and replace it, never across an `.await`.
    pending: Mutex<Option<PendingCredentials>>,
}

type PendingCredentials = SharedTask<Result<RedisCredentials, Arc<str>>>;

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
        let answer = answer.unwrap_or_else(|| Err("the provider has panicked".into()));
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
        let asked = timeout(LONGEST_CALL, self.provider.credentials());
        start(async {
            match asked.await {
                Ok(answer) => answer.map_err(|error| error.to_string().into()),
                Err(_) => Err(format!("no answer within {LONGEST_CALL:?}").into()),
            }
        })
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
