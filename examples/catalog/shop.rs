//! The catalog as it is asked, in both ways, with what protects it.
//!
//! The cache keeps parts of answers: products one by one, pages of a search as lists of SKUs, and
//! the tree of categories. So a page of a search loads only the products that no other page has
//! loaded, by one query, and a changed price is changed everywhere.

use std::time::{Duration, Instant};

use bellwether::{Cache, CacheBuilder, CacheStatus, Cacheability, ConfigError};
use serde::Serialize;

use crate::Fault;
use crate::catalog::Product;
use crate::meter::Meter;
use crate::source::{Category, QueryError, Search, Source};
use crate::switch::SwitchedStore;
use crate::traffic;
use crate::way::Way;

/// Short, so that the page shows answers that run out.
const TTL: Duration = Duration::from_secs(10);
const CATEGORIES_TTL: Duration = Duration::from_secs(30);
const NOT_FOUND_TTL: Duration = Duration::from_secs(5);
/// How long an answer is served stale while it is loaded again.
const REVALIDATED_FOR: Duration = Duration::from_secs(60);
/// How long an answer is served stale if it cannot be loaded.
const RESCUED_FOR: Duration = Duration::from_secs(60 * 60);
/// The first and the longest cooldown of a failing key: short, so that a page recovers soon while
/// it is watched.
const FAILURES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// The catalog, protected and not.
pub(crate) struct Shop {
    pub(crate) source: Source,
    pub(crate) store: SwitchedStore,
    pub(crate) unprotected: Meter,
    pub(crate) protected: Meter,
    products: Cache<Option<Product>>,
    pages: Cache<Vec<u32>>,
    categories: Cache<Vec<Category>>,
}

/// An answer, and how it came about.
pub(crate) struct Found<T> {
    pub(crate) value: T,
    /// In the words of RFC 9211; nothing if no cache was asked.
    pub(crate) status: Option<CacheStatus>,
}

/// A page of a search.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    pub(crate) page: u32,
    pub(crate) products: Vec<Product>,
}

impl Shop {
    pub(crate) fn open(source: Source, store: SwitchedStore) -> Result<Self, ConfigError> {
        let products = cache("product", &store, TTL)?
            .not_found_ttl(NOT_FOUND_TTL)
            .classify(product_verdict)
            .build();
        let pages = cache("search", &store, TTL)?.build();
        let categories = cache("categories", &store, CATEGORIES_TTL)?.build();
        let [unprotected, protected] = [(); 2].map(|()| Meter::default());
        Ok(Self { source, store, unprotected, protected, products, pages, categories })
    }

    /// Asks for all that the traffic asks for, so that nothing of it is cold.
    pub(crate) async fn warm_up(&self) {
        for sku in traffic::products() {
            let _ = self.product(Way::Protected, sku).await;
        }
        for search in traffic::searches() {
            let _ = self.search(Way::Protected, search).await;
        }
        let _ = self.categories(Way::Protected).await;
    }

    pub(crate) fn meter(&self, way: Way) -> &Meter {
        match way {
            Way::Unprotected => &self.unprotected,
            Way::Protected => &self.protected,
        }
    }

    /// One product, if there is such a one.
    pub(crate) async fn product(
        &self,
        way: Way,
        sku: u32,
    ) -> Result<Found<Option<Product>>, Fault> {
        self.metered(way, async {
            match way {
                Way::Unprotected => {
                    let mut found = self.source.unprotected.products(vec![sku]).await?;
                    Ok(Found { value: found.remove(&sku), status: None })
                }
                Way::Protected => {
                    let database = self.source.protected.clone();
                    let load = async move || {
                        Ok::<_, QueryError>(database.products(vec![sku]).await?.remove(&sku))
                    };
                    self.ask(self.products.get_or_load(sku, load).with_status()).await
                }
            }
        })
        .await
    }

    /// A page of a search: the SKUs by one query, and their products by another.
    pub(crate) async fn search(&self, way: Way, search: Search) -> Result<Found<Page>, Fault> {
        self.metered(way, async {
            let page = search.page;
            let (products, status) = match way {
                Way::Unprotected => {
                    let skus = self.source.unprotected.search(&search).await?;
                    let mut found = self.source.unprotected.products(skus.clone()).await?;
                    (skus.iter().filter_map(|sku| found.remove(sku)).collect(), None)
                }
                Way::Protected => {
                    let database = self.source.protected.clone();
                    let key = (search.words.clone(), search.category.unwrap_or(0), page);
                    let load = async move || database.search(&search).await;
                    let skus = self.ask(self.pages.get_or_load(key, load).with_status()).await?;
                    (self.products(skus.value).await?, skus.status)
                }
            };
            Ok(Found { value: Page { page, products }, status })
        })
        .await
    }

    /// All categories.
    pub(crate) async fn categories(&self, way: Way) -> Result<Found<Vec<Category>>, Fault> {
        self.metered(way, async {
            match way {
                Way::Unprotected => {
                    let value = self.source.unprotected.categories().await?;
                    Ok(Found { value, status: None })
                }
                Way::Protected => {
                    let database = self.source.protected.clone();
                    let load = async move || database.categories().await;
                    self.ask(self.categories.get_or_load((), load).with_status()).await
                }
            }
        })
        .await
    }

    /// Changes a price, and invalidates the product: a request that starts after this has returned
    /// gets the new price. Says whether there is such a product.
    pub(crate) async fn set_price(&self, sku: u32, price_cents: i64) -> Result<bool, Fault> {
        let is_there = self.source.protected.set_price(sku, price_cents).await?;
        self.invalidate(sku).await?;
        Ok(is_there)
    }

    /// Invalidates a product.
    pub(crate) async fn invalidate(&self, sku: u32) -> Result<(), Fault> {
        self.products.invalidate(sku).await?;
        Ok(())
    }

    /// Products through the cache, in the order of their SKUs. One query loads all that miss.
    async fn products(&self, skus: Vec<u32>) -> Result<Vec<Product>, Fault> {
        let mut products = Vec::with_capacity(skus.len());
        let database = self.source.protected.clone();
        let load = async move |skus| database.products(skus).await;
        for (product, status) in self.products.get_or_load_many(skus, load).with_status().await {
            self.protected.note_status(&status);
            products.extend(product?);
        }
        Ok(products)
    }

    async fn ask<T, E: Into<Fault>>(
        &self,
        answer: impl Future<Output = (Result<T, E>, CacheStatus)>,
    ) -> Result<Found<T>, Fault> {
        let (value, status) = answer.await;
        self.protected.note_status(&status);
        Ok(Found { value: value.map_err(Into::into)?, status: Some(status) })
    }

    async fn metered<T>(
        &self,
        way: Way,
        answer: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        let answer = answer.await;
        self.meter(way).note(began.elapsed(), answer.is_ok());
        answer
    }
}

/// How everything is protected here.
fn cache<V>(
    name: &str,
    store: &SwitchedStore,
    ttl: Duration,
) -> Result<CacheBuilder<V>, ConfigError> {
    let [first, longest] = FAILURES;
    Cache::builder(name, store.clone())
        .ttl(ttl)
        .stale_while_revalidate(REVALIDATED_FOR)
        .stale_if_error(RESCUED_FOR)
        .failure_windows(first, longest)?
        .refresh_early(1.0)
}

fn product_verdict(product: &Option<Product>) -> Cacheability {
    product.as_ref().map_or(Cacheability::NotFound, |_| Cacheability::Keep)
}
