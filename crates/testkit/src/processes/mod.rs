//! Other processes: copies of a test binary that do what a test commands, and other programs.
//!
//! A suite gives its workers a test that is ignored, in which a worker [`work`]s:
//!
//! ```no_run
//! use bellwether_testkit::processes::{Worker, work};
//!
//! #[test]
//! #[ignore = "only of use to the other tests, which run it in processes of its own"]
//! fn works() {
//!     work(async |step: u64| Ok(step), async |step, number: u64| number + *step);
//! }
//!
//! #[tokio::test]
//! async fn a_worker_counts() {
//!     let worker: Worker<u64, u64> = Worker::start("works", &2).await;
//!     assert_eq!(worker.ask(&40).await, 42);
//! }
//! ```

mod frozen;
mod messages;
mod program;
mod work;
mod worker;

pub use self::frozen::{freeze, lives, thaw};
pub use self::program::Program;
pub use self::work::work;
pub use self::worker::Worker;

pub(crate) use self::frozen::signal;
