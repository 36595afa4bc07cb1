#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polypath::web::fuzzing::request(bytes));
