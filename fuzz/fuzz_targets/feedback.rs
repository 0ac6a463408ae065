#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_throttle_fuzz::feedback::run(data));
