//! The page: one file that loads nothing, with a policy that lets nothing else run in it.

use axum::response::{IntoResponse, Response};
use http::HeaderName;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};

macro_rules! style {
    () => {
        include_str!("page.css")
    };
}

macro_rules! script {
    () => {
        // In the order in which they use each other.
        concat!(
            include_str!("script/base.js"),
            include_str!("script/charts.js"),
            include_str!("script/policies.js"),
            include_str!("script/store.js"),
            include_str!("script/denied.js"),
            include_str!("script/subject.js"),
            include_str!("script/blocks.js"),
            include_str!("script/poll.js"),
        )
    };
}

const PAGE: &str = concat!(
    include_str!("head.html"),
    "<style>",
    style!(),
    "</style>\n",
    include_str!("body.html"),
    "<script>",
    script!(),
    "</script>\n</body>\n</html>\n",
);

/// The page may run its own script, known by its hash, and make requests to its origin. A script
/// may not even put text where it would be parsed as markup.
const POLICY: &str = concat!(
    "default-src 'none'; script-src '",
    "sha256-U3uGdBmXbXXNHYP4enxDzc8XBs5GBsgiOZpzPorGPik=",
    "'; style-src '",
    "sha256-2ufKi0RZS33tamwDfN7SlDkqM0/GnBC/AFh9AiN/o2I=",
    "'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
);

const HEADERS: [(HeaderName, &str); 3] = [
    (CONTENT_TYPE, "text/html; charset=utf-8"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "no-referrer"),
];

pub(super) async fn page() -> Response {
    (HEADERS, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_policy_names_the_style_and_the_script_of_the_page() {
        for text in [style!(), script!()] {
            let hash = BASE64_STANDARD.encode(Sha256::digest(text));
            assert!(
                POLICY.contains(&format!("'sha256-{hash}'")),
                "the policy has to say 'sha256-{hash}' of {:?}...",
                &text[..40]
            );
        }
    }

    #[test]
    fn the_page_loads_nothing_and_has_no_markup_that_the_policy_forbids() {
        for forbidden in [
            "src=",
            "@import",
            "url(",
            " style=",
            " onclick=",
            "innerHTML",
        ] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
    }
}
