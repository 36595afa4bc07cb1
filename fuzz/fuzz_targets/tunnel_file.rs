#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polypath_cli::fuzz_tunnel_file(bytes));
