//! What the locks promise, without a server.
//!
//! Tests of locks name the cases that they cover, here and on real servers: those in which other
//! implementations had bugs, or that they test.
//!
//! | case | what happens |
//! |---|---|
//! | 1 | taken twice in a row |
//! | 2 | a second try while it is held |
//! | 3 | two names are independent |
//! | 4 | one of a hundred concurrent requests is granted |
//! | 5 | many tasks try without waiting |
//! | 6, 7, 8 | a counter without atomicity; never two holders |
//! | 9 | a release by another claim |
//! | 10 | a release of a key that was replaced by hand |
//! | 11 | a release after the lease |
//! | 12 | a release asked for twice |
//! | 13 | a release by another task that knows the claim |
//! | 14 | removed by force |
//! | 15 | a release whose answer was lost |
//! | 16, 17 | a waiter gets the key when the lease ends |
//! | 18 | a busy answer tells what remains of the lease |
//! | 19 | a long hold is renewed for many leases |
//! | 20 | renewal ends with the process |
//! | 21 | a server that has lost its data |
//! | 22 | a cancelled wait is not kept for ever |
//! | 23 | many short holds, none is forgotten |
//! | 24 | a renewal prolongs; none after the end |
//! | 25 | no renewal after a release |
//! | 26 | a loss is not retried, an error is |
//! | 27 | a failed renewal releases nothing |
//! | 28 | the longest hold |
//! | 30, 31 | a wait that gets no key ends in time |
//! | 32, 33, 34 | tries with an interval; a deadline before their end; none after the last |
//! | 35 | cancelled before it began |
//! | 36 | cancelled while it waited |
//! | 37 | a release between the request and the wait |
//! | 38 | the connection that reports releases is cut |
//! | 39 | one connection for many waits |
//! | 40 | invalid times |
//! | 41 | eight waiters whose leases all run out, in order |
//! | 42 | first come, first served |
//! | 43 | a waiter that died in the queue |
//! | 44 | a try after a short wait that got no key |
//! | 45 | a waiter that leaves the queue delays no other |
//! | 46 | a server that stands still during a wait |
//! | 47 | taken again by its owner |
//! | 48 | holds are counted |
//! | 49 | a failed inner hold releases nothing |
//! | 50 | locks that cannot be taken again say so |
//! | 51 | tasks of one process or session exclude each other |
//! | 52 | the holder is killed |
//! | 53 | a guard that is dropped |
//! | 54 | the holder is stopped past its lease: it is told, and its fence is refused |
//! | 55 | a server that restarts with its data |
//! | 56 | a waiter loses its session |
//! | 57 | the node of an earlier session |
//! | 58 | a grant whose answer was lost |
//! | 59 | the waiter's own node is removed |
//! | 60 | a connection that breaks anywhere leaves nothing |
//! | 61 | foreign names, negative numbers |
//! | 62, 63 | a loss is told, also to a later question; a release is no loss |
//! | 64 | a server that is down, or does not answer |
//! | 65 | a failover that loses the lock: the fence keeps the resource right |
//! | 66 - 68 | Redlock: every subset of nodes taken, down, hanging, emptied |
//! | 69 - 71, 74 | Redlock: split votes, slow majorities, a failure leaves nothing behind |
//! | 72, 73 | Redlock: a missing node is filled again, if it is free |
//! | 75 | several keys, all or none |
//! | 76 | names that a server could misread |
//! | 77 | namespaces |
//! | 78 | parts of keys that could be joined wrongly |
//! | 80 | fences grow, over a restart too |
//! | 81 | taken again, the fence is the same |
//! | 82 | clusters of Redis |
//! | 83 | hundreds of waiters |
//! | 84 | a key leaves nothing behind |
//! | 85 | few connections, many claims |
//! | 86 | a deadlock of two callers |
//! | 87 | take-over: from a silent holder only, and by one waiter |
//! | 88 | dropped at any await, or by a panic |
//! | 89 | dropped, and tried again at once by the same process |
//! | 90 | a key that is deleted or taken over: its holder is told at once |
//! | 91 | a runtime that is blocked for longer than the lease or session |

#[cfg(feature = "macros")]
mod attribute;
#[cfg(all(feature = "redis", feature = "mysql", feature = "postgres", feature = "zookeeper"))]
mod connecting;
mod contract;
mod ending;
mod error_chains;
mod exclusion;
mod owners;
mod renewal;
mod running;
mod stats;
mod storm;
mod support;
mod waiting;
