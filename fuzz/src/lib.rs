//! What each fuzz target does with its bytes: it panics where something is wrong.
//!
//! `tests/repository/fuzz_targets.rs` includes this file, so that the targets are built and hold on their
//! seeds, and on mutations of them, wherever the tests run.

pub mod client_address;
pub mod config_file;
pub mod feedback;
pub mod forwarded;
pub mod grpc_content_type;
pub mod key_encoding;
pub mod quota_headers;

mod proxies;
mod source;
