//! The examples as programs, from outside.

mod compare;
mod fleet;
mod llm;
mod memory_per_key;
mod observability;
mod operator;
mod quickstart;
mod readme;
mod replay;
mod server;
mod upstream;
