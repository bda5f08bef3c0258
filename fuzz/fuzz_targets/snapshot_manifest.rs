//! Any bytes are a manifest or an error; what is read as one survives being written.
//!
//! Bytes are tried as they are and with a checksum that fits, since damage would never get past it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    thalweg_state::fuzz_manifest(bytes);
});
