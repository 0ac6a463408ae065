#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tower_throttle_fuzz::quota_headers::run(data));
