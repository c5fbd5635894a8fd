//! `debug_fields`: `Debug` for types that hold what has none, such as functions, or what no log may have.

/// Writes `Debug` of a type, with some of its fields only. Each is a name and an expression:
///
/// ```
/// struct Pool<C> {
///     connections: Vec<C>,
///     connect: fn() -> C,
/// }
///
/// bellwether::debug_fields! { Pool<C> where C: Debug => |it| connections = it.connections }
///
/// let pool = Pool { connections: vec![7], connect: || 8 };
/// assert_eq!(format!("{pool:?}"), "Pool { connections: [7], .. }");
/// # assert_eq!((pool.connect)(), 8);
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! debug_fields {
    (
        $Type:ident $(<$($parameter:ident),+>)? $(where $($shown:ident: Debug),+)?
        $(=> |$it:ident| $($name:ident = $value:expr),+)?
    ) => {
        impl $(<$($parameter),+>)? ::std::fmt::Debug for $Type $(<$($parameter),+>)?
        $(where $($shown: ::std::fmt::Debug),+)?
        {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut fields = f.debug_struct(stringify!($Type));
                $(
                    let $it = self;
                    $( fields.field(stringify!($name), &$value); )+
                )?
                fields.finish_non_exhaustive()
            }
        }
    };
}
