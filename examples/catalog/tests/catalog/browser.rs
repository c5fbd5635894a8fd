//! A headless Chromium.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::Method;
use bellwether_testkit::processes::Program;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::server::ask;

/// How long the page may take to show an expected state.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two readings of the page, which does not announce its changes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const MISSING: &str = "is not installed; try: apt-get install chromium chromium-driver";

/// A window on one page. The browser and what it has written are gone on drop.
pub(crate) struct Browser {
    client: Client,
    session: String,
    _driver: Program,
    _profile: TempDir,
}

impl Browser {
    pub(crate) async fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let driver = Program::start(installed("chromedriver"), &["--port=0"]);
        let address = driver.said(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            Some(format!("http://127.0.0.1:{}", port.trim_end_matches('.')))
        });
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities(profile.path()));
        let client = builder.connect(&address).await.expect("the browser starts");
        let id = client.session_id().await.expect("the driver answers").expect("a session");
        let session = format!("{address}/session/{id}");
        client.goto(url).await.expect("the page opens");
        Self { client, session, _driver: driver, _profile: profile }
    }

    pub(crate) async fn click(&self, id: &str) {
        let element = self.client.find(Locator::Id(id)).await.expect(id);
        element.click().await.expect(id);
    }

    /// The value of a JavaScript expression in the page.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        self.client.execute(&script, vec![]).await.expect(expression)
    }

    /// A number that the page shows. A dash counts as none.
    pub(crate) async fn number(&self, id: &str) -> f64 {
        let text = format!("document.getElementById('{id}').textContent");
        let text = self.value(&text).await.as_str().expect(id).replace(',', "");
        text.parse().unwrap_or(f64::NAN)
    }

    /// Waits until an expression of JavaScript is true of the page.
    pub(crate) async fn until(&self, expression: &str) {
        let begun = Instant::now();
        while self.value(&format!("Boolean({expression})")).await != json!(true) {
            assert!(begun.elapsed() < PATIENCE, "never was it true that {expression}");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Shows the page at a width, as tall as it is, in a scheme of colours.
    pub(crate) async fn resize(&self, width: u32, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
        self.fit(width, 900).await;
        let height = self.value("document.documentElement.scrollHeight").await;
        self.fit(width, height.as_u64().expect("a height")).await;
        let moving = "document.getAnimations().some(one => one instanceof CSSAnimation)";
        self.until(&format!("!{moving}")).await;
    }

    /// Shows the page in a window of this size.
    pub(crate) async fn fit(&self, width: u32, height: u64) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// A screenshot, as PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        self.client.screenshot().await.expect("a picture")
    }

    /// A screenshot of one element, as PNG.
    pub(crate) async fn picture_of(&self, id: &str) -> Vec<u8> {
        let element = self.client.find(Locator::Id(id)).await.expect(id);
        element.screenshot().await.expect("a picture")
    }

    /// The console messages of the page.
    pub(crate) async fn console(&self) -> Vec<String> {
        let answer = self.post("se/log", json!({ "type": "browser" })).await;
        answer.as_array().expect("a list").iter().map(Value::to_string).collect()
    }

    /// Ends it, so that the browser itself cleans up.
    pub(crate) async fn close(self) {
        self.client.clone().close().await.expect("the browser ends");
    }

    async fn devtools(&self, command: &str, params: Value) {
        self.post("goog/cdp/execute", json!({ "cmd": command, "params": params })).await;
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("{}/{path}", self.session);
        let answer = ask(Method::POST, &url, &body.to_string()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.json);
        answer.json["value"].clone()
    }
}

fn capabilities(profile: &Path) -> fantoccini::wd::Capabilities {
    let profile = format!("--user-data-dir={}", profile.display());
    let capabilities = json!({
        "browserName": "chrome",
        "goog:loggingPrefs": { "browser": "ALL" },
        "goog:chromeOptions": {
            "binary": installed("chromium"),
            "args": [
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--hide-scrollbars", profile,
            ],
        },
    });
    capabilities.as_object().expect("an object").clone()
}

fn installed(program: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(program));
    found.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("{program} {MISSING}"))
}
