//! The permissions that a user needs with access control lists.

use super::redis::Server;

/// The user. A name with the code of an error in it: servers repeat the name where a right is missing.
pub const USER: &str = "ZOOM";

/// Those of the line in `docs/redis.md` that creates a user.
pub fn documented_rights() -> Vec<&'static str> {
    let page = include_str!("../../docs/redis.md");
    let (_, rights) = page
        .split_once("ACL SETUSER limiter on >secret ~")
        .expect("the page creates a user");
    let (keys, commands) = rights.lines().next().unwrap().split_once(' ').unwrap();
    assert_eq!(keys, "throttle:*");
    commands.split(' ').chain(["~throttle:*"]).collect()
}

/// Gives a user exactly these rights. Returns the URL by which it logs in.
pub fn user_with<'a>(server: &Server, rights: impl IntoIterator<Item = &'a str>) -> String {
    let rights: Vec<_> = rights.into_iter().collect();
    server.query::<()>(("ACL", "SETUSER", USER, "reset", "on", ">secret", rights));
    format!("redis://{USER}:secret@127.0.0.1:{}", server.port())
}

/// Gives that user one more right, or takes one away.
pub fn set_right(server: &Server, right: &str) {
    server.query::<()>(("ACL", "SETUSER", USER, right));
}
