//! The messages of `catalog.proto`, written by hand: no compiler of it is needed to build this.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProductRequest {
    #[prost(uint32, tag = "1")]
    pub(crate) sku: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProductReply {
    #[prost(uint32, tag = "1")]
    pub(crate) sku: u32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(int64, tag = "3")]
    pub(crate) price_cents: i64,
    #[prost(int64, tag = "4")]
    pub(crate) stock: i64,
    #[prost(string, repeated, tag = "5")]
    pub(crate) categories: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SearchRequest {
    #[prost(string, tag = "1")]
    pub(crate) q: String,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) category: Option<u32>,
    #[prost(uint32, tag = "3")]
    pub(crate) page: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SearchReply {
    #[prost(uint32, tag = "1")]
    pub(crate) page: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) products: Vec<ProductReply>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CategoriesRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CategoriesReply {
    #[prost(message, repeated, tag = "1")]
    pub(crate) categories: Vec<Category>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Category {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) children: Vec<Self>,
}
