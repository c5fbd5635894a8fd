//! The check at start-up: whether the store can work with the server.

use bellwether::StoreError;
use bellwether::store::StoreErrorKind;
use bellwether_redis_client::{RedisClient, RedisRequest};

/// Connects now instead of at the first use, and runs the commands of operations on names that are
/// not used. It leaves nothing behind.
pub(super) async fn prepare(client: &RedisClient, has_near: bool) -> Result<(), StoreError> {
    client.connect().await?;
    for name in client.names_on_nodes("check") {
        client.run(&RedisRequest::command("MGET", [name], [], CONNECTING), Some).await?;
    }
    client.check_scripts(&COMMANDS).await?;
    for probe in client.probes(CONNECTING) {
        match client.run(&probe, Some).await {
            // For now: it cannot save to its disk, or has too few replicas. A replica was detected before.
            Err(error) if error.kind() == StoreErrorKind::Refused => {
                tracing::warn!(target: "bellwether::store", %error, "redis refuses a write for now");
            }
            probed => drop(probed?),
        }
    }
    if has_near && !client.is_tracked() {
        explain_untracked(client).await?;
    }
    Ok(())
}

/// Finds out whether a near cache has no tracking because the user may not ask for it. A server
/// without tracking is no error: the near cache then keeps no copies.
async fn explain_untracked(client: &RedisClient) -> Result<(), StoreError> {
    let args = [b"TRACKING".to_vec(), b"ON".to_vec()];
    let request = RedisRequest::command("CLIENT", [], args, CONNECTING);
    match client.run(&request, Some).await {
        Err(error) if error.to_string().contains("NOPERM") => {
            let message = format!("{error}: a near cache needs `+client|tracking`");
            Err(StoreError::new(StoreErrorKind::Misconfigured, message))
        }
        _ => Ok(()),
    }
}

/// The commands of the scripts.
const COMMANDS: [&str; 7] = ["get", "setrange", "time", "set", "pttl", "pexpire", "del"];

const CONNECTING: &str = "connecting";
