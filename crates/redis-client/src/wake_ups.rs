//! How waiters of other processes are woken where the server reports no changes.

use super::RedisClient;
use bellwether::StoreError;

impl RedisClient {
    /// The mark of this client, for a script that leaves it where the client waits. The script that
    /// ends the wait gives all marks there to `tell` of [`RedisScript::PRELUDE`], which publishes a
    /// message to each. The [watches](Self::watch) of the key are notified then.
    ///
    /// Empty if the server reports changes, so that no message is needed, and while there is no
    /// subscription to messages. The first call without one begins to subscribe, over a connection
    /// of its own.
    ///
    /// [`RedisScript::PRELUDE`]: super::RedisScript::PRELUDE
    pub fn mark(&self) -> Vec<u8> {
        if self.is_tracked() { Vec::new() } else { self.0.subscriber.mark() }
    }

    /// Where the server reports no changes, this subscribes to messages, and checks that scripts may
    /// publish them. A user that may do neither is no error: then its waiters poll.
    ///
    /// # Errors
    /// [`Misconfigured`](bellwether::StoreErrorKind::Misconfigured) if the user may subscribe and not
    /// publish: one of the two permissions has been forgotten.
    ///
    /// # Cancel safety
    /// Dropping it leaves a subscription that is open or about to be.
    pub async fn prepare_messages(&self) -> Result<(), StoreError> {
        if !self.is_tracked() && self.0.subscriber.connect().await {
            self.check_commands(&["publish"]).await?;
        }
        Ok(())
    }

    /// Whether scripts tell this process by messages.
    pub fn is_subscribed(&self) -> bool {
        self.0.subscriber.is_subscribed()
    }
}
