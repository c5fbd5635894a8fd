//! Keys: what an answer is stored under.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// What an answer is stored under: a kind, such as `"product"`, and typed parts that identify one
/// thing of that kind.
///
/// Each part is encoded with its type and its length. So two keys are equal only if they were built
/// from equal parts in the same order:
///
/// ```
/// use bellwether::Key;
///
/// let key = Key::of("price").with("a").with("b:c");
/// assert_ne!(key, Key::of("price").with("a:b").with("c"));
/// assert_ne!(key, Key::of("price").with("a").with("b").with("c"));
/// assert_ne!(Key::of("item").with(1), Key::of("item").with("1"));
/// assert_eq!(Key::of("item").with(1_u8), Key::of("item").with(1_i64));
/// ```
///
/// A key may hold personal data. So `Debug` and every message show only its kind and the start of
/// its [`Digest`].
#[derive(Clone)]
pub struct Key {
    /// The parts, one after the other: the kind, then what [`with`](Key::with) added.
    parts: Vec<u8>,
    /// Set when a request needs it. A hit in the process never does.
    digest: Option<Digest>,
}

impl Key {
    /// The longest key that is accepted, in bytes of all its parts and their frames (5 bytes for
    /// text, 1 for a number). A request with a longer key gets
    /// [`CacheErrorKind::KeyTooLong`](crate::CacheErrorKind::KeyTooLong). The bound keeps request
    /// bodies out of keys: every table that has a key would hold them.
    pub const MAX_BYTES: usize = 1024;

    /// A key for one kind of thing, such as `"product"`.
    ///
    /// Keys of different kinds never collide, whatever their parts.
    #[inline]
    pub fn of(kind: &str) -> Self {
        let mut parts = Vec::with_capacity(TYPICAL);
        write_framed(&mut parts, TEXT, kind.len(), kind.as_bytes());
        Self { parts, digest: None }
    }

    /// Adds a part.
    #[must_use]
    #[inline]
    pub fn with(mut self, part: impl CacheKey) -> Self {
        part.add_to(&mut self);
        self.digest = None;
        self
    }

    /// The kind given to [`Key::of`].
    pub fn kind(&self) -> &str {
        let length = framed_len(&self.parts[1..]);
        std::str::from_utf8(&self.parts[FRAME..FRAME + length]).unwrap_or_default()
    }

    /// A hash of this key, for stores and logs.
    pub fn digest(&self) -> Digest {
        self.digest.unwrap_or_else(|| {
            let hash = blake3::hash(&self.parts);
            let mut digest = [0; Digest::BYTES];
            digest.copy_from_slice(&hash.as_bytes()[..Digest::BYTES]);
            Digest(digest)
        })
    }

    /// The parts given to [`with`](Key::with), without the kind. For the crates of this project.
    #[doc(hidden)]
    pub fn parts(&self) -> impl Iterator<Item = KeyPart<'_>> {
        KeyParts(&self.parts).skip(1)
    }

    /// All parts as readable text, as in `price/berlin/42`. It does not tell apart what the key does,
    /// and it may be personal data.
    pub(crate) fn plain(&self) -> PlainKey<'_> {
        PlainKey(&self.parts)
    }

    /// The same key, with its digest computed in advance.
    pub fn digested(mut self) -> Self {
        self.digest = Some(self.digest());
        self
    }

    /// How long this key is, as [`Key::MAX_BYTES`] counts.
    #[inline]
    pub fn byte_len(&self) -> usize {
        self.parts.len()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Shows the kind and the first 8 hex digits of the digest, as in `product#0f3a99c1`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:.8}", self.kind(), self.digest().to_string())
    }
}

/// A fixed-length name of a key: the first 160 bits of the BLAKE3 hash of its parts.
///
/// A shared store uses it in the names of its entries, and each entry has it to prove that it
/// belongs to its key. Finding two keys with one digest takes about 2^80 tries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub(crate) [u8; Self::BYTES]);

/// A digest that a store has read.
impl From<[u8; Self::BYTES]> for Digest {
    fn from(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }
}

impl Digest {
    /// The length of a digest in bytes.
    pub const BYTES: usize = 20;

    /// The bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The digest in hexadecimal digits, as `Display` shows it.
    pub fn hex(&self) -> [u8; Self::BYTES * 2] {
        let mut hex = [0; Self::BYTES * 2];
        for (pair, byte) in hex.as_chunks_mut().0.iter_mut().zip(self.0) {
            *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
        }
        hex
    }
}

/// Hashes its first 8 bytes, since all bits of a digest are equally random.
impl Hash for Digest {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(first) = self.0.first_chunk() {
            state.write_u64(u64::from_ne_bytes(*first));
        }
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

/// A value that can be a key, or a part of one: the keys of a [`Cache`](crate::Cache), and what
/// [`Key::with`] takes.
///
/// Whole numbers, text, bytes, `bool`, `char` and [`Uuid`] are keys, and so are `Option`s, lists, tuples of
/// up to six keys, and `Arc`s, `Box`es, `Cow`s and references of a key. Whole numbers of any width are
/// equal if their values are equal. Text and bytes are different keys, even if their bytes are equal.
/// An [`IpAddr`] is its text, and a [`Duration`] or a [`SystemTime`] its nanoseconds, since 1970.
///
/// Derive it for types of your own, with the feature `macros`. A struct is its fields, one after the
/// other; a variant of an enum is its name, and its fields. So a renamed variant is another key.
///
/// ```
/// # #[cfg(feature = "macros")] {
/// use bellwether::{CacheKey, Key};
///
/// #[derive(CacheKey)]
/// struct Sku(i64);
///
/// #[derive(CacheKey)]
/// enum Page<'a> {
///     Home,
///     Item { warehouse: &'a str, sku: Sku },
/// }
///
/// let page = Page::Item { warehouse: "berlin", sku: Sku(42) };
/// assert_eq!(Key::of("page").with(page), Key::of("page").with("Item").with("berlin").with(42));
/// assert_ne!(Key::of("page").with(Page::Home), Key::of("page"));
/// # }
/// ```
///
/// By hand, add all fields that tell one value from another. What is added must be the same for equal
/// values, and different for others:
///
/// ```
/// use bellwether::{CacheKey, Key};
///
/// struct Sku(i64);
///
/// impl CacheKey for Sku {
///     fn add_to(&self, key: &mut Key) {
///         self.0.add_to(key);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a key",
    label = "no part of a key",
    note = "parts are whole numbers, text, bytes, `bool`, `Uuid`, addresses, times, `Option`s, lists and \
            tuples of them, and types with `#[derive(CacheKey)]`"
)]
pub trait CacheKey {
    /// Adds this value to a key.
    fn add_to(&self, key: &mut Key);

    /// Adds a list of such values to a key: of `u8`, they are bytes.
    #[doc(hidden)]
    fn add_list(list: &[Self], key: &mut Key)
    where
        Self: Sized,
    {
        write_framed(&mut key.parts, LIST, list.len(), b"");
        list.iter().for_each(|it| it.add_to(key));
    }
}

/// What names a key of type `K` in a call of a [`Cache`](crate::Cache): the key itself, a reference to
/// it, and for a `String` a `&str`, also in a pair or an `Option`; for a `Vec` a slice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a cache whose keys are `{K}`",
    label = "not a `{K}`",
    note = "a `{K}` or a reference to one is; and a `&str`, where the keys are `String`s"
)]
pub trait KeyOf<K>: CacheKey {}

impl<K: CacheKey> KeyOf<K> for K {}
impl<K: CacheKey> KeyOf<K> for &K {}
impl KeyOf<String> for &str {}
impl<A: CacheKey> KeyOf<(A, String)> for (A, &str) {}
impl<B: CacheKey> KeyOf<(String, B)> for (&str, B) {}
impl KeyOf<(String, String)> for (&str, &str) {}
impl KeyOf<Option<String>> for Option<&str> {}
impl KeyOf<Arc<str>> for &str {}
impl KeyOf<Box<str>> for &str {}
impl KeyOf<Cow<'_, str>> for &str {}
impl<T: CacheKey> KeyOf<Vec<T>> for &[T] {}

macro_rules! whole_numbers {
    ($($number:ty $({ $($list:tt)* })?),*) => {$(
        impl CacheKey for $number {
            #[inline]
            fn add_to(&self, key: &mut Key) {
                KeyPart::Number(i128::from(*self)).add_to(key);
            }

            $($($list)*)?
        }

        impl CacheKey for NonZero<$number> {
            fn add_to(&self, key: &mut Key) {
                self.get().add_to(key);
            }
        }
    )*};
}

whole_numbers!(i8, i16, i32, i64, i128, u16, u32, u64, u8 {
    fn add_list(list: &[Self], key: &mut Key) {
        KeyPart::Bytes(list).add_to(key);
    }
});

macro_rules! keys_like_another {
    ($(($($generics:tt)*) $key:ty: |$it:ident| $other:expr;)*) => {$(
        impl<$($generics)*> CacheKey for $key {
            #[inline]
            fn add_to(&self, key: &mut Key) {
                let $it = self;
                $other.add_to(key);
            }
        }
    )*};
}

keys_like_another! {
    () bool: |truth| KeyPart::Truth(*truth);
    () str: |text| KeyPart::Text(text);
    () Uuid: |id| KeyPart::Uuid(*id);
    () u128: |number| i128::try_from(*number).map_or(KeyPart::LargeNumber(*number), KeyPart::Number);
    () usize: |number| (*number as u64);
    () isize: |number| (*number as i64);
    () NonZero<usize>: |number| number.get();
    () NonZero<isize>: |number| number.get();
    () NonZero<u128>: |number| number.get();
    () String: |text| text.as_str();
    () char: |letter| letter.encode_utf8(&mut [0; 4]);
    () IpAddr: |address| address.to_string();
    () Ipv4Addr: |address| address.to_string();
    () Ipv6Addr: |address| address.to_string();
    () Duration: |time| time.as_nanos();
    (T: CacheKey) Vec<T>: |list| list.as_slice();
    (T: CacheKey, const N: usize) [T; N]: |list| list.as_slice();
    (T: CacheKey + ToOwned + ?Sized) Cow<'_, T>: |it| (**it);
    (T: CacheKey + ?Sized) &T: |it| (**it);
    (T: CacheKey + ?Sized) Box<T>: |it| (**it);
    (T: CacheKey + ?Sized) Arc<T>: |it| (**it);
}

impl<T: CacheKey> CacheKey for [T] {
    fn add_to(&self, key: &mut Key) {
        T::add_list(self, key);
    }
}

/// A time before 1970 is a negative number.
impl CacheKey for SystemTime {
    fn add_to(&self, key: &mut Key) {
        let nanos = |time: Duration| time.as_nanos() as i128;
        let since = self.duration_since(UNIX_EPOCH);
        since.map_or_else(|before| -nanos(before.duration()), nanos).add_to(key);
    }
}

/// No part, for a key of its kind alone.
impl CacheKey for () {
    #[inline]
    fn add_to(&self, _: &mut Key) {}
}

impl<T: CacheKey> CacheKey for Option<T> {
    fn add_to(&self, key: &mut Key) {
        key.parts.push(if self.is_some() { SOME } else { NONE });
        if let Some(value) = self {
            value.add_to(key);
        }
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name: CacheKey),*> CacheKey for ($($name,)*) {
            fn add_to(&self, key: &mut Key) {
                #[allow(non_snake_case, reason = "each is named like its type")]
                let ($($name,)*) = self;
                $($name.add_to(key);)*
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);

/// Writes a tag and the bytes.
#[inline]
fn write_tagged(parts: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    parts.push(tag);
    parts.extend_from_slice(bytes);
}

/// Writes a tag, the length in 4 bytes, and the bytes.
#[inline]
fn write_framed(parts: &mut Vec<u8>, tag: u8, length: usize, bytes: &[u8]) {
    // Over 4 GiB the length is wrong, but `MAX_BYTES` refuses such a key before that matters.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    parts.push(tag);
    parts.extend_from_slice(&length.to_be_bytes());
    parts.extend_from_slice(bytes);
}

/// One part of a key, as it was added. As a part of another key, it is the same part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a program that writes keys elsewhere handles each of them"
)]
pub enum KeyPart<'a> {
    /// Text.
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A whole number of any width.
    Number(i128),
    /// One that is too large for that.
    LargeNumber(u128),
    /// A `bool`.
    Truth(bool),
    /// A UUID.
    Uuid(Uuid),
    /// A list of so many items. They follow, as parts of their own.
    List(u32),
    /// A `Some`. What is in it follows, as parts of their own.
    Some,
    /// A `None`.
    None,
}

impl CacheKey for KeyPart<'_> {
    #[inline]
    fn add_to(&self, key: &mut Key) {
        let parts = &mut key.parts;
        match self {
            Self::Text(text) => write_framed(parts, TEXT, text.len(), text.as_bytes()),
            Self::Bytes(bytes) => write_framed(parts, BYTES, bytes.len(), bytes),
            Self::Number(number) => write_tagged(parts, NUMBER, &number.to_be_bytes()),
            Self::LargeNumber(number) => write_tagged(parts, LARGE_NUMBER, &number.to_be_bytes()),
            Self::Truth(truth) => write_tagged(parts, TRUTH, &[u8::from(*truth)]),
            Self::Uuid(uuid) => write_tagged(parts, UUID, uuid.as_bytes()),
            Self::List(length) => write_framed(parts, LIST, *length as usize, &[]),
            Self::Some => parts.push(SOME),
            Self::None => parts.push(NONE),
        }
    }
}

/// The parts of a key: see [`Key::parts`].
struct KeyParts<'a>(&'a [u8]);

impl<'a> Iterator for KeyParts<'a> {
    type Item = KeyPart<'a>;

    fn next(&mut self) -> Option<KeyPart<'a>> {
        let (tag, rest) = self.0.split_first()?;
        let length = match *tag {
            TEXT | BYTES => FRAME - 1 + framed_len(rest),
            NUMBER | LARGE_NUMBER | UUID => 16,
            LIST => FRAME - 1,
            TRUTH => 1,
            _ => 0,
        };
        let (part, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(match (*tag, part) {
            (TEXT, [_, _, _, _, text @ ..]) => KeyPart::Text(std::str::from_utf8(text).ok()?),
            (BYTES, [_, _, _, _, bytes @ ..]) => KeyPart::Bytes(bytes),
            (NUMBER, _) => KeyPart::Number(i128::from_be_bytes(part.try_into().ok()?)),
            (LARGE_NUMBER, _) => KeyPart::LargeNumber(u128::from_be_bytes(part.try_into().ok()?)),
            (UUID, _) => KeyPart::Uuid(Uuid::from_bytes(part.try_into().ok()?)),
            (LIST, _) => KeyPart::List(u32::from_be_bytes(part.try_into().ok()?)),
            (TRUTH, [truth]) => KeyPart::Truth(*truth != 0),
            (SOME, _) => KeyPart::Some,
            _ => KeyPart::None,
        })
    }
}

/// The parts of a key as text: see [`Key::plain`].
pub(crate) struct PlainKey<'a>(&'a [u8]);

impl fmt::Display for PlainKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = KeyParts(self.0).peekable();
        while let Some(part) = parts.next() {
            write_plain(f, part)?;
            // What is in a `Some` or a list follows it, as the same part.
            if !matches!(part, KeyPart::Some | KeyPart::List(_)) && parts.peek().is_some() {
                f.write_str("/")?;
            }
        }
        Ok(())
    }
}

fn framed_len(rest: &[u8]) -> usize {
    let length = rest.iter().take(FRAME - 1);
    length.fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// Writes one part. Text is escaped, so that it is one line of a log.
fn write_plain(f: &mut fmt::Formatter<'_>, part: KeyPart<'_>) -> fmt::Result {
    match part {
        KeyPart::Text(text) => write!(f, "{}", text.escape_debug()),
        KeyPart::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        KeyPart::Number(number) => write!(f, "{number}"),
        KeyPart::LargeNumber(number) => write!(f, "{number}"),
        KeyPart::Truth(truth) => write!(f, "{truth}"),
        KeyPart::Uuid(uuid) => write!(f, "{uuid}"),
        KeyPart::List(_) | KeyPart::Some => Ok(()),
        KeyPart::None => f.write_str("none"),
    }
}

const TEXT: u8 = b's';
const BYTES: u8 = b'b';
const NUMBER: u8 = b'i';
/// One that is too large for an `i128`.
const LARGE_NUMBER: u8 = b'I';
const LIST: u8 = b'l';
const TRUTH: u8 = b't';
const UUID: u8 = b'u';
const SOME: u8 = b'+';
const NONE: u8 = b'-';

/// The bytes of a kind and an identifier. It is exact, because many callers wait with a key each.
const TYPICAL: usize = 40;

/// The bytes of a tag and a length.
const FRAME: usize = 5;

const HEX: &[u8; 16] = b"0123456789abcdef";
