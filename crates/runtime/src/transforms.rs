//! Stateless stages applied to bundles: the same in both flows.

use thalweg_core::{
    Bundle, Error, ErrorKind, Result, Stamps, Transform, Watermark, WatermarkBefore,
};
use thalweg_ordering::sync::Arc;

/// Applies a transform; an error names the file and the row where they are known.
pub(crate) fn apply_transform(transform: &dyn Transform, bundle: Bundle) -> Result<Bundle> {
    let mut result = located(transform, bundle, |bundle| transform.apply(bundle))?;
    result.forget_rows_before();
    Ok(result)
}

/// The same for whatever is done with the bundle.
pub(crate) fn located<T>(
    transform: &dyn Transform,
    bundle: Bundle,
    apply: impl FnOnce(Bundle) -> Result<T>,
) -> Result<T> {
    let before = bundle.stamps.origin.is_some().then(|| bundle.clone());
    apply(bundle).map_err(|error| match &before {
        Some(bundle) => locate(transform, bundle, error),
        None => error,
    })
}

/// An empty bundle in the place of this one.
pub(crate) fn without_rows(bundle: Bundle) -> Bundle {
    let mut stamps = bundle.stamps;
    stamps.watermark_before = WatermarkBefore::All(Watermark::MIN);
    stamps.row_places = stamps.row_places.map(|_| Default::default());
    Bundle { batch: bundle.batch.slice(0, 0), kinds: bundle.kinds.map(|_| Arc::from([])), stamps }
}

/// Finds the row of a file in which a transform fails, by giving it one row at a time.
fn locate(transform: &dyn Transform, bundle: &Bundle, error: Error) -> Error {
    let Some(origin) = bundle.stamps.origin.as_ref().filter(|_| error.kind() == ErrorKind::Data)
    else {
        return error;
    };
    let fails = |row: usize| {
        let watermark_before = bundle.stamps.watermark_before.take(&[row as u32]);
        let stamps = Stamps { watermark_before, row_places: None, ..bundle.stamps.clone() };
        let one = Bundle { batch: bundle.batch.slice(row, 1), kinds: None, stamps };
        // One part says enough, and one row may lead to many.
        let error = transform.begin_parts(one, 1).err()?;
        Some(error.at_row(&*origin.file, origin.first_row + row as u64))
    };
    (0..bundle.num_rows()).find_map(fails).unwrap_or(error)
}
