//! A target that axum serves by a route does not pass by a pattern which is the text of that route,
//! however it is spelt: routers and services are nested in one another at random and asked for
//! random targets, and axum itself says what is served.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use futures_util::FutureExt as _;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _};

use super::decide::{Decide, ask};
use super::*;

/// A router with one route, or with a fallback alone, nested in others.
#[derive(Clone, Debug)]
struct App {
    /// The outermost first.
    nested: Vec<Nested>,
    served_by: ServedBy,
    layer: Place,
}

#[derive(Clone, Debug)]
struct Nested {
    at: String,
    is_service: bool,
}

#[derive(Clone, Debug)]
enum ServedBy {
    Route(String),
    Fallback,
}

/// Where the layer is: so many routers deep, and there in the router (`Router::layer`) or around
/// all of it.
#[derive(Clone, Copy, Debug)]
struct Place {
    depth: usize,
    is_around: bool,
}

type AnyService = BoxCloneSyncService<Request, Response, Infallible>;

impl App {
    fn router(&self, decide: &Decide) -> Router {
        let mut router = match &self.served_by {
            ServedBy::Route(path) => Router::new().route(path, get(async || "served")),
            ServedBy::Fallback => Router::new().fallback(async || "served"),
        };
        let layer = || from_fn_with_state(decide.clone(), ask);
        for depth in (1..=self.nested.len()).rev() {
            let nested = &self.nested[depth - 1];
            if self.has_layer(depth, false) {
                router = router.layer(layer());
            }
            router = if !nested.is_service {
                Router::new().nest(&nested.at, router)
            } else if self.has_layer(depth, true) {
                let service = AnyService::new(layer().layer(router));
                Router::new().nest_service(&nested.at, service)
            } else {
                Router::new().nest_service(&nested.at, router)
            };
        }
        match self.layer.depth {
            0 => router.layer(layer()),
            _ => router,
        }
    }

    fn has_layer(&self, depth: usize, is_around: bool) -> bool {
        (self.layer.depth, self.layer.is_around) == (depth, is_around)
    }

    /// Who has decided the target, if axum serves it.
    fn serve(&self, patterns: &[String], target: &str) -> Option<Decide> {
        let decide = Decide::of(patterns.iter().map(Route::get));
        let request = Request::get(target).body(Body::empty()).unwrap();
        let response = self.router(&decide).oneshot(request).now_or_never();
        let is_served = response.unwrap().unwrap().status() == 200;
        is_served.then_some(decide)
    }

    /// The texts of what serves: the whole, and what is left of it where the layer is.
    fn texts(&self, target: &str) -> Option<[String; 2]> {
        let text = |nested: &[Nested], path: &str| {
            nested
                .iter()
                .rfold(path.to_owned(), |path, nested| match &*path {
                    "/" => nested.at.clone(),
                    path => nested.at.trim_end_matches('/').to_owned() + path,
                })
        };
        let (outside, inside) = self.nested.split_at(self.layer.depth);
        match &self.served_by {
            ServedBy::Route(path) => Some([text(&self.nested, path), text(inside, path)]),
            // It has no text: the path that it is shown stands for one.
            ServedBy::Fallback => {
                let own = self.serve(&[], target)?.seen().own_path.clone();
                Some([text(outside, &own), own])
            }
        }
    }

    /// A target that resembles the whole text of the route: `spelt` says how each segment is written.
    fn target(&self, spelt: &[u8]) -> String {
        let route = match &self.served_by {
            ServedBy::Route(path) => path,
            ServedBy::Fallback => "/none/{of}",
        };
        let nested = self
            .nested
            .iter()
            .map(|nested| nested.at.trim_end_matches('/'));
        let whole: String = nested.chain([route]).collect();
        let mut spelt = spelt.iter().copied().map(usize::from).cycle();
        let mut target = String::new();
        for segment in whole.split('/').skip(1) {
            let how = spelt.next().unwrap();
            target += if how % 8 == 7 { "//" } else { "/" };
            target += &match segment.split_once('{') {
                Some(("", name)) if name.starts_with('*') => {
                    ["x", "x/y", "/x", "x//"][how / 8 % 4].to_owned()
                }
                Some((before, _)) => before.to_owned() + ["", "", "a", "x", "%61"][how / 8 % 5],
                None => segment.to_owned(),
            };
        }
        target + ["", "", "", "/", "//"][spelt.next().unwrap() % 5]
    }
}

/// Segments with a slash before each. Parameters get their names later.
fn segments(of: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let segments = prop::collection::vec(select(of), 1..=most);
    segments.prop_map(|segments| segments.iter().map(|text| format!("/{text}")).collect())
}

fn app() -> impl Strategy<Value = App> {
    // Axum nests nothing at a parameter that is a part of a segment only.
    let at = segments(&["a", "b", "a%62", "{}", "{}"], 2);
    let at = (at, select(&["", "", "", "/"][..])).prop_map(|(at, end)| at + end);
    let nested = (at, any::<bool>()).prop_map(|(at, is_service)| Nested { at, is_service });
    let path = segments(&["a", "b", "a%62", "{}", "{}", "v{}"], 3);
    let end = select(&["", "", "/", "/{*rest}"][..]);
    let served_by = prop_oneof![
        6 => (path, end).prop_map(|(path, end)| ServedBy::Route(path + end)),
        1 => select(&["/", "/{*rest}"][..]).prop_map(|path| ServedBy::Route(path.to_owned())),
        2 => Just(ServedBy::Fallback),
    ];
    let nested = prop::collection::vec(nested, 0..4);
    let app = (nested, served_by, any::<Index>(), any::<bool>());
    app.prop_map(|(mut nested, served_by, depth, is_around)| {
        if matches!(served_by, ServedBy::Fallback) {
            // A parameter at the beginning would conflict with the outer fallback.
            nested
                .iter_mut()
                .for_each(|nested| nested.at.insert_str(0, "/f"));
        }
        // A layer outside of a service does not know of it.
        let service = nested.iter().rposition(|nested| nested.is_service);
        let least = service.map_or(0, |service| service + 1);
        let depth = least + depth.index(nested.len() + 1 - least);
        let is_around = is_around && depth > 0 && nested[depth - 1].is_service;
        let layer = Place { depth, is_around };
        App {
            nested,
            served_by,
            layer,
        }
        .with_named_parameters()
    })
}

impl App {
    fn with_named_parameters(mut self) -> Self {
        let mut names = (1..).map(|number| format!("{{p{number}}}"));
        let mut name = |path: &mut String| {
            while path.contains("{}") {
                *path = path.replacen("{}", &names.next().unwrap(), 1);
            }
        };
        self.nested
            .iter_mut()
            .for_each(|nested| name(&mut nested.at));
        if let ServedBy::Route(path) = &mut self.served_by {
            name(path);
        }
        self
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn no_spelling_of_a_target_passes_by_the_text_of_its_route(
        app in app(),
        spelt in prop::collection::vec(any::<u8>(), 12),
    ) {
        let target = app.target(&spelt);
        let served = app.texts(&target).and_then(|texts| {
            Some((app.serve(&texts, &target)?, texts))
        });
        if let Some((decide, texts)) = served {
            prop_assert_eq!(&decide.seen().matches, &[true, true], "{:?} {}", texts, target);
        }
    }
}
