//! Handles to a `MemoryStore` as the processes of a fleet have them, with faults and gates.

use std::sync::Arc;

use bellwether::MemoryStore;
use bellwether::store::StoreErrorKind;
use bellwether_testkit::caches::promises::Fleet;

pub(crate) use bellwether_test::faulty::{FaultyStore, Gate, On, Operation};

/// One process's handle. Another `Faulty` over the same store is another process.
pub(crate) type Faulty = FaultyStore<MemoryStore>;

/// How an operation fails whose kind of failure does not matter.
pub(crate) const UNREACHABLE: StoreErrorKind = StoreErrorKind::Unreachable;

/// When something happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before it is done: the request is on its way.
    Before,
    /// After it is done: the answer is on its way.
    After,
}

/// Faults for tests that try both moments.
pub(crate) trait AtMoment {
    fn fails(self, moment: Moment);
    fn holds(self, moment: Moment) -> Gate;
}

/// A store in this process.
pub(crate) fn local(store: &MemoryStore) -> Faulty {
    FaultyStore::new(store.clone())
}

/// A store in another process: it has to be asked, and no answer is there at once.
pub(crate) fn remote(store: &MemoryStore) -> Faulty {
    local(store).remote()
}

/// The stores of four processes.
pub(crate) fn processes(place: fn(&MemoryStore) -> Faulty, store: &MemoryStore) -> Fleet {
    (0..4).map(|_| Arc::new(place(store)) as _).collect()
}

/// The same handle, all of whose push messages are lost.
pub(crate) fn losing_push(store: Faulty) -> Faulty {
    store.lose_changes();
    store
}

impl AtMoment for On {
    fn fails(self, moment: Moment) {
        match moment {
            Moment::Before => self.fail(UNREACHABLE),
            Moment::After => self.do_it_but_fail(UNREACHABLE),
        }
    }

    fn holds(self, moment: Moment) -> Gate {
        match moment {
            Moment::Before => self.hold(),
            Moment::After => self.do_it_and_hold(),
        }
    }
}
