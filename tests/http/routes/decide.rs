//! `Decide`: what routes match where a layer is, deep in axum's routers.

use std::sync::{Arc, OnceLock};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tower_throttle::{RequestHead, RequestMatcher as _, Route};

/// Decides one request, by `from_fn_with_state(decide, ask)`.
#[derive(Clone)]
pub(crate) struct Decide {
    routes: Arc<[Route]>,
    seen: Arc<OnceLock<Seen>>,
}

pub(crate) struct Seen {
    pub(crate) matches: Vec<bool>,
    pub(crate) own_path: String,
}

impl Decide {
    pub(crate) fn of(routes: impl IntoIterator<Item = Route>) -> Self {
        Self {
            routes: routes.into_iter().collect(),
            seen: Arc::default(),
        }
    }

    /// What the layer saw of the request, which has come to it.
    pub(crate) fn seen(&self) -> &Seen {
        self.seen.get().expect("the layer is passed")
    }
}

pub(crate) async fn ask(State(decide): State<Decide>, request: Request, next: Next) -> Response {
    let head = RequestHead::new(&request);
    let matches = decide.routes.iter().map(|route| route.matches(&head));
    let seen = Seen {
        matches: matches.collect(),
        own_path: request.uri().path().to_owned(),
    };
    assert!(decide.seen.set(seen).is_ok(), "there is one layer");
    next.run(request).await
}
