//! How waiters of other processes are woken.

use super::RedisClient;
use bellwether::StoreError;

impl RedisClient {
    /// The mark of this client, for a script that leaves it where the client waits. The script that
    /// ends the wait gives all marks there to `tell` of [`RedisScript::PRELUDE`], which publishes a
    /// message to each. The [watches](Self::watch) of the key are notified then.
    ///
    /// Empty while there is no subscription to messages. The first call without one begins to
    /// subscribe, over a connection of its own.
    ///
    /// [`RedisScript::PRELUDE`]: super::RedisScript::PRELUDE
    pub fn mark(&self) -> Vec<u8> {
        self.0.subscriber.mark()
    }

    /// Subscribes to messages, and [checks](Self::check_commands) that the user may run scripts with
    /// these commands, and that they may publish messages. A user that may do neither is no error: then
    /// its waiters poll.
    ///
    /// # Errors
    /// [`Misconfigured`](bellwether::StoreErrorKind::Misconfigured) if the user lacks a permission, or
    /// may subscribe and not publish: one of the two permissions has been forgotten.
    ///
    /// # Cancel safety
    /// Dropping it leaves a subscription that is open or about to be.
    pub async fn check_scripts(&self, commands: &[&str]) -> Result<(), StoreError> {
        let is_subscribed = self.0.subscriber.connect().await;
        let publish = is_subscribed.then_some("publish");
        let commands: Vec<_> = commands.iter().copied().chain(publish).collect();
        self.check_commands(&commands).await
    }

    /// Whether scripts tell this process by messages.
    pub fn is_subscribed(&self) -> bool {
        self.0.subscriber.is_subscribed()
    }
}
