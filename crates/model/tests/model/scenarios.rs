//! The scenarios: worlds that are small enough to walk through every state.

use super::payload::Drafted;
use super::rules::{Rules, Serves, Without};
use super::stored::Age;
use super::world::{Budget, READERS, Reader, World};

/// The first state of a walk, and its rules.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) world: World,
    pub(super) rules: Rules,
}

const READER: Reader = Reader::Idle { forced: false };
const FORCED: Reader = Reader::Idle { forced: true };

const THREE: [Reader; READERS] = [READER; READERS];
/// Two readers of one process.
const SAME_PROCESS: [Reader; READERS] = [READER, READER, Reader::Over];
/// One reader in each process.
const ONE_EACH: [Reader; READERS] = [READER, Reader::Over, READER];

const VALUE: Drafted = Drafted::Value(0);

const NONE: Budget = Budget {
    writes: 0,
    puts: 0,
    lapses: 0,
    failures: 0,
    failed_loads: 0,
    ages: 0,
    leaves: 0,
    kills: 0,
    forgets: 0,
    copies: 0,
    pauses: 0,
    queues: 0,
};

const PLAIN: Rules = Rules {
    ages: &[],
    stale: Serves::Never,
    answers: &[VALUE],
    cancels: false,
    may_load: true,
    is_tagged: false,
    expires: false,
    keeps: false,
    hurries: false,
    tells: false,
    without: Without::Nothing,
};

pub(super) fn scenarios() -> Vec<Scenario> {
    let of = |name, world, rules| Scenario { name, world, rules };
    [shared(), stale(), not_shared(), left(), hurried(), tagged(), kept(), sent_twice(), told()]
        .into_iter()
        .chain([put(), expired(), queued()])
        .flatten()
        .map(|(name, world, rules)| of(name, world, rules))
        .collect()
}

type Parts = (&'static str, World, Rules);

/// Values that can be stored, with loads and stores that fail.
fn shared() -> Vec<Parts> {
    let fails = |failures, failed_loads| Budget { failures, failed_loads, ..NONE };
    vec![
        (
            "the store fails",
            World::new(THREE, Budget { writes: 1, lapses: 1, ..fails(1, 0) }),
            PLAIN,
        ),
        ("a load fails", World::new(THREE, Budget { writes: 1, lapses: 1, ..fails(0, 1) }), PLAIN),
        ("loads fail", World::new(THREE, fails(0, 2)), PLAIN),
        ("a probe fails", World::new(THREE, fails(0, 1)).after_failures(), PLAIN),
        ("the store and a load fail", World::new(ONE_EACH, fails(1, 1)), PLAIN),
        (
            "the store fails after loads",
            World::new(SAME_PROCESS, fails(1, 1)).after_failures(),
            PLAIN,
        ),
        (
            "nothing is loaded without the store",
            World::new(SAME_PROCESS, fails(2, 0)).after_failures(),
            Rules { may_load: false, ..PLAIN },
        ),
        (
            "an entry is unreadable",
            World::new(ONE_EACH, Budget { writes: 1, ..fails(1, 0) })
                .with(Drafted::Unreadable, Age::Fresh),
            PLAIN,
        ),
    ]
}

/// More loads than may be under way.
fn queued() -> Vec<Parts> {
    let old = |left| World::new(THREE, left).with(Drafted::Value(1), Age::Stale);
    let queues = Budget { writes: 1, leaves: 1, queues: 1, ..NONE };
    vec![
        ("a flight queues", World::new(THREE, queues), PLAIN),
        (
            "a flight queues, stale while revalidating",
            old(Budget { leaves: 0, ..queues }),
            Rules { stale: Serves::WhileRevalidating, ..PLAIN },
        ),
        ("a flight queues, stale if error", old(queues), Rules { stale: Serves::IfError, ..PLAIN }),
    ]
}

/// Entries that grow old.
fn stale() -> Vec<Parts> {
    let revalidating =
        Rules { stale: Serves::WhileRevalidating, ages: &[Some(Age::Stale)], ..PLAIN };
    let if_error = Rules { stale: Serves::IfError, ages: &[Some(Age::Stale)], ..PLAIN };
    let early = Rules { ages: &[Some(Age::Due), None], ..PLAIN };
    let old = |readers, left| World::new(readers, left).with(Drafted::Value(1), Age::Stale);
    let writes = Budget { writes: 1, ..NONE };
    vec![
        ("stale while revalidating", old(THREE, writes), revalidating),
        (
            "stale while revalidating, a load fails",
            old(ONE_EACH, Budget { failed_loads: 1, lapses: 1, ..writes }),
            revalidating,
        ),
        ("stale if error", old(THREE, Budget { failed_loads: 1, ..writes }), if_error),
        (
            "stale if error, callers are in a hurry",
            old(THREE, Budget { leaves: 1, ..writes }),
            if_error,
        ),
        (
            "stale after failures",
            old(THREE, Budget { failed_loads: 1, ..writes }).after_failures(),
            if_error,
        ),
        (
            "stale probes",
            old(SAME_PROCESS, Budget { failed_loads: 1, failures: 1, ..NONE }).after_failures(),
            revalidating,
        ),
        ("due early", World::new(ONE_EACH, Budget { ages: 1, failures: 1, ..writes }), early),
    ]
}

/// Answers that are not stored, or are private.
fn not_shared() -> Vec<Parts> {
    let gives = |answers| Rules { answers, ..PLAIN };
    let writes = Budget { writes: 1, ..NONE };
    vec![
        (
            "private answers",
            World::new(THREE, Budget { failures: 1, ..NONE }),
            gives(&[VALUE, Drafted::PrivateKey]),
        ),
        (
            "answers private once",
            World::new(THREE, Budget { failures: 1, ..NONE }),
            gives(&[VALUE, Drafted::PrivateOnce]),
        ),
        (
            "answers private once replace nothing",
            World::new(ONE_EACH, writes).with(Drafted::Value(1), Age::Stale),
            gives(&[VALUE, Drafted::PrivateOnce]),
        ),
        (
            "answers cannot be kept",
            World::new(THREE, Budget { failed_loads: 1, ..NONE }),
            gives(&[Drafted::Nothing, Drafted::Uncacheable]),
        ),
        (
            "answers cannot be kept after failures",
            World::new(ONE_EACH, Budget { failed_loads: 1, lapses: 1, ..NONE }).after_failures(),
            gives(&[Drafted::Uncacheable]),
        ),
        (
            "answers of all kinds",
            World::new(ONE_EACH, Budget { writes: 1, lapses: 1, ..NONE }),
            gives(&[VALUE, Drafted::Uncacheable, Drafted::PrivateKey, Drafted::PrivateOnce]),
        ),
    ]
}

/// Forced refreshes, and callers and tasks that leave.
fn left() -> Vec<Parts> {
    let cancels = Rules { cancels: true, ..PLAIN };
    let writes = Budget { writes: 1, ..NONE };
    let kept = |readers, left| World::new(readers, left).with(Drafted::Value(1), Age::Fresh);
    vec![
        ("a forced refresh", kept([FORCED, READER, FORCED], writes), PLAIN),
        (
            "forced refreshes fail",
            kept([FORCED, READER, FORCED], Budget { failed_loads: 2, ..NONE }),
            PLAIN,
        ),
        (
            "forced refreshes after failures",
            World::new([FORCED, READER, FORCED], Budget { failed_loads: 1, ..NONE })
                .after_failures(),
            PLAIN,
        ),
        ("callers go", World::new(THREE, Budget { leaves: 2, failures: 1, ..NONE }), PLAIN),
        (
            "callers go, and loads are cancelled",
            World::new(THREE, Budget { leaves: 2, lapses: 1, ..NONE }),
            cancels,
        ),
        ("a task is dropped", World::new(THREE, Budget { kills: 1, lapses: 1, ..writes }), PLAIN),
    ]
}

/// Callers whose wait runs out load without a lease.
fn hurried() -> Vec<Parts> {
    let hurries = Rules { hurries: true, ..PLAIN };
    let waits = Budget { leaves: 2, ..NONE };
    vec![
        ("waits run out", World::new(SAME_PROCESS, Budget { writes: 1, ..waits }), hurries),
        (
            "waits run out, and loads fail",
            World::new(SAME_PROCESS, Budget { failed_loads: 2, ..waits }),
            hurries,
        ),
        (
            "waits run out, and answers are private",
            World::new(SAME_PROCESS, waits),
            Rules { answers: &[VALUE, Drafted::PrivateKey, Drafted::PrivateOnce], ..hurries },
        ),
    ]
}

/// A tag of the key is invalidated, or the store forgets it.
fn tagged() -> Vec<Parts> {
    let tagged = Rules { is_tagged: true, ..PLAIN };
    let revalidating =
        Rules { stale: Serves::WhileRevalidating, ages: &[Some(Age::Stale)], ..tagged };
    let writes = Budget { writes: 1, ..NONE };
    let forgets = Budget { forgets: 1, ..writes };
    let old = |readers, left| World::new(readers, left).with(Drafted::Value(1), Age::Stale);
    vec![
        ("a tag is invalidated", World::new(THREE, Budget { lapses: 1, ..writes }), tagged),
        (
            "a tag is invalidated twice and forgotten",
            World::new(ONE_EACH, Budget { writes: 2, ..forgets }).with(VALUE, Age::Fresh),
            tagged,
        ),
        ("a tag is forgotten", World::new(SAME_PROCESS, forgets), tagged),
        (
            "a tag is forgotten and the store fails",
            World::new(ONE_EACH, Budget { failures: 1, ..forgets }),
            tagged,
        ),
        ("a tag of a stale entry is forgotten", old(THREE, forgets), revalidating),
    ]
}

/// Invalidations fail, are kept, and are repeated.
fn kept() -> Vec<Parts> {
    let keeps = Rules { keeps: true, ..PLAIN };
    let tagged = Rules { is_tagged: true, ..keeps };
    let fails = |writes, failures| Budget { writes, failures, ..NONE };
    let full = |readers, left| World::new(readers, left).with(Drafted::Value(1), Age::Fresh);
    vec![
        ("an invalidation fails", World::new(THREE, fails(1, 1)), keeps),
        ("invalidations fail", full(ONE_EACH, fails(2, 2)), keeps),
        ("an invalidation of a tag fails", full(SAME_PROCESS, fails(1, 2)), tagged),
        (
            "an invalidation of a tag fails, and the tag is forgotten",
            full(ONE_EACH, Budget { forgets: 1, ..fails(1, 1) }),
            tagged,
        ),
    ]
}

/// A request is sent twice, and the second copy arrives at any later time.
fn sent_twice() -> Vec<Parts> {
    let writes = Budget { writes: 1, copies: 1, ..NONE };
    let fails = Budget { failed_loads: 1, ..writes };
    let full = |left| World::new([FORCED, Reader::Over, READER], left).with(VALUE, Age::Fresh);
    let old = World::new(ONE_EACH, writes).with(Drafted::Value(1), Age::Stale);
    let marks = Rules { answers: &[VALUE, Drafted::Nothing, Drafted::PrivateOnce], ..PLAIN };
    let revalidating =
        Rules { stale: Serves::WhileRevalidating, ages: &[Some(Age::Stale)], ..PLAIN };
    vec![
        ("a request comes twice", World::new(ONE_EACH, Budget { lapses: 1, ..writes }), PLAIN),
        ("a request of a failing load comes twice", World::new(ONE_EACH, fails), PLAIN),
        (
            "a request of a forced refresh comes twice",
            full(Budget { failures: 1, ..writes }),
            PLAIN,
        ),
        (
            "a request after failures comes twice",
            World::new(ONE_EACH, fails).after_failures(),
            PLAIN,
        ),
        ("a request of a refresh comes twice", old, revalidating),
        ("a request comes twice, and answers are not kept", World::new(ONE_EACH, writes), marks),
        (
            "a request of a tagged load comes twice",
            World::new(ONE_EACH, writes),
            Rules { is_tagged: true, ..PLAIN },
        ),
    ]
}

/// A commit publishes its value to the processes that wait for its lease.
fn told() -> Vec<Parts> {
    let tells = Rules { tells: true, ..PLAIN };
    let tagged = Rules { is_tagged: true, ..tells };
    let keeps = Rules { keeps: true, ..tells };
    let stale = Rules { stale: Serves::WhileRevalidating, ages: &[Some(Age::Stale)], ..tells };
    let writes = Budget { writes: 1, pauses: 1, ..NONE };
    let forced = World::new([READER, FORCED, READER], writes).with(Drafted::Value(1), Age::Fresh);
    let old = World::new(THREE, writes).with(Drafted::Value(1), Age::Stale);
    vec![
        ("messages", World::new(THREE, Budget { lapses: 1, ..writes }), tells),
        (
            "messages, and the store fails",
            World::new(ONE_EACH, Budget { failures: 1, ..writes }),
            tells,
        ),
        (
            "messages, and requests come twice",
            World::new(THREE, Budget { writes: 1, copies: 1, ..NONE }),
            tells,
        ),
        ("messages to a forced refresh", forced, tells),
        ("messages of a refresh", old, stale),
        ("messages of tagged loads", World::new(THREE, writes), tagged),
        (
            "messages, and an invalidation fails",
            World::new(THREE, Budget { writes: 1, failures: 1, ..NONE }),
            keeps,
        ),
    ]
}

/// Another writer puts its value, while the key or its tag is invalidated and loaded.
fn put() -> Vec<Parts> {
    let tagged = Rules { is_tagged: true, ..PLAIN };
    let tells = Rules { tells: true, ..PLAIN };
    let expires = Rules { expires: true, stale: Serves::WhileRevalidating, ..PLAIN };
    let alone = |left| World::new([READER, Reader::Over, Reader::Over], left);
    let same = |left| World::new(SAME_PROCESS, left);
    let puts = Budget { puts: 1, ..NONE };
    let writes = Budget { writes: 1, ..puts };
    let copies = Budget { copies: 1, ..writes };
    let forgets = Budget { forgets: 1, ..writes };
    vec![
        ("a put", same(Budget { lapses: 1, ..puts }), PLAIN),
        (
            "what was put is gone",
            same(Budget { lapses: 1, ages: 1, ..puts }),
            Rules { ages: &[None], ..PLAIN },
        ),
        ("two puts", same(Budget { puts: 2, ..NONE }), PLAIN),
        ("a put and an invalidation", same(writes), PLAIN),
        ("a put fails", alone(Budget { failures: 2, ..writes }), PLAIN),
        ("a put comes twice", alone(copies).with(Drafted::Value(1), Age::Fresh), PLAIN),
        ("a put and an invalidation of its tag", same(writes), tagged),
        ("a put whose tag is forgotten", alone(forgets).with(VALUE, Age::Fresh), tagged),
        ("messages of a put", same(Budget { pauses: 1, ..writes }), tells),
        ("a put and an expiry", alone(writes).with(Drafted::Value(1), Age::Fresh), expires),
    ]
}

/// The key or its tag expires.
fn expired() -> Vec<Parts> {
    let expires = Rules { expires: true, stale: Serves::WhileRevalidating, ..PLAIN };
    let if_error = Rules { stale: Serves::IfError, ..expires };
    let never = Rules { stale: Serves::Never, ..expires };
    let tagged = Rules { is_tagged: true, ..expires };
    let keeps = Rules { keeps: true, ..expires };
    let writes = Budget { writes: 1, ..NONE };
    let fails = |failures, failed_loads| Budget { failures, failed_loads, ..writes };
    let full = |readers, left| World::new(readers, left).with(Drafted::Value(1), Age::Fresh);
    let forced = [READER, FORCED, READER];
    vec![
        ("a key expires", full(forced, writes), expires),
        ("a key expires twice", full(SAME_PROCESS, Budget { writes: 2, ..NONE }), expires),
        ("a key expires, and a load fails", full(forced, fails(0, 1)), if_error),
        ("a key without a stale window expires", full(forced, writes), never),
        ("a tag expires", full([FORCED, FORCED, READER], writes), tagged),
        ("an expiry fails", full(THREE, fails(2, 0)), keeps),
        ("an expiry comes twice", full(ONE_EACH, Budget { copies: 1, ..writes }), expires),
    ]
}
