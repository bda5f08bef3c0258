//! Numbers as people read them.

use thalweg_monitoring::numbers::*;

#[test]
fn numbers_are_as_people_read_them() {
    assert_eq!(
        (count(412_907), rate(4_119.6), rate(0.25)),
        ("412,907".into(), "4,120".into(), "0.2".into())
    );
    assert_eq!((short_rate(84_100.0), short_rate(1.21e6)), ("84.1 k".into(), "1.21 M".into()));
    let spans = [120, 1_200, 2_000, 41_000, 401_000, 11_100_000, 187_200_000].map(span);
    assert_eq!(spans, ["120 ms", "1.2 s", "2 s", "41 s", "6 min 41 s", "3 h 5 min", "2 d 4 h"]);
    assert_eq!(bytes(310 << 20), "310 MiB");
    assert_eq!(moment(36_192_000, 40_000_000), "10:03:12.000");
    assert_eq!(moment(36_192_000, 140_000_000), "1970-01-01 10:03:12.000");
    assert_eq!(
        (plural(1, "window"), plural(2_000, "row")),
        ("1 window".into(), "2,000 rows".into())
    );
}
