//! Checks of tags. A store without tags passes them all by refusing to invalidate one.

use std::time::Duration;

use tokio::time::sleep;

use super::subject::{LONG, MEDIUM, SHORT, StoreSubject};
use crate::StoreExt as _;
use crate::suite::{Checked, Deviation, ensure};
use bellwether::Lifetimes;
use bellwether::store::{Accept, Acquire, Settled, Tags};

pub(super) async fn an_entry_with_tags_is_found(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let names: [String; Tags::MOST] = std::array::from_fn(|number| number.to_string());
    let tags = on.tags(names.each_ref().map(String::as_str))?;
    on.store_tagged(&tags, Lifetimes::fresh_for(LONG)).await?;
    on.ensure_tagged(&tags, Some("value")).await?;
    let acquired = on.store.acquire(on.claim().tagged(tags), LONG, Accept::Fresh).await?;
    ensure!(matches!(acquired, Acquire::Found(_)), "an acquire gave {acquired:?}");
    Ok(())
}

pub(super) async fn an_invalidated_tag_removes_its_entries(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["one", "two"])?;
    let lifetimes = Lifetimes::fresh_for(LONG).stale_while_revalidate(LONG);
    for name in ["one", "two"] {
        on.store_tagged(&tags, lifetimes).await?;
        on.store.invalidate_tag(on.tag("other")).await?;
        on.ensure_tagged(&tags, Some("value")).await?;
        on.store.invalidate_tag(on.tag(name)).await?;
        on.ensure_tagged(&tags, None).await?;
    }
    match on.store.acquire(on.claim().tagged(tags), LONG, Accept::Fresh).await? {
        Acquire::Lead { stale: None, .. } => Ok(()),
        other => Err(Deviation::new(format!("an acquire gave {other:?}"))),
    }
}

pub(super) async fn tags_that_are_known_after_the_load_count_as_well(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["late"])?;
    let commit = on.store_tagged_late(&tags).await?;
    ensure!(commit == Settled::Done, "it was {commit:?}");
    on.ensure_tagged(&Tags::none(), Some("value")).await?;
    on.store.invalidate_tag(on.tag("late")).await?;
    on.ensure_tagged(&Tags::none(), None).await?;
    // The fence may be of the same microsecond as the invalidation, and servers with clocks of their
    // own compare them by estimates.
    sleep(Duration::from_millis(20)).await;
    let commit = on.store_tagged_late(&tags).await?;
    ensure!(commit == Settled::Done, "after the invalidation it was {commit:?}");
    on.ensure_tagged(&tags, Some("value")).await
}

pub(super) async fn an_invalidated_tag_refuses_loads_that_began_before_it(
    on: StoreSubject,
) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["early"])?;
    let lease = on.lead_tagged(&tags).await?;
    on.store.invalidate_tag(on.tag("early")).await?;
    let commit = on.commit(lease, "old").await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    on.ensure_tagged(&tags, None).await?;
    on.store_tagged(&tags, Lifetimes::fresh_for(LONG)).await?;
    on.ensure_tagged(&tags, Some("value")).await
}

pub(super) async fn an_invalidated_tag_refuses_loads_that_learn_of_it_later(
    on: StoreSubject,
) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["late"])?;
    let lease = on.lead(LONG).await?;
    on.store.invalidate_tag(on.tag("late")).await?;
    let commit = on.commit_tagged(lease, &tags).await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    on.ensure_tagged(&tags, None).await
}

pub(super) async fn a_tag_that_is_new_during_a_load_refuses_nothing(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["new"])?;
    let lease = on.lead(LONG).await?;
    let other = StoreSubject { store: on.store.clone(), trial: on.trial.another() };
    let theirs = other.lead(LONG).await?;
    ensure!(
        other.commit_tagged(theirs, &tags).await? == Settled::Done,
        "the first entry of a tag was not stored"
    );
    let commit = on.commit_tagged(lease, &tags).await?;
    ensure!(commit == Settled::Done, "the second entry of a tag was {commit:?}");
    Ok(())
}

pub(super) async fn a_commit_that_a_tag_refuses_ends_its_lease(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["early"])?;
    let lease = on.lead_tagged(&tags).await?;
    on.store.invalidate_tag(on.tag("early")).await?;
    on.commit(lease, "old").await?;
    ensure!(!on.is_busy().await?, "the lease still holds");
    Ok(())
}

pub(super) async fn an_entry_that_lacks_a_tag_of_the_request_is_not_found(
    on: StoreSubject,
) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    on.store_one("value", Lifetimes::fresh_for(LONG)).await?;
    let tags = on.tags(["new"])?;
    let found = on.store.lookup(on.key(), tags.clone()).await?;
    ensure!(found.is_none(), "a lookup found {found:?}");
    on.store_tagged(&tags, Lifetimes::fresh_for(LONG)).await?;
    on.ensure_tagged(&tags, Some("value")).await
}

pub(super) async fn expiring_a_tag_keeps_its_entries_as_stale(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["soft"])?;
    let lifetimes = Lifetimes::fresh_for(LONG).stale_while_revalidate(LONG);
    on.store_tagged(&tags, lifetimes).await?;
    on.store.expire_tag(on.tag("soft"), Duration::ZERO).await?;
    let found = on.store.lookup(on.key(), tags.clone()).await?;
    let is_stale =
        found.is_some_and(|entry| !entry.is_fresh() && entry.serves_while_revalidating());
    ensure!(is_stale, "it is not there as stale");
    let lease = on.lead_tagged(&tags).await?;
    ensure!(on.commit(lease, "next").await? == Settled::Done, "it could not be replaced");
    on.ensure_tagged(&tags, Some("next")).await?;
    on.store.invalidate_tag(on.tag("soft")).await?;
    on.ensure_tagged(&tags, None).await
}

pub(super) async fn expiring_a_tag_removes_what_has_no_stale_window(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["soft"])?;
    on.store_tagged(&tags, Lifetimes::fresh_for(LONG)).await?;
    on.store.expire_tag(on.tag("soft"), Duration::ZERO).await?;
    on.ensure_tagged(&tags, None).await
}

pub(super) async fn expiring_a_tag_refuses_loads_that_began_before_it(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["soft"])?;
    let lease = on.lead_tagged(&tags).await?;
    on.store.expire_tag(on.tag("soft"), Duration::ZERO).await?;
    let commit = on.commit(lease, "old").await?;
    ensure!(commit == Settled::Superseded, "it was {commit:?}");
    Ok(())
}

pub(super) async fn an_expired_tag_leaves_its_entries_their_stale_window_only(
    on: StoreSubject,
) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["soft"])?;
    let lifetimes = Lifetimes::fresh_for(LONG).stale_while_revalidate(MEDIUM);
    on.store_tagged(&tags, lifetimes).await?;
    on.store.expire_tag(on.tag("soft"), Duration::ZERO).await?;
    sleep(MEDIUM + SHORT).await;
    on.ensure_tagged(&tags, None).await
}

pub(super) async fn a_spread_expiry_reaches_an_entry_within_its_time(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tags = on.tags(["spread"])?;
    let lifetimes = Lifetimes::fresh_for(LONG).stale_while_revalidate(LONG);
    on.store_tagged(&tags, lifetimes).await?;
    on.store.expire_tag(on.tag("spread"), MEDIUM).await?;
    sleep(MEDIUM + SHORT).await;
    let found = on.store.lookup(on.key(), tags.clone()).await?;
    ensure!(found.is_some_and(|entry| !entry.is_fresh()), "it is not there as stale");
    let lease = on.lead_tagged(&tags).await?;
    let commit = on.commit_for(lease, "next", lifetimes).await?;
    ensure!(commit == Settled::Done, "it could not be replaced");
    // A second expiry without a spread takes effect at once.
    on.store.expire_tag(on.tag("spread"), LONG * 1_000_000).await?;
    on.store.expire_tag(on.tag("spread"), Duration::ZERO).await?;
    let found = on.store.lookup(on.key(), tags).await?;
    ensure!(found.is_some_and(|entry| !entry.is_fresh()), "it is fresh after the second expiry");
    Ok(())
}

pub(super) async fn a_tag_and_a_key_with_the_same_parts_are_apart(on: StoreSubject) -> Checked {
    if !on.has_tags().await? {
        return Ok(());
    }
    let tag = on.tag("same");
    let key = bellwether::Key::of("check").with("same").with(on.key().digest().as_bytes());
    ensure!(key.digest() == tag.digest(), "they have other parts");
    let tags = on.tags(["same"])?;
    on.store_tagged(&tags, Lifetimes::fresh_for(LONG)).await?;
    on.store.invalidate(key).await?;
    on.ensure_tagged(&tags, Some("value")).await
}
