#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polypath_proxy::fuzzing::proxy_header(bytes));
