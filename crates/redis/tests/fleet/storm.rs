//! A storm: callers that ask for a key again and again, and how they fared.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::adapter::locked;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};
use tower::Service;

use crate::answer::Answer;
use crate::fared::Fared;
use crate::messages::Storm;
use crate::rows::Ask;
use crate::worker::Member;

impl Member {
    /// Lets callers ask until the time is over. A caller that is stuck fails the test, because
    /// nothing else ends it.
    pub(crate) async fn storm(&self, storm: Storm) -> Fared {
        let fared = Arc::new(Mutex::new(Fared::default()));
        let over = Instant::now() + Duration::from_millis(storm.millis);
        let callers = (0..storm.callers).map(|number| {
            let member = self.clone_service();
            let fared = Arc::clone(&fared);
            tokio::spawn(async move {
                let mut service = member;
                let rest = Duration::from_millis(storm.rest_millis);
                // So that they do not all ask at the same moments.
                sleep(rest.mul_f64(number as f64 / storm.callers as f64)).await;
                while Instant::now() < over {
                    let began = Instant::now();
                    let call = pin!(service.call(Ask::of(storm.key)).with_status());
                    let answer = timeout(STUCK, call).await.expect("no caller is stuck");
                    let took = began.elapsed();
                    locked(&fared).count(&Answer::of(answer), took);
                    sleep(rest).await;
                }
            })
        });
        let ended = join_all(callers.collect::<Vec<_>>()).await;
        ended.into_iter().for_each(|ended| ended.expect("no panic"));
        std::mem::take(&mut *locked(&fared))
    }
}

/// Longer than any call may take.
const STUCK: Duration = Duration::from_secs(60);
