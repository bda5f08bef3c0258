//! Rows of a running job as text: what a person sees who looks at them.
//!
//! Rows between stages belong to no table. Their columns have the names and types that the plan
//! gave them; a column whose type SQL does not know (state of an aggregate on its way) is left out.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_cast::cast;
use arrow_schema::Schema;
use arrow_select::take::take_record_batch;
use chrono_tz::Tz;
use thalweg_connectors::output::{Format, rows_as_text};
use thalweg_core::{Column, Result, RowKind, TableSchema, Watermark, WatermarkBefore};
use thalweg_expr::{EvalContext, Expr};

use super::Session;
use super::state_tables::sql_type;

/// How rows with these columns are shown.
pub struct ShownRows {
    /// The places of the columns that are shown.
    places: Vec<usize>,
    schema: TableSchema,
    condition: Option<Expr>,
    zone: Tz,
    clock: thalweg_core::shim::SharedClock,
}

/// A row as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownRow {
    /// What it does.
    pub kind: RowKind,
    /// The watermark of its split before it.
    pub watermark: Watermark,
    /// Its values, as an object of JSON.
    pub json: String,
}

impl Session {
    /// Shows rows with these columns, if a condition over them is true.
    ///
    /// # Errors
    /// If the condition is none, or names a column that there is not.
    pub fn shown_rows(&self, columns: &Schema, condition: Option<&str>) -> Result<ShownRows> {
        let (mut places, mut schema, mut names) = (Vec::new(), Vec::new(), HashSet::new());
        for (place, field) in columns.fields().iter().enumerate() {
            let Some(data_type) = sql_type(field.data_type()) else { continue };
            // Both sides of a join may have a column of this name.
            let numbered = |number| match number {
                1 => field.name().clone(),
                _ => format!("{}_{number}", field.name()),
            };
            let name = (1..).map(numbered).find(|name| names.insert(name.clone()));
            let name = name.unwrap_or_else(|| field.name().clone());
            places.push(place);
            schema.push(Column::new(name, data_type.nullable()));
        }
        let schema = TableSchema::new(schema);
        let condition = condition.map(|text| self.planner.condition(&schema, text)).transpose()?;
        let (zone, clock) = (self.planner.zone(), Arc::clone(&self.clock));
        Ok(ShownRows { places, schema, condition, zone, clock })
    }
}

impl Session {
    /// Whether a text may be a condition, over whatever columns.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub fn check_condition(&self, condition: &str) -> Result<()> {
        self.planner.check_condition(condition)
    }
}

impl ShownRows {
    /// The columns that are shown.
    pub fn columns(&self) -> &TableSchema {
        &self.schema
    }

    /// The rows of a batch for which the condition is true. `kinds` has at least as many as there
    /// are rows, or none.
    ///
    /// # Errors
    /// If the condition fails at a row.
    pub fn show(
        &self,
        batch: &RecordBatch,
        kinds: Option<&[RowKind]>,
        watermark_before: &WatermarkBefore,
    ) -> Result<Vec<ShownRow>> {
        self.show_first(usize::MAX, batch, kinds, watermark_before)
    }

    /// The first of those, up to a number of them.
    ///
    /// # Errors
    /// As [`ShownRows::show`].
    pub fn show_first(
        &self,
        rows_max: usize,
        batch: &RecordBatch,
        kinds: Option<&[RowKind]>,
        watermark_before: &WatermarkBefore,
    ) -> Result<Vec<ShownRow>> {
        let shown = self.shown(batch)?;
        let wall_ms = self.clock.wall_ms();
        let rows: UInt32Array = match &self.condition {
            Some(condition) => {
                let context = EvalContext { batch: &shown, watermark_before, wall_ms };
                let mask = condition.evaluate_mask(&context)?;
                mask.values().set_indices_u32().take(rows_max).collect::<Vec<_>>()
            }
            None => (0..shown.num_rows().min(rows_max) as u32).collect(),
        }
        .into();
        let lines = self.lines(&take_record_batch(&shown, &rows)?)?;
        let row = |(&row, json): (&u32, &str)| ShownRow {
            kind: kinds.map_or(RowKind::Insert, |kinds| kinds[row as usize]),
            watermark: watermark_before.at(row as usize),
            json: json.to_owned(),
        };
        Ok(rows.values().iter().zip(lines.lines()).map(row).collect())
    }

    /// The columns of a batch that are shown, with the types in which they are.
    ///
    /// # Errors
    /// If a value has no place in its type.
    pub fn shown(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.places.iter().zip(&self.schema.columns);
        let columns: std::result::Result<Vec<_>, _> = columns
            .map(|(&place, column)| {
                cast(batch.column(place), &column.column_type.data_type.arrow())
            })
            .collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.arrow(), columns?, &options)?)
    }

    /// A line of JSON for each row.
    fn lines(&self, batch: &RecordBatch) -> Result<String> {
        rows_as_text(Format::Ndjson, &self.schema, "", self.zone, batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, StringArray};

    fn batch() -> RecordBatch {
        let numbers = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])) as _;
        let names = Arc::new(StringArray::from(vec!["tea", "tea", "salt"])) as _;
        let others = Arc::new(Int64Array::from(vec![7, 8, 9])) as _;
        RecordBatch::try_from_iter([("n", numbers), ("item", names), ("n2", others)])
            .expect("a batch")
    }

    fn shown(condition: Option<&str>) -> Result<Vec<ShownRow>> {
        let (session, batch) = (Session::default(), batch());
        let kinds = [RowKind::Insert, RowKind::Delete, RowKind::Insert, RowKind::Insert];
        let watermarks = WatermarkBefore::Rows(vec![10, 20, 30].into());
        let rows = session.shown_rows(&batch.schema(), condition)?;
        rows.show(&batch, Some(&kinds), &watermarks)
    }

    #[test]
    fn rows_have_their_kind_their_watermark_and_their_values() {
        let rows = shown(None).expect("rows");
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1].json, r#"{"n":null,"item":"tea","n2":8}"#);
        assert_eq!((rows[1].kind, rows[1].watermark), (RowKind::Delete, Watermark(20)));
    }

    #[test]
    fn the_first_rows_are_those_that_the_condition_chooses() {
        let (session, batch) = (Session::default(), batch());
        let before = WatermarkBefore::All(Watermark::MIN);
        for condition in [None, Some("n2 > 7")] {
            let rows = session.shown_rows(&batch.schema(), condition).expect("a condition");
            let all = rows.show(&batch, None, &before).expect("rows");
            for rows_max in 0..4 {
                let first = rows.show_first(rows_max, &batch, None, &before).expect("rows");
                assert_eq!(first, all[..rows_max.min(all.len())]);
            }
        }
    }

    #[test]
    fn a_condition_chooses_rows() {
        let rows = shown(Some("item = 'tea' AND n2 > 7 -- the second")).expect("rows");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].watermark, Watermark(20));
        assert_eq!(shown(Some("n > 100")).expect("none").len(), 0);
        assert_eq!(shown(Some("n > 0")).expect("NULL is not true").len(), 2);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for wrong in [
            "n",
            "",
            "nothing_of_this_name = 1",
            "n = 1) OR (n = 2; DROP TABLE x",
            "COUNT(*) > 1",
            "n IN (SELECT n FROM other)",
            "n = 1); SELECT (1",
            "n = 1) GROUP BY (n",
        ] {
            let refused = shown(Some(wrong)).err();
            assert!(
                refused.as_ref().is_some_and(thalweg_core::Error::is_plan_error),
                "{wrong}: {refused:?}"
            );
        }
    }

    #[test]
    fn columns_of_one_name_have_names_of_their_own() {
        let number = |n| Arc::new(Int64Array::from(vec![n])) as arrow_array::ArrayRef;
        let fields: Vec<_> = ["id", "id"]
            .map(|name| arrow_schema::Field::new(name, arrow_schema::DataType::Int64, true))
            .into();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema, vec![number(1), number(2)]).expect("a batch");
        let rows = Session::default().shown_rows(&batch.schema(), Some("id_2 = 2"));
        let rows =
            rows.and_then(|rows| rows.show(&batch, None, &WatermarkBefore::All(Watermark::MIN)));
        assert_eq!(rows.expect("a row")[0].json, r#"{"id":1,"id_2":2}"#);
    }
}
