//! An origin that fails, and who is told so.

use http::Request;

use crate::origin::{Origin, cached, get, memory, page, pass};

/// One whose requests the origin breaks off, every other second.
#[tokio::test(start_paused = true)]
async fn who_makes_the_origin_fail_for_himself_does_not_make_it_fail_for_others() {
    let origin =
        Origin::new(async |request: Request<_>, _| match request.headers().contains_key("x-bad") {
            false => Ok(page(&[("cache-control", "max-age=10")], "")),
            true => Err("connection reset".into()),
        });
    let cache = cached(&memory(), &origin);
    get(&cache, &[]).await;
    for second in 0..180 {
        if second % 2 == 0 {
            get(&cache, &[("x-bad", "1"), ("cache-control", "no-cache")]).await;
        }
        assert_eq!(get(&cache, &[]).await.status(), 200, "in second {second}");
        pass(1).await;
    }
}
