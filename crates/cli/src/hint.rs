//! Why nothing is stored of a key: the likeliest mistake, found by looking.

use std::collections::BTreeSet;

use bellwether_redis::by_digest::{self, KeyState};
use bellwether_redis_client::ClientSetup;

use crate::CliError;
use crate::nodes::scan;
use crate::server::ServerArgs;
use crate::target::CommandTarget;
use crate::typed_key::VERSIONS;

/// The mistake in the namespace, the name, the version or the types, in this order. `kinds` are caches that are known.
pub(crate) async fn of(server: &ServerArgs, target: &CommandTarget, kinds: &[String]) -> String {
    let found = find(server, target, kinds).await;
    found.unwrap_or_else(|error| {
        format!("nothing is stored, and the mistake was not found: {error}")
    })
}

/// Whether anything is there of a key.
pub(crate) fn is_known(state: &KeyState) -> bool {
    state.entry.is_some() || state.lease.is_some() || state.failure.is_some()
}

async fn find(
    server: &ServerArgs,
    target: &CommandTarget,
    kinds: &[String],
) -> Result<String, CliError> {
    // The user of a cache may not be allowed to scan.
    if let Ok(Some(hint)) = of_namespace(server).await {
        return Ok(hint);
    }
    let Some(typed) = &target.typed else {
        return Ok("nothing is stored; is the namespace right, and the name of the cache, with its version? is a part \
                   text? 42 is a number, and text:42 another key"
            .to_owned());
    };
    let store = server.store()?;
    for (mistake, other) in typed.others(kinds) {
        let Ok(key) = other.key() else { continue };
        if is_known(&by_digest::inspect(&store, &key.digest()).await?) {
            return Ok(format!("nothing is stored of `{typed}`, but of `{other}`: {mistake}"));
        }
    }
    Ok(format!(
        "nothing is stored of `{typed}`, nor of other versions up to {VERSIONS} or other types of its parts; is the \
         name of the cache right, and the namespace? or its life has ended"
    ))
}

/// Whether other namespaces have names, and this one has none.
async fn of_namespace(server: &ServerArgs) -> Result<Option<String>, CliError> {
    let client = server.client(ClientSetup::default()).await?;
    let ours = client.options().namespace();
    let (mut others, mut is_ours) = (BTreeSet::new(), false);
    let has_read_all = scan(&client, "bw:*", MOST_NAMES, |name| {
        if let Some(namespace) = name.split(':').nth(1) {
            is_ours = namespace == ours;
            others.insert(format!("`{namespace}`"));
        }
        !is_ours && others.len() < MOST_SHOWN
    });
    let is_sure = has_read_all.await? || others.len() >= MOST_SHOWN;
    if is_ours || !is_sure {
        return Ok(None);
    }
    let others = Vec::from_iter(others).join(", ");
    Ok(Some(match others.is_empty() {
        true => format!("nothing is stored in the namespace `{ours}`, nor in any other"),
        false => format!(
            "nothing is stored in the namespace `{ours}`, but in {others}: is the namespace right?"
        ),
    }))
}

/// How many names are read at most to find the namespace, in about a tenth of a second.
const MOST_NAMES: u64 = 100_000;

const MOST_SHOWN: usize = 10;
