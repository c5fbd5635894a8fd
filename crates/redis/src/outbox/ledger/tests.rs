//! Tests of the table alone: what is kept, for how long, and what is left to do.

use std::slice;

use tokio::time::advance;

use super::*;
use bellwether::Key;

const SECOND: Duration = Duration::from_secs(1);
const SOFT: Withdrawal = Withdrawal::Expire { over: Duration::ZERO };

const TIMEOUT: Duration = Duration::from_millis(250);

fn table(most: usize) -> Ledger {
    let rules = KeepingRules { most, window: 10 * SECOND };
    Ledger::new(rules, TIMEOUT, "shop".into(), None, Watchers::default())
}

fn keep(table: &Ledger, target: WithdrawnDigest, change: Withdrawal) -> Keeping {
    table.add_pending(target, change, Instant::now())
}

fn item(sku: u64) -> WithdrawnDigest {
    WithdrawnDigest::Key(Key::of("item").with(sku).digest())
}

/// What is left to do of an item.
fn left(table: &Ledger, sku: u64) -> Option<Withdrawal> {
    table.change_of(&item(sku)).map(|kept| kept.change())
}

/// The server has executed an invalidation of an item, with what was kept before.
fn execute(table: &Ledger, sku: u64) {
    table.executed(item(sku), Withdrawal::Invalidate, table.change_of(&item(sku)), table.losses());
}

fn lose_all(table: &Ledger) {
    table.note(ServerEvent::MayHaveLost { since: Instant::now(), is_affected: &|_| true });
}

#[tokio::test(start_paused = true)]
async fn one_is_kept_per_key_or_tag_and_the_harder_one_stays() {
    let table = table(10);
    assert!(table.is_quiet());
    for change in [SOFT, Withdrawal::Invalidate, SOFT] {
        assert_eq!(keep(&table, item(1), change), Keeping::Kept);
    }
    let tag = WithdrawnDigest::Tag(*item(1).digest());
    keep(&table, tag, SOFT);
    assert_eq!((table.stats().pending, table.stats().kept), (2, 4));
    assert_eq!(left(&table, 1), Some(Withdrawal::Invalidate));
    assert_eq!(table.change_of(&tag).map(|kept| kept.change()), Some(SOFT));
    assert!(!table.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn an_expiry_over_a_time_has_what_is_left_of_it_and_two_are_due_at_once() {
    let table = table(10);
    let over = |seconds| Withdrawal::Expire { over: seconds * SECOND };
    keep(&table, item(1), over(30));
    advance(20 * SECOND).await;
    assert_eq!(left(&table, 1), Some(over(10)));
    keep(&table, item(1), over(30));
    assert_eq!(left(&table, 1), Some(SOFT));
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_while_an_earlier_one_is_repeated_stays() {
    let table = table(10);
    keep(&table, item(1), SOFT);
    let repeated = table.change_of(&item(1));
    keep(&table, item(1), Withdrawal::Invalidate);
    table.executed(item(1), SOFT, repeated, table.losses());
    assert_eq!(left(&table, 1), Some(Withdrawal::Invalidate));
    execute(&table, 1);
    assert_eq!(left(&table, 1), None);
    assert!(table.is_quiet());
    assert_eq!(table.stats().replayed, 1);
}

#[tokio::test(start_paused = true)]
async fn one_too_many_makes_all_entries_from_before_count_as_none() {
    let table = table(2);
    let kept = [1, 2, 1, 3].map(|sku| keep(&table, item(sku), Withdrawal::Invalidate));
    assert_eq!(kept, [Keeping::Kept, Keeping::Kept, Keeping::Kept, Keeping::Dropped]);
    assert!(table.is_floor_due() && table.floor() > 1_000);
    table.raise_floor(|| None);
    assert!(table.is_floor_due());
    table.raise_floor(|| Some(1_000));
    assert_eq!(table.floor(), 1_000);
    // The next one needs a later time.
    keep(&table, item(4), Withdrawal::Invalidate);
    assert!(table.is_floor_due());
    assert_eq!(table.stats().dropped, 2);
}

#[tokio::test(start_paused = true)]
async fn a_floor_is_not_raised_to_a_time_from_before_the_last_drop() {
    let table = table(1);
    for sku in [1, 2] {
        keep(&table, item(sku), Withdrawal::Invalidate);
    }
    table.raise_floor(|| {
        keep(&table, item(3), Withdrawal::Invalidate);
        Some(1_000)
    });
    assert_eq!(table.stats().dropped, 2);
    assert!(table.is_floor_due());
}

#[tokio::test(start_paused = true)]
async fn none_is_kept_if_the_options_say_so() {
    let table = table(0);
    assert_eq!(keep(&table, item(1), Withdrawal::Invalidate), Keeping::Off);
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
    assert_eq!((left(&table, 1), left(&table, 2)), (None, Some(Withdrawal::Invalidate)));
    assert_eq!((table.reassertions(), table.stats().reasserted), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_was_under_way_at_a_loss_is_kept_again_until_it_is_acknowledged_without_one() {
    let table = table(10);
    let sent_after = table.losses();
    lose_all(&table);
    table.executed(item(1), Withdrawal::Invalidate, None, sent_after);
    assert_eq!((left(&table, 1), table.reassertions()), (Some(Withdrawal::Invalidate), 1));
    execute(&table, 1);
    assert_eq!((left(&table, 1), table.reassertions()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn those_of_other_servers_are_not() {
    let table = table(10);
    for sku in [1, 2] {
        execute(&table, sku);
    }
    let affected = *item(2).digest();
    table.may_have_lost(Instant::now(), &|digest| *digest == affected);
    assert_eq!((left(&table, 1), left(&table, 2)), (None, Some(Withdrawal::Invalidate)));
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
    keep(&table, item(1), Withdrawal::Invalidate);
    advance(300 * SECOND).await;
    execute(&table, 1);
    lose_all(&table);
    assert_eq!(left(&table, 1), Some(Withdrawal::Invalidate));
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

fn leases() -> Ledger {
    table(10)
}

fn claim(sku: u64) -> Claim {
    Claim::new(Key::of("item").with(sku))
}

fn file(ledger: &Ledger, claim: &Claim) {
    ledger.file(OutboxItem::Release(claim));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_in_use_again_is_not_given_up() {
    let all = leases();
    let [one, same] = [claim(1), claim(1)];
    for claim in [&one, &same] {
        file(&all, claim);
    }
    all.takes(&one);
    assert_eq!(all.claims().iter().map(Claim::token).collect::<Vec<_>>(), [same.token()]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_up_again_while_its_own_command_may_still_arrive() {
    let all = leases();
    let now = Instant::now();
    let one = claim(1);
    file(&all, &one);
    all.released(slice::from_ref(&one), now + TIMEOUT / 2);
    assert_eq!(all.claims().len(), 1);
    all.released(slice::from_ref(&one), now + TIMEOUT);
    assert!(all.claims().is_empty() && all.is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_remembered_for_a_bounded_time() {
    let all = leases();
    let now = Instant::now();
    file(&all, &claim(1));
    assert!(all.is_due(now + LONGEST));
    assert!(!all.is_due(now + TIMEOUT + LONGEST));
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_claims_is_remembered() {
    let all = leases();
    (0..MOST_CLAIMS as u64 + 10).for_each(|sku| file(&all, &claim(sku)));
    assert_eq!(all.claims().len(), MOST_CLAIMS);
    advance(TIMEOUT + LONGEST).await;
    assert!(!all.is_due(Instant::now()));
    file(&all, &claim(0));
    assert_eq!(all.claims().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn claims_hold_up_no_reads() {
    let all = leases();
    file(&all, &claim(1));
    assert!(!all.is_quiet() && all.change_of(&item(1)).is_none());
    keep(&all, item(1), SOFT);
    assert!(all.change_of(&item(1)).is_some());
}
