//! Whatever is put into a key, only equal parts make equal keys.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZero;
use std::time::{Duration, UNIX_EPOCH};

use bellwether::{CacheKey, Key};
use bellwether_testkit::fuzz::{Choices, fuzz};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

/// A part, as a test can compare it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    Bytes(Vec<u8>),
    Id(u128),
    List(Vec<i64>),
    Missing,
    Number(i64),
    SomeNumber(i64),
    SomeText(String),
    Text(String),
    Truth(bool),
}

fn key(parts: &[Part]) -> Key {
    parts.iter().fold(Key::of("kind"), |key, part| match part {
        Part::Bytes(bytes) => key.with(bytes.as_slice()),
        Part::Id(id) => key.with(Uuid::from_u128(*id)),
        Part::List(numbers) => key.with(numbers.as_slice()),
        Part::Missing => key.with(None::<u8>),
        Part::Number(number) => key.with(*number),
        Part::SomeNumber(number) => key.with(Some(*number)),
        Part::SomeText(text) => key.with(Some(text.as_str())),
        Part::Text(text) => key.with(text.as_str()),
        Part::Truth(truth) => key.with(*truth),
    })
}

/// Parts that try to be taken for something else: empty, full of separators, looking like the
/// frames of others, equal in bytes and different in type.
fn tricks() -> Vec<Part> {
    let texts =
        ["", ":", "a", "a:", ":a", "\0", "s\0\0\0\u{1}a", "\u{1}a", "+", "-", "}", "1", "t"];
    let bytes = ["", "a", "s\0\0\0\u{1}a"].map(|bytes| Part::Bytes(bytes.into()));
    let id = u128::from_be_bytes(*b"s\0\0\0\x0baaaaaaaaaaa");
    let others = [
        Part::List(vec![]),
        Part::List(vec![0]),
        Part::List(vec![0, 1]),
        Part::Missing,
        Part::Number(0),
        Part::Number(1),
        Part::Number(-1),
        Part::SomeNumber(1),
        Part::SomeText("".to_owned()),
        Part::SomeText("a".to_owned()),
        Part::Truth(false),
        Part::Truth(true),
        Part::Id(0),
        Part::Id(id),
    ];
    texts.iter().map(|text| Part::Text((*text).to_owned())).chain(bytes).chain(others).collect()
}

/// All lists of up to three of them are different from one another: about 200 million pairs.
#[test]
fn no_trick_makes_two_keys_of_one() {
    let tricks = tricks();
    let mut lists = vec![Vec::new()];
    for length in 0..3 {
        let longest: Vec<_> = lists.iter().filter(|list| list.len() == length).cloned().collect();
        for (list, part) in longest.iter().flat_map(|list| tricks.iter().map(move |p| (list, p))) {
            lists.push([list.as_slice(), std::slice::from_ref(part)].concat());
        }
    }
    assert!(lists.len() > 20_000, "{}", lists.len());
    let keys: HashSet<_> = lists.iter().map(|list| key(list)).collect();
    let digests: HashSet<_> = keys.iter().map(Key::digest).collect();
    assert_eq!((keys.len(), digests.len()), (lists.len(), lists.len()));
}

fn part() -> impl Strategy<Value = Part> {
    let text = prop_oneof!["[a:{}+-]{0,3}", ".{0,8}"];
    prop_oneof![
        vec(any::<u8>(), 0..6).prop_map(Part::Bytes),
        vec(-2..3_i64, 0..3).prop_map(Part::List),
        any::<u128>().prop_map(Part::Id),
        Just(Part::Missing),
        prop_oneof![-2..3_i64, any::<i64>()].prop_map(Part::Number),
        (-2..3_i64).prop_map(Part::SomeNumber),
        "[a:]{0,2}".prop_map(Part::SomeText),
        text.prop_map(Part::Text),
        any::<bool>().prop_map(Part::Truth),
    ]
}

/// Two lists that are often equal, or nearly.
fn pair() -> impl Strategy<Value = (Vec<Part>, Vec<Part>)> {
    (vec(part(), 0..5), vec(part(), 0..5), 0..5_usize, 0..4_u8).prop_map(
        |(left, other, at, twist)| {
            let mut right = left.clone();
            match twist {
                0 => right = other,
                1 => right.truncate(at),
                2 => right.rotate_left(at.min(left.len())),
                _ => {}
            }
            (left, right)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    #[test]
    fn keys_are_equal_if_and_only_if_their_parts_are((left, right) in pair()) {
        prop_assert_eq!(key(&left) == key(&right), left == right);
        prop_assert_eq!(key(&left).digest() == key(&right).digest(), left == right);
    }

    #[test]
    fn moving_a_boundary_makes_another_key(text in "[a:\0]{1,8}", at in 0..8_usize, to in 0..8_usize) {
        let at = at % (text.len() + 1);
        let to = to % (text.len() + 1);
        let split = |at| { let (a, b) = text.split_at(at); Key::of("kind").with(a).with(b) };
        prop_assert_eq!(split(at) == split(to), at == to);
        prop_assert_ne!(split(at), Key::of("kind").with(text.as_str()));
    }

    #[test]
    fn keys_of_different_kinds_are_different(kinds in ("[a:]{0,3}", "[a:]{0,3}"), part in "[a:]{0,3}") {
        let [left, right] = [&kinds.0, &kinds.1].map(|kind| Key::of(kind).with(part.as_str()));
        prop_assert_eq!(left == right, kinds.0 == kinds.1);
    }

    #[test]
    fn a_key_knows_its_kind(kind in ".{0,20}", part in ".{0,20}") {
        let key = Key::of(&kind).with(part);
        prop_assert_eq!(key.kind(), kind);
    }

    #[test]
    fn the_width_of_a_number_does_not_matter(number in any::<i8>()) {
        let wide = Key::of("kind").with(i128::from(number));
        prop_assert_eq!(&Key::of("kind").with(number), &wide);
        prop_assert_eq!(&Key::of("kind").with(number as isize), &wide);
    }
}

fn of(part: impl CacheKey) -> Key {
    Key::of("kind").with(part)
}

#[test]
fn numbers_of_every_type_are_equal_if_their_values_are() {
    assert_eq!(of(7_u128), of(7_i8));
    assert_eq!(of(NonZero::new(7_u64)), of(Some(7)));
    assert_eq!(of(NonZero::new(7_usize).expect("not zero")), of(7));
    let large = i128::MAX as u128 + 1;
    let keys = [of(large), of(u128::MAX), of(i128::MIN), of(-1), of(i128::MAX)];
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
}

#[test]
fn addresses_times_and_borrowed_values_are_keys() {
    let address: IpAddr = "2001:db8::1".parse().expect("an address");
    assert_eq!(of(address), of("2001:db8::1"));
    assert_eq!(of(Ipv4Addr::LOCALHOST), of(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    assert_ne!(of(Ipv4Addr::LOCALHOST), of(Ipv4Addr::LOCALHOST.to_ipv6_mapped()));
    assert_eq!(of(Duration::new(1, 1)), of(1_000_000_001));
    assert_eq!(of(UNIX_EPOCH + Duration::new(1, 1)), of(1_000_000_001));
    assert_eq!(of(UNIX_EPOCH - Duration::new(1, 1)), of(-1_000_000_001));
    assert_eq!(of(Cow::Borrowed("a")), of(Cow::<str>::Owned("a".to_owned())));
    assert_eq!(of(Cow::Borrowed("a")), of("a"));
}

#[test]
fn a_list_is_one_part() {
    assert_eq!(of(vec![1, 2]), of([1, 2]));
    assert_eq!(of(vec!["a"]), of(["a".to_owned()]));
    assert_eq!(of(vec![1_u8, 2]), of(&[1_u8, 2][..]));
    assert_ne!(of(vec![1_u8, 2]), of(vec![1, 2]));
    let keys = [
        of((vec![1], vec![2])),
        of((vec![1, 2], Vec::<u64>::new())),
        of((1, 2)),
        of(vec![1, 2]),
        of(vec![vec![1], vec![2]]),
        of(vec![vec![1, 2]]),
        of(vec![Some(1), Some(2)]),
        of(Vec::<u64>::new()),
        of(()),
    ];
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
}

#[test]
fn neither_debug_nor_display_of_a_key_shows_its_text() {
    let key = Key::of("patient").with("Erika Mustermann").with(b"19700101").with(4_711_815);
    let shown = format!("{key} {key:?} {key:#?}");
    assert!(shown.contains("patient"), "{shown}");
    for secret in ["Erika", "Mustermann", "1970", "4711815"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn a_key_is_shown_by_the_start_of_its_digest() {
    let key = Key::of("patient").with(7);
    assert_eq!(key.to_string(), format!("patient#{}", &key.digest().to_string()[..8]));
}

fn any_part(choices: &mut Choices) -> Part {
    let tricks = tricks();
    match choices.below(9) {
        0 => Part::Bytes(choices.bytes(6)),
        1 => Part::Id(u128::from(choices.number())),
        2 => Part::Number(choices.number() as i64),
        3 => Part::SomeNumber(choices.below(4) as i64 - 1),
        4 => Part::SomeText(choices.text(3)),
        5 => Part::Text(choices.text(6)),
        6 => Part::Truth(choices.one_in(2)),
        _ => tricks[choices.below(tricks.len())].clone(),
    }
}

/// What looks most like a part: its text or its bytes as another type, or changed a little.
fn like(part: &Part, choices: &mut Choices) -> Part {
    let bytes = match part {
        Part::Text(text) | Part::SomeText(text) => text.clone().into_bytes(),
        Part::Bytes(bytes) => bytes.clone(),
        Part::Number(number) | Part::SomeNumber(number) => number.to_string().into_bytes(),
        Part::Id(id) => id.to_be_bytes().to_vec(),
        Part::Missing | Part::List(_) => Vec::new(),
        Part::Truth(truth) => vec![u8::from(*truth)],
    };
    let bytes = if choices.one_in(2) { choices.mutated(&bytes, b"s\0\0\0\x01a") } else { bytes };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match choices.below(4) {
        0 => Part::Text(text),
        1 => Part::Bytes(bytes),
        2 => Part::SomeText(text),
        _ => text.parse().map_or(Part::Missing, Part::Number),
    }
}

#[test]
fn fuzzed_lists_of_parts_are_equal_keys_if_and_only_if_they_are_equal() {
    fuzz("keys", 64, 1, |choices| {
        let left: Vec<_> = (0..choices.below(4)).map(|_| any_part(choices)).collect();
        let mut right = left.clone();
        for _ in 0..choices.below(3) {
            let at = choices.below(right.len() + 1);
            match choices.below(5) {
                0 => right.truncate(at),
                1 => right.insert(at, any_part(choices)),
                2 => right.rotate_left(at),
                3 => right.extend_from_within(at..),
                _ => {
                    if let Some(part) = right.get_mut(at) {
                        *part = like(part, choices);
                    }
                }
            }
        }
        let keys = [&left, &right].map(|parts| key(parts));
        assert_eq!(keys[0] == keys[1], left == right, "{left:?} {right:?}");
        assert_eq!(keys[0].digest() == keys[1].digest(), left == right, "{left:?} {right:?}");
        assert_eq!(keys[0].kind(), "kind");
    });
}
