//! The rights that a user needs with access control lists.

use super::redis::Server;

/// Those in the documentation of `RedisStore`.
pub fn documented_rights() -> Vec<&'static str> {
    let source = include_str!("../../src/store/redis/mod.rs");
    let (_, rights) = source
        .split_once("its user needs\n///\n/// ```text")
        .expect("the documentation lists the rights");
    let (rights, _) = rights.split_once("```").expect("the list ends");
    let words = rights.split_whitespace().filter(|word| *word != "///");
    words.collect()
}

/// Gives the user `limiter` exactly these rights. Returns the URL by which it logs in.
pub fn user_with<'a>(server: &Server, rights: impl IntoIterator<Item = &'a str>) -> String {
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "limiter", "reset", "on", ">secret"]);
    for right in rights {
        user.arg(right.replace("{prefix}", "throttle"));
    }
    server.query::<()>(user);
    format!("redis://limiter:secret@127.0.0.1:{}", server.port())
}

/// Gives that user one more right, or takes one away.
pub fn set_right(server: &Server, right: &str) {
    let mut user = redis::cmd("ACL");
    user.arg(&["SETUSER", "limiter", right]);
    server.query::<()>(user);
}
