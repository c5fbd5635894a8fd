//! How waiters of other processes are woken where the server reports no changes.

use super::RedisClient;
use super::subscriber::Subscriber;

impl RedisClient {
    /// The mark to leave at a lease that this process waits for, so that the script that ends it
    /// publishes a message. Empty if the server reports the change, or sends no messages.
    pub(in super::super) fn mark(&self) -> Vec<u8> {
        let subscriber = self.0.subscriber.as_ref().filter(|_| !self.is_tracked());
        subscriber.map(Subscriber::mark).unwrap_or_default()
    }

    /// Subscribes to messages, and returns whether that has succeeded.
    pub(in super::super) async fn subscribe(&self) -> bool {
        match &self.0.subscriber {
            Some(subscriber) => subscriber.connect().await,
            None => false,
        }
    }

    /// Whether scripts tell this process by messages.
    pub(in super::super) fn is_subscribed(&self) -> bool {
        self.0.subscriber.as_ref().is_some_and(Subscriber::is_subscribed)
    }
}
