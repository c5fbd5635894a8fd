//! `ChangeBatch`: what rows ask of the stores.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bellwether::Tag;
use bellwether::store::{Withdrawal, WithdrawalTarget};
use serde_json::Value;

use super::parts::{key_of, tag_of};
use super::stores::{FollowedStores, Wanted};
use super::table::ChangeRow;

/// What rows ask of the stores: each change once.
#[derive(Debug, Default)]
pub(crate) struct ChangeBatch {
    pub(crate) wanted: Wanted,
    /// Why rows can never be applied, by their places.
    pub(crate) dead: BTreeMap<usize, String>,
    /// Names that no follower has.
    pub(crate) unknown: BTreeSet<String>,
}

impl ChangeBatch {
    pub(crate) fn new(rows: &[ChangeRow], stores: &FollowedStores) -> Self {
        let mut batch = Self::default();
        for (at, row) in rows.iter().enumerate() {
            match batch.targets(row) {
                Ok(targets) => {
                    let change = change_of(row);
                    for place in stores.places().filter(|place| !row.has_reached(*place)) {
                        for target in &targets {
                            let wanted = (place, target.clone(), change);
                            batch.wanted.entry(wanted).or_default().push(at);
                        }
                    }
                }
                Err(reason) => _ = batch.dead.insert(at, reason),
            }
        }
        batch
    }

    fn targets(&mut self, row: &ChangeRow) -> Result<Vec<WithdrawalTarget>, String> {
        let parts: Value = serde_json::from_str(&row.parts).map_err(|error| error.to_string())?;
        match row.target.as_str() {
            "key" if row.kinds.is_empty() => {
                self.unknown.insert(row.name.clone());
                Err(format!("no follower has a cache `{}`", row.name))
            }
            "key" => {
                let keys = row.kinds.iter().map(|kind| key_of(kind, &parts));
                keys.map(|key| key.map(WithdrawalTarget::Key)).collect()
            }
            "tag" => Ok(vec![WithdrawalTarget::Tag(tag_of(&row.name, &parts)?)]),
            "all" => Ok(vec![WithdrawalTarget::Tag(Tag::everything())]),
            other => Err(format!("its target is `{other}`")),
        }
    }
}

fn change_of(row: &ChangeRow) -> Withdrawal {
    match row.expire_ms {
        None => Withdrawal::Invalidate,
        Some(over) => Withdrawal::Expire { over: Duration::from_millis(over) },
    }
}
