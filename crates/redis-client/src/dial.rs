//! The dialer: opens a stream to a server, and authenticates over it.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select, select_ok};
use redis::aio::{AsyncPushSender, MultiplexedConnection, PubSub, PubSubStream};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisError};
use tokio::net::{TcpStream, lookup_host};
use tokio::select;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::address::ServerAddress;
use super::credentials::{Login, RedisCredentials};
use super::server_error::ServerError;
use super::server_stream::{ByteStream, LastWords, ServerStream};
use super::silence::LastHeard;
#[cfg(feature = "tls")]
use super::tls::{TlsConnector, explain_end};
use bellwether::adapter::{BoxFuture, locked};
use bellwether::store::StoreErrorKind;

/// How to connect to servers. All connections of a client share it, whichever server they lead to.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) login: Option<Arc<Login>>,
    pub(super) database: u32,
    #[cfg(feature = "simulated-network")]
    pub(super) network: Option<super::simulated::SimulatedNetwork>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<TlsConnector>>,
}

/// An authenticated connection, with the task that writes and reads it, and the one that renews its
/// credentials. They end when this is dropped.
pub(super) type Dialed = (MultiplexedConnection, JoinSet<()>);

/// The receiver of the push messages of a connection. It is dropped with the connection.
pub(super) type PushSender = Arc<dyn AsyncPushSender>;

/// What an attempt to connect waits for.
pub(super) struct DialStep(Mutex<String>);

impl DialStep {
    pub(super) fn new(what: &str) -> Self {
        Self(Mutex::new(format!("no {what}")))
    }

    /// From now on it waits for this of a server.
    pub(super) fn next(&self, what: &str, of: &ServerAddress) {
        *locked(&self.0) = format!("{of}: no {what}");
    }

    /// Runs an attempt for no longer than a limit. After that, the error says what was missing.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        attempt: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        timeout(limit, attempt).await.unwrap_or_else(|_| {
            let missing = locked(&self.0);
            let message = format!("{missing} within {limit:?}");
            Err(ServerError::Other(StoreErrorKind::TimedOut, message.into()))
        })
    }
}

impl Dialer {
    /// Connects to a server, and authenticates: by RESP3 if push messages are received, by RESP2
    /// otherwise. The caller sets the timeout, and says what was `step` then. `heard` notes when bytes
    /// arrive. The connection ends when `until` is over; requests that are under way on it fail as if it had been lost.
    ///
    /// # Errors
    /// Those of the stream, of the credentials and of the authentication, and a refusal of the
    /// protocol.
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(super) async fn dial(
        &self,
        address: &ServerAddress,
        pushes: Option<PushSender>,
        heard: [Arc<LastHeard>; 2],
        until: impl Future<Output = ()> + Send + 'static,
        step: &DialStep,
    ) -> Result<Dialed, ServerError> {
        let protocol = match pushes {
            Some(_) => ProtocolVersion::RESP3,
            None => ProtocolVersion::RESP2,
        };
        let connect = |stream, settings| self.authenticate(stream, settings, pushes.clone());
        let connected = self.log_in(address, protocol, heard, step, connect).await;
        let ((socket, io), credentials) = connected?;
        step.next("answer to the first commands", address);
        let mut tasks = JoinSet::new();
        tasks.spawn(async {
            select! {
                biased;
                () = io => {}
                () = until => {}
            }
        });
        if let (Some(login), Some(used)) = (&self.login, credentials) {
            tasks.spawn(Arc::clone(login).renew(socket.clone(), used));
        }
        Ok((socket, tasks))
    }

    /// Connects to a server, authenticates, and subscribes to a channel by RESP2. The caller sets the
    /// timeout. If the server ends the connection because a token has expired, the caller opens
    /// another one.
    ///
    /// # Errors
    /// Those of [`dial`](Self::dial).
    ///
    /// # Cancel safety
    /// Dropping it closes what was opened.
    pub(super) async fn subscribe(
        &self,
        address: &ServerAddress,
        channel: &str,
        step: &DialStep,
    ) -> Result<PubSubStream, ServerError> {
        let connect = |stream, settings: RedisConnectionInfo| async move {
            let opened = PubSub::new(&settings, stream).await;
            let mut subscription = opened.map_err(|error| self.explained(error, &settings))?;
            subscription.subscribe(channel).await?;
            Ok(subscription.into_on_message())
        };
        let (protocol, heard) = (ProtocolVersion::RESP2, Default::default());
        let (messages, _) = self.log_in(address, protocol, heard, step, connect).await?;
        Ok(messages)
    }

    /// Opens a stream, and connects over it with the credentials of this time.
    async fn log_in<T, F>(
        &self,
        address: &ServerAddress,
        protocol: ProtocolVersion,
        heard: [Arc<LastHeard>; 2],
        step: &DialStep,
        connect: impl Fn(ServerStream, RedisConnectionInfo) -> F,
    ) -> Result<(T, Option<RedisCredentials>), ServerError>
    where
        F: Future<Output = Result<T, ServerError>>,
    {
        step.next("credentials of the provider", address);
        let mut credentials = self.credentials().await?;
        loop {
            let last_words = LastWords::default();
            let (heard, words) = (heard.clone(), Some(last_words.clone()));
            let stream = self.open(address, step).await?;
            let stream = ServerStream { stream, heard, is_full: false, words };
            step.next("answer to the login (`HELLO`)", address);
            let settings = self.settings(protocol, credentials.as_ref());
            let connected = connect(stream, settings).await.map_err(|error| last_words.or(error));
            match (connected, credentials) {
                (Err(error), Some(refused)) if error.is_about_credentials() => {
                    // They may have been changed meanwhile.
                    let now = self.credentials().await.ok().flatten();
                    let now = now.filter(|now| !now.is_same(&refused));
                    // A server without passwords refuses one without a user by `AUTH`, and not by `HELLO`.
                    let by_name =
                        || refused.of_default_user().filter(|_| !protocol.supports_resp3());
                    credentials = Some(now.or_else(by_name).ok_or(error)?);
                }
                (Ok(connected), credentials) => return Ok((connected, credentials)),
                (Err(error), _) => return Err(error),
            }
        }
    }

    async fn credentials(&self) -> Result<Option<RedisCredentials>, ServerError> {
        let Some(login) = &self.login else { return Ok(None) };
        login.credentials().await.map(Some)
    }

    async fn open(
        &self,
        address: &ServerAddress,
        step: &DialStep,
    ) -> Result<Box<dyn ByteStream>, ServerError> {
        step.next("connection", address);
        #[cfg(feature = "simulated-network")]
        if let Some(network) = &self.network {
            return Ok(Box::new(network(address.to_string()).await?));
        }
        match address {
            ServerAddress::Tcp { host, port } => {
                let stream = open_tcp(host, *port).await?;
                #[cfg(feature = "tls")]
                if let Some(tls) = &self.tls {
                    step.next("TLS handshake", address);
                    return Ok(Box::new(tls.encrypt(stream, host).await?));
                }
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            ServerAddress::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            ServerAddress::Unix(_) => {
                Err(ServerError::misconfigured("this system has no Unix sockets"))
            }
        }
    }

    async fn authenticate(
        &self,
        stream: ServerStream,
        settings: RedisConnectionInfo,
        pushes: Option<PushSender>,
    ) -> Result<(MultiplexedConnection, BoxFuture<'static, ()>), ServerError> {
        // The client sets a timeout for every request. A second one here would only cost a timer.
        let mut config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        if let Some(pushes) = pushes {
            config = config.set_push_sender(pushes);
        }
        let connecting = MultiplexedConnection::new_with_config(&settings, stream, config);
        let (mut socket, driver) =
            connecting.await.map_err(|error| self.explained(error, &settings))?;
        let mut driver: BoxFuture<'static, ()> = Box::pin(driver);
        if !settings.protocol().supports_resp3() && settings.password().is_none() {
            // Nothing was sent yet that shows whether the server takes the connection.
            let ping = redis::cmd("PING");
            let answer = pin!(ping.query_async::<()>(&mut socket));
            let refused = match select(answer, &mut driver).await {
                Either::Left((answer, _)) => answer.err().map(ServerError::from),
                Either::Right(_) => Some(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
            };
            if let Some(error) = refused.filter(|error| error.is_lost() || error.ends_connection())
            {
                return Err(error);
            }
        }
        Ok((socket, driver))
    }

    fn settings(
        &self,
        protocol: ProtocolVersion,
        credentials: Option<&RedisCredentials>,
    ) -> RedisConnectionInfo {
        let mut settings =
            RedisConnectionInfo::default().set_protocol(protocol).set_db(self.database.into());
        if !protocol.supports_resp3() {
            // Proxies that speak no RESP3 may end a connection at `CLIENT SETINFO`.
            settings = settings.set_skip_set_lib_name();
        }
        if let Some(RedisCredentials { user, password, .. }) = credentials {
            settings = settings.set_password(password);
            if let Some(user) = user {
                settings = settings.set_username(user);
            }
        }
        settings
    }

    /// Explains why a server did not accept a connection.
    fn explained(&self, error: RedisError, settings: &RedisConnectionInfo) -> ServerError {
        // Some servers repeat the words of a command that they do not know.
        let password = settings.password().filter(|password| !password.is_empty());
        if password.is_some_and(|password| error.to_string().contains(password)) {
            return ServerError::misconfigured("the server refuses the command that authenticates");
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some()
            && let Some(io) = io_error(&error)
        {
            return explain_end(io);
        }
        match error.kind() {
            // A server that expects TLS answers by bytes of that.
            ErrorKind::Parse => ServerError::misconfigured(NO_REDIS),
            _ => error.into(),
        }
    }
}

/// The error of the stream under an error of the client.
#[cfg(feature = "tls")]
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?.downcast_ref()
}

/// Connects to the first address of a host that accepts.
async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let attempts: Vec<_> = lookup_host((host, port))
        .await?
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
    }
    let (stream, _) = select_ok(attempts).await?;
    // Without `nodelay`, commands that share a connection wait for each other's acknowledgement.
    stream.set_nodelay(true)?;
    // Without keepalive, a client that only waits for push messages cannot detect a dead peer.
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE / 3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

const NO_REDIS: &str =
    "the server does not speak the protocol of Redis at this port: it may expect TLS (`rediss://`)";

/// How many commands the client queues before callers have to wait.
const QUEUE: usize = 1024;

/// The TCP keepalive time: after this much silence, the peer is probed three times as often. No
/// request waits for this, because its timeout is much shorter.
const SILENCE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn connections_are_kept_alive_and_send_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = open_tcp("localhost", port).await.unwrap();
        assert!(stream.nodelay().unwrap() && SockRef::from(&stream).keepalive().unwrap());
    }
}
