//! Ids against a plain map, equality as SQL groups, release and reuse, agreement with the hash.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, StringViewArray,
};
use thalweg_core::shim::{SplitMix64, mix64};

use super::*;

fn intern(table: &mut KeyTable, columns: &[ArrayRef], rows: Option<&[u32]>) -> Vec<u32> {
    let mut ids = Vec::new();
    table.intern(columns, rows, &mut ids).expect("interned");
    ids
}

fn words(seed: u64, count: usize) -> Vec<Option<String>> {
    let mut random = SplitMix64::new(seed);
    (0..count)
        .map(|_| match random.below(8) {
            0 => None,
            1 => Some(format!("a rather long word, number {}", random.below(40))),
            2 => Some(format!("exactly12-{:02}", random.below(30))),
            _ => Some(format!("w{}", random.below(50))),
        })
        .collect()
}

/// Ids are equal exactly where keys are, stay the same in later batches, and give the keys back.
#[test]
fn strings_agree_with_a_map() {
    let mut table = KeyTable::new(&[DataType::STRING]).expect("strings are keys");
    let mut expected: HashMap<Option<String>, u32> = HashMap::new();
    for seed in 0..5 {
        let words = words(seed, 500);
        let column: ArrayRef =
            Arc::new(words.iter().map(Option::as_deref).collect::<StringViewArray>());
        let rows: Vec<u32> = (0..500).filter(|row| row % 3 != 1).collect();
        let (ids, picked): (Vec<u32>, Vec<usize>) = if seed % 2 == 0 {
            (intern(&mut table, &[column], None), (0..500).collect())
        } else {
            let picked = rows.iter().map(|&row| row as usize).collect();
            (intern(&mut table, &[column], Some(&rows)), picked)
        };
        for (&id, row) in ids.iter().zip(picked) {
            assert_eq!(*expected.entry(words[row].clone()).or_insert(id), id);
        }
        let keys = table.take_keys(&ids).expect("keys");
        let keys = keys[0].as_string_view();
        for (place, &id) in ids.iter().enumerate() {
            let key = keys.is_valid(place).then(|| keys.value(place).to_string());
            assert_eq!(expected[&key], id);
        }
    }
    assert_eq!(table.len(), expected.len());
}

#[test]
fn doubles_group_as_flink_does() {
    let other_nan = f64::from_bits(0x7FF8_0000_0000_0001);
    let column: ArrayRef = Arc::new(Float64Array::from(vec![
        Some(0.0),
        Some(-0.0),
        Some(f64::NAN),
        Some(other_nan),
        None,
    ]));
    let mut table = KeyTable::new(&[DataType::Double]).expect("doubles are keys");
    assert_eq!(intern(&mut table, &[ArrayRef::clone(&column)], None), [0, 1, 2, 2, 3]);
    let keys = table.take_keys(&[1]).expect("keys");
    assert!(keys[0].as_primitive::<Float64Type>().value(0).is_sign_negative());
    let hashes = hash_keys(&[column], 5).expect("hashes");
    assert_eq!(hashes[2], hashes[3]);
    assert_ne!(hashes[0], hashes[1]);
}

/// Keys of 300 rows by their types: some for each way in which tables keep them.
fn shapes() -> Vec<(Vec<DataType>, Vec<ArrayRef>)> {
    let text: ArrayRef =
        Arc::new(words(9, 300).iter().map(Option::as_deref).collect::<StringViewArray>());
    let number: ArrayRef =
        Arc::new((0..300).map(|n| (n % 7 != 0).then_some(n % 40)).collect::<Int32Array>());
    let (string, int) = (DataType::STRING, DataType::Int);
    let long: ArrayRef = Arc::new(Int64Array::from_iter(
        (0..300).map(|n: i64| (n % 11 != 0).then_some(mix64(n as u64 % 30) as i64)),
    ));
    let short: ArrayRef = Arc::new(
        (0..300).map(|n| (n % 5 != 0).then_some(n as i16 % 9 - 4)).collect::<Int16Array>(),
    );
    let double: ArrayRef = Arc::new(Float64Array::from_iter(
        (0..300).map(|n| (n % 6 != 0).then_some(f64::from(n % 13) / 4.0 - 1.0)),
    ));
    let real: ArrayRef = Arc::new(Float32Array::from_iter((0..300).map(|n| Some((n % 3) as f32))));
    let decimals = (0..300).map(|n: i128| (n % 8 != 0).then_some((n % 5 - 2) << 70));
    let decimal: ArrayRef = Arc::new(
        Decimal128Array::from_iter(decimals).with_precision_and_scale(30, 2).expect("they fit"),
    );
    let bytes = (0..300).map(|n| (n % 10 != 0).then(|| vec![n as u8 % 4; n % 3]));
    let binary: ArrayRef = Arc::new(bytes.collect::<BinaryArray>());
    let flag: ArrayRef =
        Arc::new((0..300).map(|n| (n % 9 != 0).then_some(n % 2 == 0)).collect::<BooleanArray>());
    let other_text: ArrayRef =
        Arc::new(words(10, 300).iter().map(Option::as_deref).collect::<StringViewArray>());
    vec![
        (vec![string.clone(), string.clone()], vec![ArrayRef::clone(&text), other_text]),
        (
            vec![DataType::Boolean, string.clone(), DataType::Double],
            vec![flag, ArrayRef::clone(&text), ArrayRef::clone(&double)],
        ),
        (
            vec![DataType::Decimal(30, 2), DataType::BYTES, DataType::Float],
            vec![decimal, ArrayRef::clone(&binary), real],
        ),
        (
            // More columns than there are bits in a byte.
            [vec![DataType::BYTES; 2], vec![DataType::Double; 7], vec![string.clone()]].concat(),
            [vec![binary; 2], vec![double; 7], vec![ArrayRef::clone(&text)]].concat(),
        ),
        (vec![int.clone(), int.clone()], vec![ArrayRef::clone(&number), ArrayRef::clone(&number)]),
        (
            vec![DataType::BigInt, DataType::BigInt],
            vec![ArrayRef::clone(&long), ArrayRef::clone(&long)],
        ),
        (
            vec![DataType::SmallInt, DataType::BigInt, int.clone()],
            vec![short, long, ArrayRef::clone(&number)],
        ),
        (vec![string.clone()], vec![ArrayRef::clone(&text)]),
        (vec![int.clone()], vec![ArrayRef::clone(&number)]),
        (vec![int, string], vec![number, text]),
    ]
}

/// Whatever path interned a key, its stored hash is the one that routing computed.
#[test]
fn stored_hashes_are_those_of_the_routing() {
    for (types, columns) in shapes() {
        let mut table = KeyTable::new(&types).expect("keys");
        let ids = intern(&mut table, &columns, None);
        let hashes = hash_keys(&columns, 300).expect("hashes");
        for (row, &id) in ids.iter().enumerate() {
            assert_eq!(table.hash_of(id), hashes[row]);
        }
        let taken = table.take_keys(&ids).expect("keys");
        for (taken, column) in taken.iter().zip(&columns) {
            assert_eq!(taken.as_ref(), column.as_ref());
        }
        let equal = |a: usize, b: usize| columns.iter().all(|c| c.slice(a, 1) == c.slice(b, 1));
        for (a, b) in (0..300).flat_map(|a| (0..a).map(move |b| (a, b))) {
            assert_eq!(ids[a] == ids[b], equal(a, b), "{types:?}, rows {a} and {b}");
        }
        let (mut found, mut some) = (Vec::new(), Vec::new());
        table.find(&columns, 300, &mut found).expect("found");
        assert_eq!(found, ids);
        table.intern(&columns, Some(&[299, 7, 0]), &mut some).expect("interned");
        assert_eq!(some, [ids[299], ids[7], ids[0]]);
        table.release(ids[3]);
        let gone: Vec<u32> = ids.iter().map(|&id| if id == ids[3] { ABSENT } else { id }).collect();
        found.clear();
        table.find(&columns, 300, &mut found).expect("found");
        assert_eq!(found, gone);
        table.clear();
        assert!(table.is_empty());
        assert_eq!(intern(&mut table, &columns, None), ids, "numbered from 0 again");
    }
}

/// Where one text ends and the next begins is part of a key, and NULL is no value.
#[test]
fn keys_of_several_columns_do_not_run_into_each_other() {
    let texts =
        |texts: [Option<&str>; 6]| -> ArrayRef { Arc::new(StringViewArray::from_iter(texts)) };
    let first = texts([Some("ab"), Some("a"), None, Some(""), Some("abc"), Some("ab")]);
    let second = texts([Some("c"), Some("bc"), Some("abc"), Some("abc"), None, Some("c")]);
    let number: ArrayRef =
        Arc::new(Int64Array::from(vec![Some(1), Some(1), None, Some(0), Some(1), Some(1)]));
    let types = [DataType::STRING, DataType::BigInt, DataType::STRING];
    let columns = [first, number, second];
    let mut table = KeyTable::new(&types).expect("keys");
    let ids = intern(&mut table, &columns, None);
    assert_eq!(ids, [0, 1, 2, 3, 4, 0]);
    assert_eq!(intern(&mut table, &columns, Some(&[5, 3])), [0, 3]);
    let taken = table.take_keys(&ids).expect("keys");
    assert!(taken.iter().zip(&columns).all(|(taken, column)| taken.as_ref() == column.as_ref()));
}

/// Integers whose low bits agree, NULL, keys that are forgotten one by one and all at once: ids are
/// those of a map.
#[test]
fn integers_agree_with_a_map() {
    let mut random = SplitMix64::new(21);
    // Steps between keys, and how many there are: next to each other, with low bits in common, too
    // many for guesses.
    for (step, most) in [(1, 40), (1, 3_000), (1 << 12, 300), (i64::MAX / 50, 90), (7, 100_000)] {
        let mut table = KeyTable::new(&[DataType::BigInt]).expect("integers are keys");
        let mut expected: HashMap<Option<i64>, u32> = HashMap::new();
        let (rounds, rows) = if most > 50_000 { (20, 8_000) } else { (60, 200) };
        for round in 0..rounds {
            let key = |random: &mut SplitMix64| {
                (random.below(9) != 0).then(|| (random.below(most) as i64).wrapping_mul(step))
            };
            let keys: Vec<Option<i64>> = (0..rows).map(|_| key(&mut random)).collect();
            let keys =
                if round % 5 == 0 { keys.into_iter().flatten().map(Some).collect() } else { keys };
            let column: ArrayRef = Arc::new(keys.iter().copied().collect::<Int64Array>());
            let places: Vec<u32> =
                (0..keys.len() as u32).filter(|row| round % 2 == 0 || row % 3 == 0).collect();
            let some = (round % 4 > 1).then_some(&places[..]);
            let ids = intern(&mut table, &[column], some);
            let named = some.map_or_else(|| (0..keys.len() as u32).collect(), <[u32]>::to_vec);
            for (&row, &id) in named.iter().zip(&ids) {
                assert_eq!(*expected.entry(keys[row as usize]).or_insert(id), id, "step {step}");
            }
            let mut numbers: Vec<u32> = expected.values().copied().collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), expected.len(), "a number for each key");
            assert_eq!(table.len(), expected.len());
            if round % 17 == 16 {
                table.clear();
                expected.clear();
            }
            let mut gone = Vec::new();
            // A few, or most of them: each in its own way.
            let of_ten = [if most > 50_000 { 0 } else { 9 }, 1, 3][random.below(3) as usize];
            expected.retain(|_, &mut id| {
                let stays = random.below(10) >= of_ten;
                if !stays {
                    gone.push(id);
                }
                stays
            });
            match random.below(2) {
                0 => table.release_all(&gone),
                _ => table.release_in_a_walk(&gone),
            }
        }
    }
}

#[test]
fn released_ids_are_reused_and_memory_stays_flat() {
    let mut table = KeyTable::new(&[DataType::BigInt]).expect("integers are keys");
    let mut flat_bytes = 0;
    for round in 0..200i64 {
        let column: ArrayRef =
            Arc::new(Int64Array::from_iter_values(round * 100..(round + 1) * 100));
        let ids = intern(&mut table, &[column], None);
        assert_eq!(table.len(), 100);
        ids.iter().for_each(|&id| table.release(id));
        if round == 20 {
            flat_bytes = table.bytes();
        }
    }
    assert!(table.is_empty());
    assert_eq!(table.id_limit(), 100);
    assert_eq!(table.bytes(), flat_bytes);
}

/// For each layout: half of the keys, in a walk, then few of them are forgotten; the others keep
/// their ids, and those that come again get free ones.
#[test]
fn keys_are_forgotten_together_in_each_layout() {
    let numbers = |from: i64| -> ArrayRef {
        Arc::new((from..from + 500).map(|n| (n != 250).then_some(n)).collect::<Int64Array>())
    };
    let texts = |from: i64| -> ArrayRef {
        let text = |n: i64| (n != 250).then(|| format!("{n} {}", "long".repeat(n as usize % 7)));
        Arc::new((from..from + 500).map(text).collect::<StringViewArray>())
    };
    let (long, text) = (DataType::BigInt, DataType::Varchar(u32::MAX));
    let cases: [(Vec<DataType>, Vec<ArrayRef>); 4] = [
        (vec![long.clone()], vec![numbers(0)]),
        (vec![long.clone(); 2], vec![numbers(0), numbers(1_000)]),
        (vec![text.clone()], vec![texts(0)]),
        (vec![text, long], vec![texts(0), numbers(0)]),
    ];
    for (types, columns) in cases {
        let mut table = KeyTable::new(&types).expect("they are keys");
        let mut before = intern(&mut table, &columns, None);
        for every in [2, 50] {
            let is_gone = |row: &u32| row.is_multiple_of(every);
            let gone: Vec<u32> = (0..500).filter(is_gone).map(|row| before[row as usize]).collect();
            match every {
                2 => table.release_in_a_walk(&gone),
                _ => table.release_all(&gone),
            }
            assert_eq!(table.len(), 500 - gone.len());
            let mut found = Vec::new();
            table.find(&columns, 500, &mut found).expect("columns of its types");
            for row in 0..500 {
                let expected = if is_gone(&row) { ABSENT } else { before[row as usize] };
                assert_eq!(found[row as usize], expected, "row {row} of {types:?}");
            }
            let again = intern(&mut table, &columns, None);
            assert_eq!((table.len(), table.id_limit()), (500, 500));
            let rows: Vec<u32> = (0..500).filter(|row| !is_gone(row)).collect();
            assert!(rows.iter().all(|&row| again[row as usize] == before[row as usize]));
            let taken = table.take_keys(&again).expect("keys");
            assert!(taken.iter().zip(&columns).all(|(taken, column)| taken == column));
            let gone: Vec<u32> = again.iter().copied().filter(|id| !before.contains(id)).collect();
            assert!(gone.is_empty(), "free ids come first");
            before = again;
        }
        table.clear();
        assert_eq!(intern(&mut table, &columns, None), (0..500).collect::<Vec<_>>());
    }
}

#[test]
fn partitions_are_ranges_of_virtual_partitions() {
    assert_eq!(partition_of(0, 3), 0);
    assert_eq!(partition_of(u64::MAX, 3), 2);
    assert_eq!(partition_of(85 << 56, 3), 0);
    assert_eq!(partition_of(86 << 56, 3), 1);
}

#[test]
fn keys_are_found_without_being_added() {
    let texts: ArrayRef = Arc::new(StringViewArray::from(vec![
        Some("short"),
        Some("a text that is longer than a view"),
        None,
    ]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), Some(-1), None]));
    let others: ArrayRef =
        Arc::new(StringViewArray::from(vec!["short", "a text that is longer than that", ""]));
    let more: ArrayRef = Arc::new(Int64Array::from(vec![7, 0, 1]));
    let cases = [
        (vec![DataType::STRING], vec![Arc::clone(&texts)], vec![Arc::clone(&others)]),
        (vec![DataType::BigInt], vec![Arc::clone(&numbers)], vec![Arc::clone(&more)]),
        (vec![DataType::BigInt, DataType::STRING], vec![numbers, texts], vec![more, others]),
    ];
    for (types, known, asked) in cases {
        let mut table = KeyTable::new(&types).unwrap();
        let mut ids = Vec::new();
        table.intern(&known, None, &mut ids).unwrap();
        let mut found = Vec::new();
        table.find(&known, 3, &mut found).unwrap();
        assert_eq!(found, ids, "{types:?}");
        found.clear();
        table.find(&asked, 3, &mut found).unwrap();
        assert_eq!(found, [0, ABSENT, ABSENT], "{types:?}");
        assert_eq!(table.len(), 3);
    }
}

/// A column of texts, most of them long.
fn texts(numbers: impl Iterator<Item = u64>) -> ArrayRef {
    let text = |number: u64| match number % 7 {
        0 => format!("{:x}", number % (1 << 40)),
        _ => format!("{number:0>width$}", width = 13 + number as usize % 50),
    };
    Arc::new(StringViewArray::from_iter_values(numbers.map(text)))
}

/// Texts are distinguished, come back as they were and give their memory back, whichever
/// come and go.
#[test]
fn long_texts_come_and_go() {
    let mut random = SplitMix64::new(7);
    let mut table = KeyTable::new(&[DataType::STRING]).expect("strings are keys");
    let mut expected: HashMap<String, u32> = HashMap::new();
    let mut known: Vec<u64> = Vec::new();
    let mut most = 0;
    for round in 0..300u64 {
        let fresh = (0..random.below(400)).map(|n| mix64(round << 32 | n) >> 8);
        let asked: Vec<u64> = fresh.chain(known.iter().copied().step_by(3)).collect();
        let column = texts(asked.iter().copied());
        let mut ids = Vec::new();
        match random.below(3) {
            0 => table.intern_owned(&[ArrayRef::clone(&column)], asked.len(), &mut ids),
            _ => table.intern(&[ArrayRef::clone(&column)], None, &mut ids),
        }
        .expect("interned");
        for (text, &id) in column.as_string_view().iter().flatten().zip(&ids) {
            assert_eq!(*expected.entry(text.to_owned()).or_insert(id), id, "{text}");
        }
        known.extend(&asked);
        known.sort_unstable();
        known.dedup();
        most = most.max(known.len());
        // In some rounds nearly all go, in others few.
        let going = [1, 5, 95][random.below(3) as usize];
        known.retain(|&number| {
            let stays = random.below(100) >= going;
            if !stays {
                let column = texts(std::iter::once(number));
                let text = column.as_string_view().value(0);
                table.release(expected.remove(text).expect("it was there"));
            }
            stays
        });
        let column = texts(known.iter().copied());
        let mut found = Vec::new();
        table.find(&[ArrayRef::clone(&column)], known.len(), &mut found).expect("found");
        assert!(!found.contains(&ABSENT), "in round {round}");
        let kept = table.take_keys(&found).expect("keys");
        assert_eq!(kept[0].as_string_view(), column.as_string_view(), "in round {round}");
        assert_eq!(table.len(), expected.len());
    }
    assert!(most > 1000, "{most}");
}

fn text_bytes(table: &KeyTable) -> usize {
    match &table.layout {
        Layout::Text(table) => table.text_bytes(),
        _ => panic!("keys are texts"),
    }
}

#[test]
fn long_texts_take_little_more_than_their_bytes() {
    let column = |from: u64| -> ArrayRef {
        let texts = (from..from + 20_000).map(|number| format!("{:0>64}", mix64(number)));
        Arc::new(StringViewArray::from_iter_values(texts))
    };
    let mut table = KeyTable::new(&[DataType::STRING]).expect("strings are keys");
    let ids = intern(&mut table, &[column(0)], None);
    let full = text_bytes(&table);
    assert!((64 * 20_000..80 * 20_000).contains(&full), "{full}");
    // Every other one goes, then most of the others: what is left moves together.
    ids.iter().filter(|&id| id % 16 != 5).for_each(|&id| table.release(id));
    let few = text_bytes(&table);
    assert!(few < full / 4, "{few} of {full}");
    // Others come and go for long.
    for round in 1..50 {
        let ids = intern(&mut table, &[column(round * 20_000)], None);
        assert!(text_bytes(&table) < full + full / 4, "in round {round}");
        ids.iter().for_each(|&id| table.release(id));
    }
    let left: Vec<u32> = ids.iter().copied().filter(|id| id % 16 == 5).collect();
    let expected = arrow_select::take::take(&column(0), &UInt32Array::from(left.clone()), None);
    assert_eq!(&table.take_keys(&left).expect("keys")[0], &expected.expect("in range"));
    table.clear();
    assert_eq!(intern(&mut table, &[column(0)], None), (0..20_000).collect::<Vec<u32>>());
}

/// Whose memory is kept costs no copy, and a few rows do not hold on to the memory of many.
#[test]
fn memory_of_columns_is_taken_over_where_it_holds_little_else() {
    let texts = (0..10_000).map(|number| format!("{:0>100}", mix64(number)));
    let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts));
    let held = |column: &ArrayRef| {
        let buffers = column.as_string_view().data_buffers().iter();
        buffers.map(|buffer| buffer.strong_count()).max().unwrap_or(0)
    };
    let before = held(&column);
    let mut ids = Vec::new();
    let mut few = KeyTable::new(&[DataType::STRING]).expect("strings are keys");
    few.intern_owned(&[column.slice(17, 2000)], 2000, &mut ids).expect("interned");
    assert_eq!(held(&column), before, "copied");
    let mut all = KeyTable::new(&[DataType::STRING]).expect("strings are keys");
    ids.clear();
    all.intern_owned(&[ArrayRef::clone(&column)], 10_000, &mut ids).expect("interned");
    assert_eq!(held(&column), before + 1, "taken over");
    // A second time it has nothing new, so it is not kept.
    all.intern_owned(&[ArrayRef::clone(&column)], 10_000, &mut ids).expect("interned");
    assert_eq!(held(&column), before + 1, "taken over once");
    assert_eq!(ids[..10_000], ids[10_000..]);
    assert_eq!(all.take_keys(&ids[..10_000]).expect("keys")[0].as_ref(), column.as_ref());
    ids[..9000].iter().for_each(|&id| all.release(id));
    assert_eq!(held(&column), before, "given up with most of its texts");
    let left = all.take_keys(&ids[9000..10_000]).expect("keys");
    assert_eq!(left[0].as_ref(), column.slice(9000, 1000).as_ref());
}
