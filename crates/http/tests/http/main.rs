//! The HTTP layer, as its callers and the origin behind it see it.

mod burst;
mod by_hand;
mod changes;
mod cookies;
mod counts;
mod credentials;
mod expired_keys;
mod expired_variants;
mod expiries_at_once;
mod failing_variants;
mod failures;
mod filled_keys;
mod groups;
mod heads;
mod hop_by_hop;
mod hosts;
mod keyed;
mod left_changes;
mod load;
mod memory;
mod not_modified;
mod one_form;
mod origin;
mod outages;
mod parts;
mod poison;
mod privacy;
mod proxies;
mod public_suite;
mod purge;
mod refusals;
mod reload;
mod rewrites;
mod shapes;
mod streams;
mod surrogate_keys;
mod upgrades;
mod users;
mod validation;
mod variants;
mod variants_in_redis;
mod vary;

#[path = "../../../../examples/reverse_proxy/options.rs"]
mod options;
#[path = "../../../../examples/reverse_proxy/proxy.rs"]
mod proxy;
