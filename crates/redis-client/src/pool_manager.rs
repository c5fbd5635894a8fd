//! Connections for a pool of the application, dialled as those of a store.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, Value};
use tokio::task::JoinSet;

use super::client_core::{ClientCore, ClientSetup};
use super::dial::DialStep;
use super::node_state::NodeState;
use super::options::RedisClientOptions;
use super::sentinel::verify;
use super::server_error::ServerError;
use bellwether::ConfigError;

/// Connects a pool of `bb8`, or of `bb8-redis`, with the options of a store: to the primary that
/// sentinels name, with credentials and certificates that are renewed. It takes the place of
/// `bb8_redis::RedisConnectionManager`.
///
/// A connection whose server has gone, or is the primary no longer, is replaced before it is used.
/// This costs no command, unlike the `PING` of `bb8-redis`. Commands end within
/// [`timeout`](RedisClientOptions::timeout), and connecting within
/// [`connect_timeout`](RedisClientOptions::connect_timeout). The protocol is RESP2.
///
/// ```no_run
/// # async fn pool() -> Result<(), Box<dyn std::error::Error>> {
/// use bellwether_redis_client::{RedisClientOptions, RedisPoolManager};
///
/// let options = RedisClientOptions::new("redis://127.0.0.1:6379", "shop")?;
/// let pool = bb8::Pool::builder().max_size(4).build(RedisPoolManager::new(options)?).await?;
/// let mut connection = pool.get().await?;
/// let () = redis::cmd("SET").arg("visits").arg(1).query_async(&mut *connection).await?;
/// # Ok(())
/// # }
/// ```
pub struct RedisPoolManager(Arc<NodeState>);

/// A connection of a pool: a `MultiplexedConnection` of `redis`, which ends when this is dropped.
#[derive(Debug)]
pub struct RedisPoolConnection {
    socket: MultiplexedConnection,
    /// The task that writes and reads it, and the one that renews its credentials.
    _tasks: JoinSet<()>,
    /// Has a strong reference until the first of them ends.
    driver: Weak<()>,
}

impl RedisPoolManager {
    /// Uses the address and how to connect to it. The namespace and the breaker have no effect.
    ///
    /// # Errors
    /// If an option is wrong, or the address is that of a cluster.
    pub fn new(options: RedisClientOptions) -> Result<Self, ConfigError> {
        options.wrong.result()?;
        if options.is_cluster() {
            let reason = "a pool leads to one server, and `redis-cluster://` to several";
            return Err(ConfigError::Url { reason });
        }
        let address = options.servers.addresses[0].clone();
        let parts = Arc::new(ClientCore::new(options, ClientSetup::default()));
        Ok(Self(Arc::new(NodeState::new(parts, 0, address))))
    }

    async fn dial(&self, step: &DialStep) -> Result<RedisPoolConnection, ServerError> {
        let (node, options) = (&self.0, &self.0.parts.options);
        // A failover from here on may change the address.
        let begun_after = node.failovers.count();
        let address = &node.address().await?;
        let alive = Arc::new(());
        let driver = Arc::downgrade(&alive);
        let failovers = Arc::clone(&node.failovers);
        // The driver drops it when the connection ends.
        let until = async move {
            let (_alive, switched) = (alive, failovers.switched.notified());
            if failovers.count() == begun_after {
                switched.await;
            }
        };
        let (mut socket, tasks) =
            options.dialer.dial(address, None, Default::default(), until, step).await?;
        socket.set_response_timeout(options.timeout);
        if node.sentinels.is_some() {
            verify(&mut socket, address).await?;
        }
        Ok(RedisPoolConnection { socket, _tasks: tasks, driver })
    }
}

impl bb8::ManageConnection for RedisPoolManager {
    type Connection = RedisPoolConnection;
    type Error = RedisError;

    async fn connect(&self) -> Result<RedisPoolConnection, RedisError> {
        let step = DialStep::new("answer of a sentinel");
        let dialled = step.within(self.0.parts.options.connect_timeout, self.dial(&step)).await;
        dialled.map_err(|error| match error {
            ServerError::Reported(error) => error,
            error => io::Error::other(error.during("connect", None)).into(),
        })
    }

    async fn is_valid(&self, connection: &mut RedisPoolConnection) -> Result<(), RedisError> {
        let ended = self.has_broken(connection);
        if ended { Err((ErrorKind::Io, "the connection has ended").into()) } else { Ok(()) }
    }

    fn has_broken(&self, connection: &mut RedisPoolConnection) -> bool {
        connection.driver.strong_count() == 0
    }
}

impl Deref for RedisPoolConnection {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.socket
    }
}

impl DerefMut for RedisPoolConnection {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        &mut self.socket
    }
}

impl ConnectionLike for RedisPoolConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.socket.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.socket.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.socket.get_db()
    }
}

bellwether::debug_fields! { RedisPoolManager => |it| options = it.0.parts.options }
