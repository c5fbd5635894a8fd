//! `Fingerprint`: what a value says to serde, to compare a value with what its bytes give back.

use std::{fmt, mem};

use serde::ser::{self, Serialize, Serializer};

use crate::error::BoxError;

/// A hash of all that a value says to serde, and whether JSON has a form for it. Two values of a type
/// have one fingerprint if they differ in nothing but the order of the elements of maps and sets.
///
/// It tells apart what JSON does not: `None`, `Some(None)` and `Some(())`. It has the names of fields
/// and variants, so that it also tells whether bytes without names are of the same type.
#[derive(Debug, Default)]
pub(super) struct Fingerprint {
    pub(super) hash: u64,
    /// JSON would change it.
    is_lost_in_json: bool,
    /// Bytes, of which JSON makes numbers.
    octets: usize,
    depth: usize,
    is_in_some: bool,
}

impl Fingerprint {
    /// Of a value. `None` if it cannot be serialised.
    pub(super) fn of(value: &impl Serialize) -> Option<Self> {
        let mut of = Self::default();
        value.serialize(&mut of).ok().map(|()| of)
    }

    /// Compares a value with what its bytes gave.
    ///
    /// # Errors
    /// If they differ.
    pub(super) fn compare<T: Serialize>(value: &T, decoded: &T) -> Result<(), BoxError> {
        match (Self::of(value), Self::of(decoded)) {
            (Some(value), Some(decoded)) if value.hash == decoded.hash => Ok(()),
            _ => Err("it is another value when it is decoded".into()),
        }
    }

    /// Whether JSON keeps the value, at no more than four times the size of its bytes.
    pub(super) fn is_json(&self) -> bool {
        !self.is_lost_in_json && self.octets <= MOST_OCTETS
    }

    fn word(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }

    fn leaf(&mut self, kind: u8, bytes: &[u8]) -> Result<(), fmt::Error> {
        self.is_in_some = false;
        self.word(u64::from(kind) << 56 | bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.word(u64::from(*byte)));
        Ok(())
    }

    fn number(&mut self, number: i128) -> Result<(), fmt::Error> {
        self.leaf(b'i', &number.to_le_bytes())
    }

    fn float(&mut self, number: f64) -> Result<(), fmt::Error> {
        self.is_lost_in_json |= !number.is_finite();
        self.leaf(b'f', &number.to_bits().to_le_bytes())
    }

    /// What JSON writes as `null`, as it does with `None`.
    fn null(&mut self, kind: u8) -> Result<(), fmt::Error> {
        self.is_lost_in_json |= self.is_in_some;
        self.leaf(kind, b"")
    }

    fn group(&mut self, kind: u8, name: &str) -> Result<Group<'_>, fmt::Error> {
        self.leaf(kind, name.as_bytes())?;
        self.depth += 1;
        self.is_lost_in_json |= self.depth > DEEPEST;
        Ok(Group { hash: mem::take(&mut self.hash), sum: 0, of: self })
    }
}

/// The elements of a value, in any order.
pub(super) struct Group<'a> {
    of: &'a mut Fingerprint,
    hash: u64,
    sum: u64,
}

impl Group<'_> {
    fn field(&mut self, name: &str, it: &(impl Serialize + ?Sized)) -> Result<(), fmt::Error> {
        self.of.leaf(b'n', name.as_bytes())?;
        it.serialize(&mut *self.of)?;
        let hash = mem::take(&mut self.of.hash);
        self.sum = self.sum.wrapping_add((hash ^ hash >> 32).wrapping_mul(FACTOR));
        Ok(())
    }

    fn close(self) -> Result<(), fmt::Error> {
        self.of.hash = self.hash;
        self.of.word(self.sum);
        self.of.depth -= 1;
        Ok(())
    }
}

/// The methods of a trait of serde: all of them give a value to `|of|`.
macro_rules! says {
    ($($method:ident $(<$T:ident>)? ($($it:ident: $It:ty),*) -> $Ok:ty, |$of:ident| $said:expr;)*) => {$(
        fn $method$(<$T: Serialize + ?Sized>)?(self, $($it: $It),*) -> Result<$Ok, fmt::Error> {
            let $of = self;
            $said
        }
    )*};
}

type SerdeName = &'static str;

impl<'a> Serializer for &'a mut Fingerprint {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Group<'a>;
    type SerializeTuple = Group<'a>;
    type SerializeTupleStruct = Group<'a>;
    type SerializeTupleVariant = Group<'a>;
    type SerializeMap = Group<'a>;
    type SerializeStruct = Group<'a>;
    type SerializeStructVariant = Group<'a>;

    says! {
        serialize_bool(it: bool) -> (), |of| of.leaf(b't', &[it.into()]);
        serialize_i8(it: i8) -> (), |of| of.number(it.into());
        serialize_i16(it: i16) -> (), |of| of.number(it.into());
        serialize_i32(it: i32) -> (), |of| of.number(it.into());
        serialize_i64(it: i64) -> (), |of| of.number(it.into());
        serialize_i128(it: i128) -> (), |of| of.number(it);
        serialize_u8(it: u8) -> (), |of| { of.octets += 1; of.number(it.into()) };
        serialize_u16(it: u16) -> (), |of| of.number(it.into());
        serialize_u32(it: u32) -> (), |of| of.number(it.into());
        serialize_u64(it: u64) -> (), |of| of.number(it.into());
        serialize_u128(it: u128) -> (), |of| of.number(it as i128);
        serialize_f32(it: f32) -> (), |of| of.float(it.into());
        serialize_f64(it: f64) -> (), |of| of.float(it);
        serialize_char(it: char) -> (), |of| of.number(u32::from(it).into());
        serialize_str(it: &str) -> (), |of| of.leaf(b's', it.as_bytes());
        serialize_bytes(it: &[u8]) -> (), |of| { of.octets += it.len(); of.leaf(b'b', it) };
        serialize_none() -> (), |of| of.null(b'-');
        serialize_unit() -> (), |of| of.null(b'u');
        serialize_unit_struct(_of: SerdeName) -> (), |of| of.null(b'u');
        serialize_unit_variant(_of: SerdeName, _nth: u32, name: SerdeName) -> (), |of| of.leaf(b'v', name.as_bytes());
        serialize_some<T>(it: &T) -> (), |of| { of.word(b'+'.into()); of.is_in_some = true; it.serialize(of) };
        serialize_newtype_struct<T>(_of: SerdeName, it: &T) -> (), |of| it.serialize(of);
        serialize_newtype_variant<T>(_of: SerdeName, _nth: u32, name: SerdeName, it: &T) -> (),
            |of| of.group(b'v', name).and_then(|mut group| { group.field("", it)?; group.close() });
        serialize_seq(_len: Option<usize>) -> Group<'a>, |of| of.group(b'[', "");
        serialize_tuple(_len: usize) -> Group<'a>, |of| of.group(b'(', "");
        serialize_tuple_struct(_of: SerdeName, _len: usize) -> Group<'a>, |of| of.group(b'(', "");
        serialize_tuple_variant(_of: SerdeName, _nth: u32, name: SerdeName, _len: usize) -> Group<'a>, |of| of.group(b'v', name);
        serialize_map(_len: Option<usize>) -> Group<'a>, |of| of.group(b'{', "");
        serialize_struct(_of: SerdeName, _len: usize) -> Group<'a>, |of| of.group(b'{', "");
        serialize_struct_variant(_of: SerdeName, _nth: u32, name: SerdeName, _len: usize) -> Group<'a>, |of| of.group(b'v', name);
    }
}

macro_rules! groups {
    ($($Trait:ident { $($method:ident($($name:ident)?), |$of:ident, $it:ident| $said:expr;)* })*) => {$(
        impl ser::$Trait for Group<'_> {
            type Ok = ();
            type Error = fmt::Error;

            $(fn $method<T: Serialize + ?Sized>(&mut self, $($name: SerdeName,)? $it: &T) -> Result<(), fmt::Error> {
                let $of = self;
                $said
            })*

            fn end(self) -> Result<(), fmt::Error> {
                self.close()
            }
        }
    )*};
}

groups! {
    SerializeSeq { serialize_element(), |of, it| of.field("", it); }
    SerializeTuple { serialize_element(), |of, it| of.field("", it); }
    SerializeTupleStruct { serialize_field(), |of, it| of.field("", it); }
    SerializeTupleVariant { serialize_field(), |of, it| of.field("", it); }
    SerializeStruct { serialize_field(name), |of, it| of.field(name, it); }
    SerializeStructVariant { serialize_field(name), |of, it| of.field(name, it); }
    SerializeMap {
        serialize_key(), |of, it| it.serialize(&mut *of.of);
        serialize_value(), |of, it| of.field("", it);
    }
}

/// More bytes than these are no text that is read by people.
const MOST_OCTETS: usize = 64;

/// `serde_json` reads 127 levels, of which a variant may take two.
const DEEPEST: usize = 60;

const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
