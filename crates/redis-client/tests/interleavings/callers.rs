use std::sync::Arc;
use std::task::{block_on, poll_once};
use std::time::Duration;

use loom::model::Builder;
use loom::thread::{self, JoinHandle};

use super::connector::{Connector, Node};
use super::network::DialOutcome::{Fails, IsDropped, Opens};
use super::network::{DialOutcome, Network};
use super::request::RedisRequest;
use super::server_error::ServerError;
use super::shared_connection::SharedConnection;

/// Callers that share a connection.
#[derive(Clone)]
struct Callers {
    shared: Arc<SharedConnection>,
    network: Arc<Network>,
}

impl Callers {
    /// With attempts to connect that end like this, and a pause after a failed one.
    fn with(ends: &[DialOutcome], pause: Duration) -> Self {
        let network = Network::of(ends);
        let mut node = Node::default();
        node.parts.options.probe_every = 2 * pause;
        let connector = Connector { node, network: Arc::clone(&network) };
        Self { shared: SharedConnection::new(connector), network }
    }

    /// A request. Gives the number of the connection that it was sent over.
    fn ask(&self) -> Result<usize, ServerError> {
        let request = RedisRequest::default();
        block_on(self.shared.send(&request)).map(|replied| replied.value)
    }

    /// A request that is dropped when it has to wait.
    fn ask_and_leave(&self) {
        let request = RedisRequest::default();
        _ = poll_once(self.shared.send(&request));
    }

    /// What another caller does meanwhile.
    fn beside<T: 'static>(&self, run: impl FnOnce(&Self) -> T + 'static) -> JoinHandle<T> {
        let callers = self.clone();
        thread::spawn(move || run(&callers))
    }
}

/// Each interleaving in which threads are stopped three times, where another one could run. What they do by
/// turns comes on top.
fn interleaved(run: fn()) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

fn is_refused(asked: Result<usize, ServerError>) -> bool {
    matches!(asked, Err(ServerError::Unconnected(error)) if matches!(*error, ServerError::Refused))
}

fn end<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}

#[test]
fn all_share_one_attempt_which_goes_on_without_those_that_leave() {
    interleaved(|| {
        let callers = Callers::with(&[Opens], HOUR);
        let other = callers.beside(|callers| {
            callers.ask_and_leave();
            callers.ask()
        });
        let third = callers.beside(Callers::ask_and_leave);
        assert_eq!(callers.ask().expect("a reply"), 1);
        assert_eq!(end(other).expect("a reply"), 1);
        end(third);
    });
}

#[test]
fn a_connection_that_two_find_broken_is_replaced_once_and_never_used_again() {
    interleaved(|| {
        let callers = Callers::with(&[Opens, Opens], HOUR);
        assert_eq!(callers.ask().expect("a reply"), 1);
        callers.network.cut(1);
        let other = callers.beside(Callers::ask);
        assert_eq!(callers.ask().expect("a reply"), 2);
        assert_eq!(end(other).expect("a reply"), 2);
    });
}

#[test]
fn a_connection_that_breaks_while_others_ask_is_replaced_once() {
    interleaved(|| {
        let callers = Callers::with(&[Opens, Opens], HOUR);
        assert_eq!(callers.ask().expect("a reply"), 1);
        let other = callers.beside(|callers| {
            callers.network.cut(1);
            assert_eq!(callers.ask().expect("a reply"), 2);
        });
        let first = callers.ask().expect("a reply");
        assert!(callers.ask().expect("a reply") >= first);
        end(other);
        assert_eq!(callers.ask().expect("a reply"), 2);
    });
}

#[test]
fn a_failed_attempt_fails_all_requests_until_the_pause_is_over() {
    interleaved(|| {
        let callers = Callers::with(&[Fails], HOUR);
        let other = callers.beside(Callers::ask);
        assert!(is_refused(callers.ask()));
        assert!(is_refused(end(other)));
    });
}

#[test]
fn requests_after_the_pause_share_the_next_attempt() {
    interleaved(|| {
        let callers = Callers::with(&[Fails, Opens], Duration::ZERO);
        let other = callers.beside(Callers::ask);
        assert_eq!(callers.ask().expect("a reply"), 2);
        assert_eq!(end(other).expect("a reply"), 2);
    });
}

#[test]
fn requests_go_on_when_the_runtime_of_an_attempt_ends() {
    interleaved(|| {
        let callers = Callers::with(&[IsDropped, Opens], HOUR);
        let other = callers.beside(Callers::ask);
        assert_eq!(callers.ask().expect("a reply"), 2);
        assert_eq!(end(other).expect("a reply"), 2);
    });
}

const HOUR: Duration = Duration::from_secs(3600);
