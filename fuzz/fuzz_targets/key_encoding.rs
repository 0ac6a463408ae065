#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_throttle_fuzz::key_encoding::run(data));
