//! The order of callers, and what a try is told.

use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready};

use super::*;
use bellwether::Key;

fn digest() -> Digest {
    Key::of("queue").digest()
}

fn permit(queues: &LocalQueues) -> Option<QueuePermit> {
    permit_as(queues, Owner::new())
}

fn permit_as(queues: &LocalQueues, owner: Owner) -> Option<QueuePermit> {
    match queues.enter(digest(), owner) {
        Ok(permit) => Some(permit),
        Err(ticket) => assert_ready!(spawn(ticket.try_permit()).poll()).ok(),
    }
}

/// A ticket of another owner, for a queue that has a holder.
fn ticket(queues: &LocalQueues) -> QueueTicket {
    queues.enter(digest(), Owner::new()).expect_err("the queue has a holder")
}

#[tokio::test]
async fn one_owner_has_a_permit_at_a_time() {
    let queues = LocalQueues::default();
    let first = permit(&queues);
    assert!(first.is_some() && permit(&queues).is_none());
    drop(first);
    assert!(permit(&queues).is_some());
}

#[tokio::test]
async fn permits_are_given_in_the_order_of_arrival() {
    let queues = LocalQueues::default();
    let holder = permit(&queues);
    let mut waiting: Vec<_> = (0..3).map(|_| spawn(ticket(&queues).permit())).collect();
    for waiter in &mut waiting {
        assert_pending!(waiter.poll());
    }
    drop(holder);
    assert_pending!(waiting[1].poll());
    let first = assert_ready!(waiting[0].poll());
    drop(waiting.remove(1));
    drop(first);
    assert!(assert_ready!(waiting[1].poll()).is_some());
}

#[tokio::test]
async fn a_release_wakes_one_waiter_however_many_there_are() {
    let queues = LocalQueues::default();
    let mut holder = permit(&queues);
    let mut waiting: Vec<_> = (0..100).map(|_| spawn(ticket(&queues).permit())).collect();
    waiting.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    while !waiting.is_empty() {
        drop(queues.releasing(digest(), holder.take()));
        holder = assert_ready!(waiting.remove(0).poll());
        let woken = waiting.iter().filter(|waiter| waiter.is_woken()).count();
        assert_eq!(woken, 0, "besides the next one");
    }
}

#[tokio::test]
async fn a_permit_wakes_the_waiters_of_its_owner_and_no_others() {
    let queues = LocalQueues::default();
    let holder = permit(&queues);
    let owner = Owner::new();
    let mut of_owners = [owner, owner, Owner::new()].map(|owner| {
        let ticket = queues.enter(digest(), owner).expect_err("the queue has a holder");
        spawn(ticket.permit())
    });
    of_owners.iter_mut().for_each(|waiter| assert_pending!(waiter.poll()));
    drop(holder);
    let [first, same, other] = &mut of_owners;
    let outer = assert_ready!(first.poll());
    assert!(same.is_woken() && !other.is_woken());
    let inner = assert_ready!(same.poll());
    drop((outer, inner));
    assert!(other.is_woken() && assert_ready!(other.poll()).is_some());
}

#[tokio::test]
async fn an_owner_gets_further_permits_and_other_owners_wait_for_the_last() {
    let queues = LocalQueues::default();
    let owner = Owner::new();
    let outer = permit_as(&queues, owner);
    let inner = permit_as(&queues, owner);
    assert!(outer.is_some() && inner.is_some() && permit(&queues).is_none());
    drop(outer);
    assert!(permit(&queues).is_none());
    drop(inner);
    assert!(permit(&queues).is_some());
}

#[tokio::test]
async fn a_try_waits_for_a_release_and_not_for_another_holder() {
    let queues = LocalQueues::default();
    let release = queues.releasing(digest(), permit(&queues));
    let mut tries = spawn(ticket(&queues).try_permit());
    assert_pending!(tries.poll());
    drop(release);
    assert!(tries.is_woken());
    let holder = assert_ready!(tries.poll());
    assert!(holder.is_ok() && permit(&queues).is_none());
    drop((holder, tries));
    assert_eq!(queues.len(), 0);
}

#[tokio::test]
async fn a_try_is_told_whether_a_release_has_the_permit() {
    let queues = LocalQueues::default();
    let tried = || match assert_ready!(spawn(ticket(&queues).try_permit()).poll()) {
        Ok(_) => panic!("the queue has a holder"),
        Err(state) => state,
    };
    let holder = permit(&queues);
    assert_eq!(tried(), PermitState::Held);
    let mut release = queues.releasing(digest(), holder);
    release.stop_waiting();
    assert_eq!(tried(), PermitState::Releasing);
    drop(release);
    assert_eq!(queues.len(), 0);
}

#[tokio::test]
async fn an_unused_queue_is_removed() {
    let queues = LocalQueues::default();
    let holder = permit(&queues);
    drop(permit(&queues));
    let mut waiting = spawn(ticket(&queues).permit());
    assert_pending!(waiting.poll());
    drop(holder);
    assert_eq!(queues.len(), 1);
    drop(waiting);
    assert_eq!(queues.len(), 0);
}
