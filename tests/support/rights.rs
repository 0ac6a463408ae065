//! The rights that a user needs with access control lists.

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
