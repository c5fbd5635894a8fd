//! Batches: requests of many claims at the same time, sent as one script.

use bellwether::StoreError;
use bellwether::store::StoreErrorKind;
use bellwether_redis_client::{
    BatchSender, BatchedRequest, Batcher, RedisClient, RedisRequest, RedisScript, RedisValue,
};
use tokio::sync::oneshot;

/// The batches of one script, which takes a name and `A` arguments for each claim.
pub(super) struct Batches<const A: usize>(Batcher<ClaimSender<A>>);

struct ClaimSender<const A: usize> {
    client: RedisClient,
    script: RedisScript,
    /// The name that all claims share, if there is one.
    shared: Option<Vec<u8>>,
    doing: &'static str,
}

/// The answer to one claim: a number, or none if the claim has to ask alone.
type BatchAnswer = Result<Option<i64>, StoreError>;

/// The part of one claim in a script: its name and its arguments.
type ClaimPart<const A: usize> = (Vec<u8>, [Vec<u8>; A]);

impl<const A: usize> Batches<A> {
    /// Batches of a script that gives a number or `false` for each claim.
    pub(super) fn new(
        client: RedisClient,
        script: RedisScript,
        shared: Option<Vec<u8>>,
        doing: &'static str,
    ) -> Self {
        Self(Batcher::new(ClaimSender { client, script, shared, doing }))
    }

    /// Asks together with the other claims that ask now. `Ok(None)` if the claim has to ask alone.
    ///
    /// # Cancel safety
    /// Dropping it loses the answer. If the request was not sent by then, it is not sent.
    pub(super) async fn ask(&self, name: Vec<u8>, args: [Vec<u8>; A]) -> BatchAnswer {
        // A cluster refuses the script, because the names are in several slots. While the server is
        // taken to be down, one claim probes it and no other waits for that.
        let client = &self.0.sender().client;
        if client.is_cluster() || client.is_down() {
            return Ok(None);
        }
        self.0.ask((name, args)).await.unwrap_or(Ok(None))
    }
}

impl<const A: usize> BatchSender for ClaimSender<A> {
    type Request = ClaimPart<A>;
    type Answer = BatchAnswer;
    const AT_ONCE: usize = 16;

    async fn send(&self, mut batch: Vec<BatchedRequest<ClaimPart<A>, BatchAnswer>>) {
        // A claim that is given up meanwhile may be released next, and must not be granted after.
        batch.retain(|claim| !claim.answer.is_closed());
        if batch.is_empty() {
            return;
        }
        let mut names = Vec::with_capacity(batch.len() + 1);
        let mut args = Vec::with_capacity(batch.len() * A);
        let mut sent = SentClaims(Vec::with_capacity(batch.len()));
        for BatchedRequest { request: (name, of_claim), answer } in batch {
            names.push(name);
            args.extend(of_claim);
            sent.0.push(answer);
        }
        names.extend(self.shared.clone());
        let request = RedisRequest::script(&self.script, names, args, self.doing).once();
        let all = |numbers: &Vec<_>| numbers.len() == sent.0.len();
        match self.client.run(&request, |reply| numbers(reply).filter(all)).await {
            Ok(numbers) => sent.answer(numbers.into_iter().map(Ok)),
            // The server has refused it, so nothing was executed, and each claim can ask alone.
            Err(error) if error.kind() == StoreErrorKind::Misconfigured => sent.0.clear(),
            Err(error) => sent.answer((0..).map(|_| Err(error.clone()))),
        }
    }
}

/// The claims whose part may have been executed. If they get no answer, the task was dropped with its
/// runtime.
struct SentClaims(Vec<oneshot::Sender<BatchAnswer>>);

impl SentClaims {
    fn answer(&mut self, answers: impl Iterator<Item = BatchAnswer>) {
        for (caller, answer) in self.0.drain(..).zip(answers) {
            // The caller may be gone.
            _ = caller.send(answer);
        }
    }
}

impl Drop for SentClaims {
    fn drop(&mut self) {
        self.answer((0..).map(|_| Err(StoreError::new(StoreErrorKind::Unreachable, ENDED))));
    }
}

/// The reply of a script for several claims.
fn numbers(reply: RedisValue) -> Option<Vec<Option<i64>>> {
    let RedisValue::Array(answers) = reply else { return None };
    let number = |answer| match answer {
        RedisValue::Int(number) => Some(Some(number)),
        RedisValue::Nil => Some(None),
        _ => None,
    };
    answers.into_iter().map(number).collect()
}

const ENDED: &str = "the runtime ended that waited for a reply to several claims";
