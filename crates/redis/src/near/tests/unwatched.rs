//! Copies whose connection has ended: stale, and only if nothing has changed before.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn keep_for(near: &Near, number: u64, lifetimes: Lifetimes) {
    let draft = Draft::new(Value::new(vec![0; 10].into()), 1, lifetimes);
    let entry = draft.into_entry(1, 0, Some(lifetimes.life()), Vec::new());
    let start = near.start_read(&key(number).digest()).expect("a connection");
    assert!(near.keep(start, vec![], &key(number), &entry));
}

fn kept() -> Near {
    let near = near();
    keep_for(&near, 1, Lifetimes::fresh_for(60 * SECOND).stale_if_error(HOUR));
    near
}

fn stale_for(near: &Near) -> Option<Duration> {
    let copy = near.find_unwatched(&key(1))?;
    assert!(!copy.is_fresh() && !copy.serves_while_revalidating() && copy.serves_if_error());
    copy.stale_for()
}

#[tokio::test(start_paused = true)]
async fn a_fresh_copy_is_stale_from_the_end_of_its_connection_on() {
    let near = kept();
    advance(10 * SECOND).await;
    disconnect(&near, 0, 1);
    advance(20 * SECOND).await;
    assert!(near.find(&key(1)).is_none());
    assert_eq!(stale_for(&near), Some(20 * SECOND));
    advance(HOUR - 21 * SECOND).await;
    assert_eq!(stale_for(&near), Some(HOUR - SECOND));
    advance(SECOND).await;
    assert_eq!(stale_for(&near), None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_stale_before_has_no_longer_for_that() {
    let near = kept();
    advance(80 * SECOND).await;
    disconnect(&near, 0, 1);
    advance(SECOND).await;
    assert_eq!(stale_for(&near), Some(21 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn without_a_window_for_errors_no_copy_is_left() {
    let near = near();
    keep_for(&near, 1, Lifetimes::fresh_for(HOUR).stale_while_revalidate(HOUR));
    disconnect(&near, 0, 1);
    assert_eq!(stale_for(&near), None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_changed_before_or_after_the_end_is_not_left() {
    for is_before in [true, false] {
        let near = kept();
        if !is_before {
            disconnect(&near, 0, 1);
        }
        // Of this process, or as the server reports it.
        near.epochs.change(&key(1).digest());
        disconnect(&near, 0, 1);
        assert_eq!(stale_for(&near), None);
    }
    for is_before in [true, false] {
        let near = kept();
        if !is_before {
            disconnect(&near, 0, 1);
        }
        near.epochs.change_everything();
        disconnect(&near, 0, 1);
        assert_eq!(stale_for(&near), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_tag_was_changed_is_not_left() {
    let near = near();
    let tag = Key::of("tag").digest();
    let lifetimes = Lifetimes::fresh_for(HOUR).stale_if_error(HOUR);
    let draft = Draft::new(Value::new(vec![0; 10].into()), 1, lifetimes);
    let entry = draft.into_entry(1, 0, Some(lifetimes.life()), Vec::new());
    let start = near.start_read(&key(1).digest()).expect("a connection");
    let version = near.epochs.version(&tag).expect("a connection");
    assert!(near.keep(start, vec![version], &key(1), &entry));
    disconnect(&near, 0, 1);
    assert_eq!(stale_for(&near), Some(Duration::ZERO));
    near.epochs.change(&tag);
    assert_eq!(stale_for(&near), None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_left_until_another_connection_has_answered() {
    for has_answered in [true, false] {
        let near = kept();
        disconnect(&near, 0, 1);
        for connection in 2..5 {
            advance(SECOND).await;
            connect(&near, 0, connection, Instant::now(), &|| false);
            assert!(near.find(&key(1)).is_none());
            assert!(stale_for(&near).is_some());
            if has_answered {
                advance(SECOND).await;
                confirm(&near, 0, connection, Instant::now());
            }
            disconnect(&near, 0, connection);
            assert_eq!(stale_for(&near).is_none(), has_answered);
            if has_answered {
                break;
            }
        }
        let since_the_first = (!has_answered).then_some(3 * SECOND);
        assert_eq!(stale_for(&near), since_the_first);
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_fresh_in_outages_stays_fresh() {
    let near = near();
    keep_for(&near, 1, Lifetimes::fresh_for(60 * SECOND).fresh_in_outages());
    advance(10 * SECOND).await;
    disconnect(&near, 0, 1);
    advance(20 * SECOND).await;
    let fresh_for = || near.find_unwatched(&key(1))?.fresh_for();
    assert_eq!(fresh_for(), Some(30 * SECOND));
    advance(30 * SECOND).await;
    assert_eq!(fresh_for(), None);
}
