//! What the repository promises of itself: floors, words, names, versions, links, fuzz targets, scripts.

#[cfg(feature = "config")]
mod fuzz_targets;
mod layering;
mod links;
mod maps;
mod prose;
mod public_types;
mod test_script;
mod test_servers_script;
mod words;
