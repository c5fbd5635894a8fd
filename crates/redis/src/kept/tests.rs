//! Tests of the table alone: what is kept, for how long, and what is left to do.

use tokio::time::advance;

use super::*;
use bellwether::Key;

const SECOND: Duration = Duration::from_secs(1);
const SOFT: Change = Change::Expire { over: Duration::ZERO };

fn table(most: usize) -> KeptInvalidations {
    let rules = KeepingRules { most, window: 10 * SECOND, ..KeepingRules::default() };
    KeptInvalidations::new(rules, "shop".into(), None, Watchers::default())
}

fn item(sku: u64) -> ChangeTarget {
    ChangeTarget::Key(Key::of("item").with(sku).digest())
}

/// What is left to do of an item.
fn left(table: &KeptInvalidations, sku: u64) -> Option<Change> {
    table.of(&item(sku)).map(|kept| kept.change())
}

/// The server has executed an invalidation of an item, with what was kept before.
fn execute(table: &KeptInvalidations, sku: u64) {
    table.executed(item(sku), Change::Invalidate, table.of(&item(sku)));
}

fn lose_all(table: &KeptInvalidations) {
    table.may_have_lost(Instant::now(), &|_| true);
}

#[tokio::test(start_paused = true)]
async fn one_is_kept_per_key_or_tag_and_the_harder_one_stays() {
    let table = table(10);
    assert!(table.is_quiet());
    for change in [SOFT, Change::Invalidate, SOFT] {
        assert_eq!(table.keep(item(1), change), Keeping::Kept);
    }
    let tag = ChangeTarget::Tag(*item(1).digest());
    table.keep(tag, SOFT);
    assert_eq!((table.stats().pending, table.stats().kept), (2, 4));
    assert_eq!(left(&table, 1), Some(Change::Invalidate));
    assert_eq!(table.of(&tag).map(|kept| kept.change()), Some(SOFT));
    assert!(!table.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn an_expiry_over_a_time_has_what_is_left_of_it_and_two_are_due_at_once() {
    let table = table(10);
    let over = |seconds| Change::Expire { over: seconds * SECOND };
    table.keep(item(1), over(30));
    advance(20 * SECOND).await;
    assert_eq!(left(&table, 1), Some(over(10)));
    table.keep(item(1), over(30));
    assert_eq!(left(&table, 1), Some(SOFT));
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_while_an_earlier_one_is_repeated_stays() {
    let table = table(10);
    table.keep(item(1), SOFT);
    let repeated = table.of(&item(1));
    table.keep(item(1), Change::Invalidate);
    table.executed(item(1), SOFT, repeated);
    assert_eq!(left(&table, 1), Some(Change::Invalidate));
    execute(&table, 1);
    assert_eq!(left(&table, 1), None);
    assert!(table.is_quiet());
    assert_eq!(table.stats().replayed, 1);
}

#[tokio::test(start_paused = true)]
async fn one_too_many_makes_all_entries_from_before_count_as_none() {
    let table = table(2);
    let kept = [1, 2, 1, 3].map(|sku| table.keep(item(sku), Change::Invalidate));
    assert_eq!(kept, [Keeping::Kept, Keeping::Kept, Keeping::Kept, Keeping::Dropped]);
    assert!(table.is_floor_due() && table.floor() > 1_000);
    assert!(!table.raise_floor(|| None));
    assert!(table.is_floor_due());
    assert!(table.raise_floor(|| Some(1_000)));
    assert_eq!(table.floor(), 1_000);
    // The next one needs a later time.
    table.keep(item(4), Change::Invalidate);
    assert!(table.is_floor_due());
    assert_eq!(table.stats().dropped, 2);
}

#[tokio::test(start_paused = true)]
async fn a_floor_is_not_raised_to_a_time_from_before_the_last_drop() {
    let table = table(1);
    for sku in [1, 2] {
        table.keep(item(sku), Change::Invalidate);
    }
    let raised = table.raise_floor(|| {
        table.keep(item(3), Change::Invalidate);
        Some(1_000)
    });
    assert!(raised && table.is_floor_due());
}

#[tokio::test(start_paused = true)]
async fn none_is_kept_if_the_options_say_so() {
    let table = table(0);
    assert_eq!(table.keep(item(1), Change::Invalidate), Keeping::Off);
    execute(&table, 1);
    lose_all(&table);
    assert!(table.is_quiet() && table.reassertions() == 0);
}

#[tokio::test(start_paused = true)]
async fn those_from_shortly_before_a_loss_are_kept_again() {
    let table = table(10);
    execute(&table, 1);
    advance(8 * SECOND).await;
    execute(&table, 2);
    let lost_at = Instant::now() + 4 * SECOND;
    advance(60 * SECOND).await;
    table.may_have_lost(lost_at, &|_| true);
    assert_eq!((left(&table, 1), left(&table, 2)), (None, Some(Change::Invalidate)));
    assert_eq!((table.reassertions(), table.stats().reasserted), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn those_of_other_servers_are_not() {
    let table = table(10);
    for sku in [1, 2] {
        execute(&table, sku);
    }
    let affected = *item(2).digest();
    table.may_have_lost(Instant::now(), &|digest| *digest == affected);
    assert_eq!((left(&table, 1), left(&table, 2)), (None, Some(Change::Invalidate)));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_again_and_again_repeats_none_for_ever() {
    let table = table(10);
    execute(&table, 1);
    for _ in 0..5 {
        advance(4 * SECOND).await;
        lose_all(&table);
        if left(&table, 1).is_some() {
            execute(&table, 1);
        }
    }
    assert_eq!(table.stats().reasserted, 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_repeated_after_it_had_failed_may_be_lost_again() {
    let table = table(10);
    table.keep(item(1), Change::Invalidate);
    advance(300 * SECOND).await;
    execute(&table, 1);
    lose_all(&table);
    assert_eq!(left(&table, 1), Some(Change::Invalidate));
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_is_remembered_for_a_bounded_time() {
    let table = table(2);
    for sku in 1..=3 {
        execute(&table, sku);
    }
    lose_all(&table);
    assert_eq!([1, 2, 3].map(|sku| left(&table, sku).is_some()), [false, true, true]);
    assert_eq!(table.stats().dropped, 0);
}
