//! The front page: one document, put together of its parts when it is first asked for.

use std::sync::LazyLock;

static PAGE: LazyLock<String> = LazyLock::new(|| {
    include_str!("page/page.html")
        .replace("/* style.css */", include_str!("page/style.css"))
        .replace("/* page.js */", include_str!("page/page.js"))
});

/// Markup with style and script in it: nothing else is asked for.
pub(crate) fn html() -> &'static str {
    &PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_document_that_needs_no_other() {
        for foreign in
            ["src=", "@import", "<link rel=\"stylesheet", "/* style.css */", "/* page.js */"]
        {
            assert!(!html().contains(foreign), "{foreign}");
        }
    }
}
