//! Guides: one task per page, at most six minutes each.
//!
//! Read [`getting_started`] first. The other pages stand alone:
//!
//! | page | read it to |
//! |---|---|
//! | [`getting_started`] | put a cache in front of a loader, and see one load for a thousand callers |
//! | [`story`] | see what each option saves, in counted queries |
//! | [`lifetimes`] | choose a ttl, stale windows, early refresh and jitter |
//! | [`invalidation`] | remove an entry after a change, and know what that guarantees |
//! | [`tags`] | remove many entries at once |
//! | [`batches`] | load many keys by one query |
//! | [`values`] | store binary data, and choose a format |
//! | [`answers`] | say what "not found", private answers and errors mean |
//! | [`failures`] | bound waits, and decide what callers get while Redis or the source is down |
//! | [`cooldown`] | protect a failing source |
//! | [`in_a_program`] | order layers, shut down, call it from sync code, deploy |
//! | [`fault_table`] | look up what callers get for each fault |
//! | [`observability`] | publish metrics, and see whether it works |
//! | [`log_messages`] | look up a warning |
//! | [`operations`] | find and remove an entry in an incident, empty a cache, check the servers |
//! | [`testing`] | test your service without a server, with paused time and injected faults |
//! | [`guarantees`] | check each promise, its exceptions, and its tests |
//! | [`options`] | look up an option, its default, and when to change it |
//! | [`how_it_works`] | understand the protocol: flight, lease, fencing token, push |
//! | [`performance`] | know what a hit, a burst and a lock cost |
//! | [`alternatives`] | compare bellwether with other caches |
//!
//! Other crates have guides of their own: `bellwether_redis::guide`, `bellwether_http::guide`,
//! `bellwether_grpc::guide`, `bellwether_lock::guide` and `bellwether_sql::guide`.

/// Documents each of these modules with its page of `guide`, below a picture if one is named. The
/// folder is the one beside the source that calls this.
//
// Links of pages below `guide/links.md` work here and on code hosts: of two definitions of a link, the first
// one counts here, and hosts see the one at the end of the page.
#[doc(hidden)]
#[macro_export]
macro_rules! guide_pages {
    ($($page:ident $(($picture:literal))?)*) => {$(
        #[doc = include_str!("guide/links.md")]
        $(#[doc = include_str!(concat!("guide/pictures/", $picture, ".md"))])?
        #[doc = include_str!(concat!("guide/", stringify!($page), ".md"))]
        pub mod $page {}
    )*};
}

guide_pages! {
    alternatives answers batches cooldown("cooldown") failures("outage") fault_table getting_started
    guarantees how_it_works in_a_program invalidation lifetimes("entry") log_messages operations options
    performance story tags("tags") testing values
}

#[doc = include_str!("guide/links.md")]
// `crates/readme` compiles the example, whose dependencies are not those of this crate.
#[cfg_attr(not(doctest), doc = include_str!("guide/observability.md"))]
pub mod observability {}
