//! Functions in any place, with arguments that only the attribute uses.
#![deny(unused)]

use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;

use bellwether::{Cache, read_through};

use super::catalog::{Catalog, Item, Missing};

type Items = Cache<String, Item>;

#[read_through(cache = items, key = name, skip(items))]
async fn constant(items: &Items, name: &str) -> Result<Item, Missing> {
    Ok(Item::named("constant"))
}

/// It is generic, and so are its functions.
#[derive(Clone)]
struct Shelf<T> {
    kind: PhantomData<T>,
}

impl<T: Display + Default + Clone + Send + Sync + 'static> Shelf<T> {
    fn name(count: u64) -> String {
        format!("{} {count}", T::default())
    }

    #[read_through(cache = items, key = name, skip(items, count))]
    async fn named(items: &Items, name: &str, mut count: u64) -> Result<Item, Missing> {
        count += 1;
        if name.is_empty() {
            return Err(Missing);
        }
        Ok(Item::named(Self::name(count)))
    }

    #[read_through(cache = items, key = name, skip(items, given))]
    async fn given(items: &Items, name: String, given: T) -> Result<Item, Missing> {
        let given: T = given;
        Ok(Item::named(given.to_string()))
    }

    #[read_through(cache = items, key = name, skip(self, items))]
    async fn constant(&self, items: &Items, name: &str) -> Result<Item, Missing> {
        Ok(Item::named("constant"))
    }

    #[read_through(cache = items, key = name.to_string(), skip(items))]
    async fn shown(
        items: &Items,
        name: impl Display + Clone + Send + Sync + 'static,
    ) -> Result<Item, Missing> {
        Ok(Item::named(name.to_string()))
    }
}

#[tokio::test]
async fn an_argument_may_serve_the_attribute_only() {
    let catalog = Catalog::new();
    let shelf = Shelf::<u8> { kind: PhantomData };
    let constant = Item::named("constant");
    assert_eq!(constant, constant_of(&catalog).await);
    assert_eq!(shelf.constant(&catalog.names, "method").await.unwrap(), constant);
}

async fn constant_of(catalog: &Catalog) -> Item {
    constant(&catalog.names, "function").await.unwrap()
}

#[tokio::test]
async fn a_function_of_a_generic_type_names_what_surrounds_it() {
    let items = Catalog::new().names;
    assert_eq!(Shelf::<u8>::named(&items, "a", 1).await.unwrap(), Item::named("0 2"));
    assert!(Shelf::<u8>::named(&items, "", 1).await.is_err());
    let given = Shelf::<String>::given(&items, "b".to_owned(), "this".to_owned()).await;
    assert_eq!(given.unwrap(), Item::named("this"));
    assert_eq!(Shelf::<u8>::shown(&items, 'c').await.unwrap(), Item::named("c"));
}

/// A guard among the arguments, whose name tells that the body does not use it.
#[read_through(cache = items, key = name, skip(items, _guard))]
async fn guarded(items: &Items, name: &str, _guard: Arc<()>) -> Result<Item, Missing> {
    tokio::task::yield_now().await;
    Ok(Item::named(name))
}

#[tokio::test]
async fn an_argument_is_held_until_the_body_ends() {
    let items = Catalog::new().names;
    let guard = Arc::new(());
    let call = guarded(&items, "a", Arc::clone(&guard));
    assert_eq!(Arc::strong_count(&guard), 2);
    call.await.unwrap();
}
