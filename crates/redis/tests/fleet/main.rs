//! Promises of a fleet: real processes on a real Redis.
//!
//! A [`Fleet`](fleet::Fleet) is a server and a [`Database`](database::Database); its
//! [`Worker`](process::Worker)s are copies of this binary, commanded over their standard input. The
//! database lives in the test, so that the test itself lets loads go, one by one, and counts them.
//!
//! | module | promise |
//! |---|---|
//! | `burst` | one load per key per fleet; Redis work grows with processes |
//! | `cluster` | the same on a cluster |
//! | `wake_up` | waiters are notified; a lost message costs a pause |
//! | `crash` | a dead leader costs its lease; a late leader does no harm |
//! | `copies` | a stopped process serves no copy before its connection answers |
//! | `leaving` | callers leave, others stay, nothing is left behind |
//! | `flush` | a server that forgets everything causes no error |
//! | `loader_down` | a failing loader is probed once per interval |
//! | `polling` | a lost message is told from a load that takes long |
//! | `history` | nothing outlives its invalidation |
//! | `tags` | nothing outlives the invalidation of its tag, whatever Redis forgets |
//!
//! `BELLWETHER_FLEET_ROUNDS` sets how many rounds of history are played (10,000 with keys; a million
//! take an hour), `BELLWETHER_FLEET_SEED` sets the seed of the random numbers.

mod answer;
mod fared;
mod messages;

mod database;
mod fleet;
mod game;
mod process;
mod rows;
mod storm;
mod worker;

mod burst;
mod cluster;
mod copies;
mod crash;
mod flush;
mod history;
mod leaving;
mod loader_down;
mod polling;
mod tags;
mod untracked;
mod wake_up;
