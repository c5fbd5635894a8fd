//! The queue before a load, under every interleaving.

use std::task::block_on;

use futures_util::FutureExt;
use loom::thread;

use crate::loads::{LoadPermit, LoadRank, LoadTicket, Loads};

#[test]
fn a_permit_is_lost_neither_by_a_ticket_that_is_dropped_nor_by_one_that_moves() {
    loom::model(|| {
        let loads = Loads::at_most(1);
        let permit = loads.try_permit();
        let leaves = loads.queue(LoadRank::Awaited);
        let mut stays = loads.queue(LoadRank::Background);
        let leaver = thread::spawn(move || drop(leaves));
        let holder = thread::spawn(move || drop(permit));
        stays.move_to(LoadRank::Awaited);
        drop(block_on(stays));
        leaver.join().expect("no panic");
        holder.join().expect("no panic");
        assert!(loads.try_permit().is_some(), "each permit has come back");
    });
}

#[test]
fn no_more_permits_are_out_than_may_be() {
    loom::model(|| {
        let loads = Loads::at_most(1);
        let others = loads.clone();
        let other = thread::spawn(move || {
            let permit = block_on(others.queue(LoadRank::Awaited));
            assert!(others.try_permit().is_none());
            drop(permit);
        });
        let permit = block_on(loads.queue(LoadRank::Awaited));
        assert!(loads.try_permit().is_none());
        drop(permit);
        other.join().expect("no panic");
    });
}

fn take(ticket: &mut LoadTicket) -> Option<LoadPermit> {
    ticket.now_or_never()
}

#[test]
fn a_ticket_that_is_dropped_gives_the_permit_that_it_was_handed_to_the_next() {
    loom::model(|| {
        let loads = Loads::at_most(1);
        let permit = loads.try_permit();
        let [leaves, mut stays] = [(); 2].map(|()| loads.queue(LoadRank::Awaited));
        assert!(permit.is_some() && loads.try_permit().is_none() && take(&mut stays).is_none());
        drop(permit);
        assert!(take(&mut stays).is_none(), "it was handed to the first");
        drop(leaves);
        assert!(take(&mut stays).is_some());
        assert!(loads.try_permit().is_some(), "each permit has come back");
    });
}

#[test]
fn a_ticket_that_moves_to_another_rank_keeps_its_age() {
    loom::model(|| {
        let loads = Loads::at_most(1);
        let permit = loads.try_permit();
        let mut refresh = loads.queue(LoadRank::Background);
        let mut later = loads.queue(LoadRank::Awaited);
        let mut asked = loads.queue(LoadRank::Asked);
        refresh.move_to(LoadRank::Awaited);
        drop(permit);
        let first = take(&mut asked);
        assert!(first.is_some() && take(&mut refresh).is_none());
        drop(first);
        assert!(take(&mut later).is_none() && take(&mut refresh).is_some());
        assert!(take(&mut later).is_some());
    });
}
