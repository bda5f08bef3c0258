//! Snapshots changed by hand, with checksums that fit: any bytes of a manifest or of a file
//! of rows are a snapshot or an error, never a panic. Damage without such care is in `faults.rs`.
//!
//! `THALWEG_MUTATIONS=N` tries N (4,000). The same ones come each time.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::disk::Disk;
use common::{changes, key, request, rows, whole};
use thalweg_core::shim::SplitMix64;
use thalweg_state::SnapshotStore;
use xxhash_rust::xxh3::xxh3_64;

const CHECKSUM: &str = "\"checksum\": \"";

fn checksum(bytes: &[u8]) -> String {
    format!("xxh3:{:016x}", xxh3_64(bytes))
}

/// A manifest whose own checksum fits.
fn sealed(body: &[u8]) -> Vec<u8> {
    let end = format!("{CHECKSUM}{}\"\n}}\n", checksum(body));
    [body, end.as_bytes()].concat()
}

/// Bytes of a manifest in front of its own checksum.
fn body(manifest: &[u8]) -> Vec<u8> {
    let own = manifest.windows(CHECKSUM.len()).rposition(|part| part == CHECKSUM.as_bytes());
    manifest[..own.expect("a manifest ends with its checksum")].to_vec()
}

/// Changes bytes in one of many ways.
fn mutate(random: &mut SplitMix64, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let length = bytes.len() as u64;
        let at = random.below(length.max(1)) as usize;
        let to = (at + random.below(24) as usize).min(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            2 => bytes[at..to].fill(0xff),
            3 => drop(bytes.drain(at..to)),
            4 => {
                let copied = bytes[at..to].to_vec();
                let place = random.below(length + 1) as usize;
                bytes.splice(place..place, copied);
            }
            5 => bytes.truncate(at),
            _ => {
                let digits: Vec<usize> =
                    (0..bytes.len()).filter(|&at| bytes[at].is_ascii_digit()).collect();
                if let Some(&at) = digits.get(random.below(digits.len().max(1) as u64) as usize) {
                    let numbers =
                        ["-1", "0", "18446744073709551615", "4294967296", "1e400", "null"];
                    let number = numbers[random.below(numbers.len() as u64) as usize];
                    bytes.splice(at..=at, number.bytes());
                }
            }
        }
    }
}

/// The manifest with the length and the checksum of a file that was changed.
fn fitting(manifest: &[u8], name: &str, before: &[u8], after: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(body(manifest)).expect("JSON is text");
    let place = text.find(name).expect("the manifest names the file");
    let (head, entry) = text.split_at(place);
    let of = |bytes: &[u8]| format!("\"bytes\": {}", bytes.len());
    assert!(entry.contains(&of(before)) && entry.contains(&checksum(before)));
    let entry = entry.replacen(&of(before), &of(after), 1);
    let entry = entry.replacen(
        &format!("\"{}\"", checksum(before)),
        &format!("\"{}\"", checksum(after)),
        1,
    );
    sealed(format!("{head}{entry}").as_bytes())
}

#[test]
fn what_was_changed_by_hand_is_a_snapshot_or_an_error() {
    let tries = std::env::var("THALWEG_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let disk = Disk::with_folder(Path::new("/state"));
    let open = || SnapshotStore::over_files(Arc::new(disk.clone()), Path::new("/state/job"), "job");
    let many: Vec<_> = (0..200).map(|n| (key(n), 1)).collect();
    let few: Vec<_> = (0..20).map(|n| (key(n), 2)).collect();
    open().write(request(vec![whole(vec![rows(&many)])], 1, None)).expect("written");
    let removed = rows(&many[30..40]);
    let removed = removed.project(&[0, 1]).expect("the columns that identify a row");
    open()
        .write(request(vec![changes(vec![rows(&few)], vec![removed])], 2, Some(1)))
        .expect("written");
    let manifest_path = Path::new("/state/job/snapshots/0000000002/manifest.json");
    let mut files = disk.files();
    let manifest = files[manifest_path].clone();
    let text = String::from_utf8(manifest.clone()).expect("JSON is text");
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    files.retain(|path, _| path == manifest_path || text.contains(&name(path)));
    let files: Vec<(PathBuf, Vec<u8>)> = files.into_iter().collect();
    let mut random = SplitMix64::new(1);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..tries.unwrap_or(4_000) {
        let (path, before) = &files[random.below(files.len() as u64) as usize];
        if path == manifest_path {
            let mut changed = body(before);
            mutate(&mut random, &mut changed);
            disk.overwrite(path, Some(sealed(&changed)));
        } else {
            let mut changed = before.clone();
            mutate(&mut random, &mut changed);
            let fits = fitting(&manifest, &name(path), before, &changed);
            disk.overwrite(path, Some(changed));
            disk.overwrite(manifest_path, Some(fits));
        }
        match open().read(2) {
            Ok(_) => read += 1,
            Err(error) => {
                assert!(!error.to_string().contains("internal"), "{error}");
                refused += 1;
            }
        }
        let _ = open().newest_usable().expect("the place is fine");
        let _ = open().verify(2);
        disk.overwrite(path, Some(before.clone()));
        disk.overwrite(manifest_path, Some(manifest.clone()));
    }
    println!("{read} were read, {refused} refused");
    assert!(read > 50 && refused > 500, "{read} were read, {refused} refused");
}
