//! The permissions that a user needs with access control lists.

use super::redis::Server;

/// The user. A name with the code of an error in it: servers repeat the name where a right is missing.
pub const USER: &str = "ZOOM";

/// Those in the documentation of `RedisStore`.
pub fn documented_rights() -> Vec<&'static str> {
    let source = include_str!("../../src/store/redis/mod.rs");
    let (_, rights) = source
        .split_once("the store's user needs\n///\n/// ```text")
        .expect("the documentation lists the rights");
    let (rights, _) = rights.split_once("```").expect("the list ends");
    let words = rights.split_whitespace().filter(|word| *word != "///");
    words.collect()
}

/// Gives a user exactly these rights. Returns the URL by which it logs in.
pub fn user_with<'a>(server: &Server, rights: impl IntoIterator<Item = &'a str>) -> String {
    let rights = rights.into_iter();
    let rights: Vec<_> = rights
        .map(|right| right.replace("{prefix}", "throttle"))
        .collect();
    server.query::<()>(("ACL", "SETUSER", USER, "reset", "on", ">secret", rights));
    format!("redis://{USER}:secret@127.0.0.1:{}", server.port())
}

/// Gives that user one more right, or takes one away.
pub fn set_right(server: &Server, right: &str) {
    server.query::<()>(("ACL", "SETUSER", USER, right));
}
