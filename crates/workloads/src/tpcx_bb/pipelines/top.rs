//! The first of all rows, at the end of the input.

use thalweg::rows::{KeyContext, Row, RowOperator};

/// Keeps all rows and emits the first by an order at the end.
pub(super) struct TopAtEnd<F> {
    pub top: usize,
    pub order: F,
}

impl<T, O, F> RowOperator<(), T> for TopAtEnd<F>
where
    T: Row,
    O: Ord,
    F: Fn(&T) -> O + Send + Sync + 'static,
{
    type State = Vec<T>;
    type Out = T;

    fn row(&self, _: &(), rows: &mut Vec<T>, row: T, context: &mut KeyContext<T>) {
        rows.push(row);
        context.set_timer_at_end();
    }

    fn timer(&self, _: &(), rows: &mut Vec<T>, _: i64, context: &mut KeyContext<T>) {
        rows.sort_by_key(|row| (self.order)(row));
        rows.drain(..).take(self.top).for_each(|row| context.emit(row));
    }
}
