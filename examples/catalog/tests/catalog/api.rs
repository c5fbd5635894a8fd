//! Every endpoint: the two ways agree, the two protocols agree, and protection shows.

use axum::http::StatusCode;
use bellwether_testkit::servers::RedisServer;
use serde_json::{Value, json};

use crate::messages::{
    CategoriesReply, CategoriesRequest, Category, ProductReply, ProductRequest, SearchReply,
    SearchRequest,
};
use crate::server::Catalog;

fn product_json(product: &ProductReply) -> Value {
    let ProductReply { sku, name, price_cents, stock, categories } = product;
    json!({ "sku": sku, "name": name, "price_cents": price_cents, "stock": stock, "categories": categories })
}

fn category_json(category: &Category) -> Value {
    let children: Vec<_> = category.children.iter().map(category_json).collect();
    json!({ "id": category.id, "name": category.name, "children": children })
}

#[tokio::test]
async fn a_product_is_the_same_both_ways_and_over_both_protocols() {
    let catalog = Catalog::start(&[]);
    let protected = catalog.get("/api/product/4242").await;
    assert_eq!(protected.json["name"], "Ash Whistle no. 4242");
    assert_eq!(protected.cache_status(), "bellwether; fwd=miss; stored");
    assert!(catalog.get("/api/product/4242").await.cache_status().contains("; hit"));

    let unprotected = catalog.get("/api/product/4242?protect=off").await;
    assert_eq!((unprotected.cache_status(), &unprotected.json), ("", &protected.json));

    let plain = catalog.get("/api/product/4242?protect=plain").await;
    assert_eq!((plain.cache_status(), &plain.json), ("", &protected.json));

    let ask = ProductRequest { sku: 4242 };
    let reply = catalog.call::<_, ProductReply>("/catalog.Catalog/Product", ask.clone(), &[]);
    let reply = reply.await.unwrap();
    assert!(reply.metadata().get("cache-status").unwrap().to_str().unwrap().contains("; hit"));
    assert_eq!(product_json(reply.get_ref()), protected.json);
    let off = [("protect", "off")];
    let reply = catalog.call::<_, ProductReply>("/catalog.Catalog/Product", ask, &off).await;
    let reply = reply.unwrap();
    assert!(reply.metadata().get("cache-status").is_none());
    assert_eq!(product_json(reply.get_ref()), protected.json);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let catalog = Catalog::start(&[]);
    let ways = [("", "fwd=miss"), ("", "; hit"), ("?protect=off", ""), ("?protect=plain", "")];
    for (way, status) in ways {
        let answer = catalog.get(&format!("/api/product/100001{way}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert!(answer.cache_status().contains(status), "{way}: {}", answer.cache_status());
    }
    let ask = ProductRequest { sku: 100_001 };
    let reply = catalog.call::<_, ProductReply>("/catalog.Catalog/Product", ask.clone(), &[]).await;
    assert_eq!(reply.unwrap_err().code(), tonic::Code::NotFound);
    let reply = catalog.call::<_, ProductReply>("/catalog.Catalog/Nothing", ask, &[]).await;
    assert_eq!(reply.unwrap_err().code(), tonic::Code::Unimplemented);
}

#[tokio::test]
async fn a_page_of_a_search_is_the_same_both_ways_and_over_both_protocols() {
    let catalog = Catalog::start(&[]);
    let path = "/api/search?q=LAMP&category=3&page=2";
    let protected = catalog.get(path).await;
    let products = protected.json["products"].as_array().unwrap();
    assert_eq!((products.len(), &protected.json["page"]), (12, &json!(2)));
    for product in products {
        assert!(product["name"].as_str().unwrap().contains("Lamp"), "{product}");
        assert_eq!(product["categories"][0], "Kitchen");
    }
    let first = catalog.get("/api/search?q=LAMP&category=3").await;
    assert_ne!(first.json["products"], protected.json["products"]);
    for way in ["off", "plain", "plain"] {
        let answer = catalog.get(&format!("{path}&protect={way}")).await;
        assert_eq!(answer.json, protected.json, "{way}");
    }

    let ask = SearchRequest { q: "LAMP".to_owned(), category: Some(3), page: 2 };
    let reply = catalog.call::<_, SearchReply>("/catalog.Catalog/Search", ask, &[]).await.unwrap();
    let replied: Vec<_> = reply.get_ref().products.iter().map(product_json).collect();
    assert_eq!(json!({ "page": reply.get_ref().page, "products": replied }), protected.json);
}

#[tokio::test]
async fn the_categories_are_a_tree_of_three_levels_over_both_protocols() {
    let catalog = Catalog::start(&[]);
    let protected = catalog.get("/api/categories").await;
    let departments = protected.json.as_array().unwrap();
    assert_eq!(departments.len(), 10);
    for department in departments {
        let aisles = department["children"].as_array().unwrap();
        assert_eq!(aisles.len(), 10);
        assert!(aisles.iter().all(|aisle| aisle["children"].as_array().unwrap().len() == 10));
    }
    for way in ["off", "plain"] {
        let answer = catalog.get(&format!("/api/categories?protect={way}")).await;
        assert_eq!(answer.json, protected.json, "{way}");
    }
    let reply = catalog.call::<_, CategoriesReply>(
        "/catalog.Catalog/Categories",
        CategoriesRequest {},
        &[],
    );
    let reply = reply.await.unwrap();
    let replied: Vec<_> = reply.get_ref().categories.iter().map(category_json).collect();
    assert_eq!(Value::from(replied), protected.json);
}

/// Programs over one Redis are a fleet: what one changes, the others know.
#[tokio::test]
async fn a_new_price_is_answered_by_every_process_of_a_fleet_at_once() {
    let redis = RedisServer::start();
    let fleet = [(); 2].map(|()| Catalog::start(&["--store", &redis.url()]));
    let [changed, other] = &fleet;
    let before = other.get("/api/product/77001").await.json["price_cents"].as_i64().unwrap();
    for price in [before + 1, before] {
        let body = json!({ "price_cents": price }).to_string();
        assert_eq!(changed.post("/api/product/77001", &body).await.status, StatusCode::NO_CONTENT);
        assert_eq!(changed.get("/api/product/77001").await.json["price_cents"], price);
        // A copy near by ends with the next message of the server.
        let until = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
        while other.get("/api/product/77001").await.json["price_cents"] != price {
            assert!(
                tokio::time::Instant::now() < until,
                "the other process still answers the old one"
            );
        }
    }
    let refused = changed.post("/api/product/77001", r#"{"price_cents": -1}"#).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let nothing = changed.post("/api/product/100001", r#"{"price_cents": 1}"#).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_burst_is_a_thousand_queries_or_one() {
    let redis = RedisServer::start();
    for store in ["memory", &redis.url()] {
        let catalog = Catalog::start(&["--store", store]);
        for _ in 0..2 {
            let burst = catalog.post("/demo/burst", "").await.json;
            assert_eq!(burst["unprotected"]["queries"], 1_000, "{store}");
            assert!(burst["plain"]["queries"].as_u64().unwrap() > 1, "{store}");
            assert_eq!(burst["protected"]["queries"], 1, "{store}");
            assert_eq!(burst["unprotected"]["errors"], 0, "{store}");
            assert_eq!(burst["plain"]["errors"], 0, "{store}");
            assert_eq!(burst["protected"]["errors"], 0, "{store}");
        }
        let after = catalog.post("/demo/invalidate", "").await.json;
        assert_eq!(
            (&after["queries"], &after["failed"]),
            (&json!([1, 0]), &json!(false)),
            "{store}"
        );
    }
}
