//! Columns of a table as Iceberg has them: numbered fields with types of its own.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde_json::{Value, json};
use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType, Error, Result};

use super::literal::is_partition_type;

/// A column that is declared and that the table has.
#[derive(Clone, Debug)]
pub struct TableField {
    /// Its number in the table.
    pub id: i32,
    pub name: String,
    /// Its type, by Iceberg's name.
    pub type_name: String,
    /// The Arrow type in which it is written.
    pub arrow: Arrow,
    is_required: bool,
}

/// What is written, and by which of its columns it is partitioned.
#[derive(Clone, Debug)]
pub struct TableLayout {
    pub fields: Vec<TableField>,
    /// Positions in `fields`.
    pub partitioned_by: Vec<usize>,
    /// The numbers of the fields of a partition.
    pub partition_ids: Vec<i32>,
    pub spec_id: i64,
    pub schema_id: i64,
}

/// The first number of a field of a partition.
const PARTITION_ID: i32 = 1_000;

/// Iceberg's name of a type, and the Arrow type in which its values are written.
fn type_of(column: &Column) -> Result<(String, Arrow)> {
    let micros = |zone: Option<&str>| Arrow::Timestamp(TimeUnit::Microsecond, zone.map(Arc::from));
    let (name, arrow) = match &column.column_type.data_type {
        DataType::Boolean => ("boolean", Arrow::Boolean),
        DataType::Int => ("int", Arrow::Int32),
        DataType::BigInt => ("long", Arrow::Int64),
        DataType::Float => ("float", Arrow::Float32),
        DataType::Double => ("double", Arrow::Float64),
        DataType::Decimal(precision, scale) => {
            let arrow = Arrow::Decimal128(*precision, *scale as i8);
            return Ok((format!("decimal({precision}, {scale})"), arrow));
        }
        DataType::Date => ("date", Arrow::Date32),
        DataType::Timestamp(0..=6) => ("timestamp", micros(None)),
        DataType::TimestampLtz(0..=6) => ("timestamptz", micros(Some("UTC"))),
        DataType::Char(_) | DataType::Varchar(_) => ("string", Arrow::Utf8),
        DataType::Binary(_) | DataType::Varbinary(_) => ("binary", Arrow::Binary),
        other => {
            let hint = match other {
                DataType::TinyInt | DataType::SmallInt => "declare the column as INT",
                DataType::Timestamp(_) | DataType::TimestampLtz(_) => "declare at most 6 digits",
                _ => "leave the column out, or declare another type",
            };
            let message = format!("column {}: {other} in a table of Iceberg", column.name);
            return Err(Error::unsupported(message).hint(hint));
        }
    };
    Ok((name.to_owned(), arrow))
}

/// Checks the types of the declared columns, before there is a table.
///
/// # Errors
/// If one has none in Iceberg, or no partition can be made of it.
pub fn check_columns(request: &TableRequest) -> Result<()> {
    for (at, column) in request.schema.columns.iter().enumerate() {
        let (_, arrow) = type_of(column)?;
        if request.partitioned_by.contains(&at) && !is_partition_type(&arrow) {
            let message =
                format!("column {}: partitions by {}", column.name, column.column_type.data_type);
            return Err(Error::unsupported(message).hint(
                "partition by BOOLEAN, INT, BIGINT, STRING, DATE, TIMESTAMP or TIMESTAMP_LTZ",
            ));
        }
    }
    Ok(())
}

impl TableLayout {
    /// The layout of a table that is created as it is declared.
    ///
    /// # Errors
    /// As [`check_columns`].
    pub fn of_new(request: &TableRequest) -> Result<TableLayout> {
        check_columns(request)?;
        let fields = (1..).zip(&request.schema.columns).map(|(id, column)| {
            let (type_name, arrow) = type_of(column)?;
            let is_required = !column.column_type.nullable;
            Ok(TableField { id, name: column.name.clone(), type_name, arrow, is_required })
        });
        let partitioned_by = request.partitioned_by.clone();
        let partition_ids = (PARTITION_ID..).take(partitioned_by.len()).collect();
        let fields = fields.collect::<Result<_>>()?;
        Ok(TableLayout { fields, partitioned_by, partition_ids, spec_id: 0, schema_id: 0 })
    }

    /// Finds the declared columns among those of a table, which is written if `as_sink`.
    ///
    /// # Errors
    /// If one is missing or of another type, or the table is partitioned in another way.
    pub fn find(
        request: &TableRequest,
        schema: &Value,
        spec: &Value,
        as_sink: bool,
    ) -> Result<TableLayout> {
        let known = schema["fields"].as_array().map_or(&[][..], Vec::as_slice);
        let columns = request.schema.columns.iter();
        let fields: Vec<TableField> =
            columns.map(|column| find_field(known, column, as_sink)).collect::<Result<_>>()?;
        if as_sink {
            let is_missing = |field: &&Value| {
                field["required"] == json!(true)
                    && !fields.iter().any(|own| json!(own.id) == field["id"])
            };
            if let Some(field) = known.iter().find(is_missing) {
                let message =
                    format!("the table needs column {}, which is not declared", field["name"]);
                return Err(Error::plan(message).hint("declare it"));
            }
        }
        let mut layout = TableLayout {
            fields,
            partitioned_by: Vec::new(),
            partition_ids: Vec::new(),
            spec_id: spec["spec-id"].as_i64().unwrap_or_default(),
            schema_id: schema["schema-id"].as_i64().unwrap_or_default(),
        };
        if as_sink {
            layout.find_partitions(request, spec)?;
        }
        Ok(layout)
    }

    fn find_partitions(&mut self, request: &TableRequest, spec: &Value) -> Result<()> {
        let parts = spec["fields"].as_array().map_or(&[][..], Vec::as_slice);
        for part in parts {
            let transform = part["transform"].as_str().unwrap_or_default();
            if transform == "void" {
                continue;
            }
            if transform != "identity" {
                let message = format!("the table is partitioned by {transform} of a column");
                return Err(Error::unsupported(message)
                    .hint("tables that are partitioned by the values of columns can be written"));
            }
            let is_it = |field: &TableField| json!(field.id) == part["source-id"];
            let place = self.fields.iter().position(is_it);
            self.partitioned_by.push(place.ok_or_else(|| {
                Error::plan(format!(
                    "the table is partitioned by {}, which is not declared",
                    part["name"]
                ))
                .hint("declare the column")
            })?);
            self.partition_ids.push(part["field-id"].as_i64().unwrap_or_default() as i32);
        }
        if self.partitioned_by.len() != parts.len() {
            return Err(Error::unsupported(
                "the table was partitioned by columns that were given up",
            )
            .hint("tables whose partitions have not changed can be written"));
        }
        let names = |places: &[usize]| -> Vec<&str> {
            places.iter().map(|&at| self.fields[at].name.as_str()).collect()
        };
        if self.partitioned_by == request.partitioned_by {
            return Ok(());
        }
        let (found, declared) = (names(&self.partitioned_by), names(&request.partitioned_by));
        Err(Error::plan(format!(
            "the table is partitioned by ({}), and declared as partitioned by ({})",
            found.join(", "),
            declared.join(", ")
        ))
        .hint("declare PARTITIONED BY as the table has it"))
    }

    /// The columns of a data file, with their numbers.
    pub fn arrow(&self) -> SchemaRef {
        let field = |field: &TableField| {
            let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), field.id.to_string());
            Field::new(&field.name, field.arrow.clone(), !field.is_required)
                .with_metadata(HashMap::from([id]))
        };
        Arc::new(Schema::new(self.fields.iter().map(field).collect::<Vec<_>>()))
    }

    /// The schema of a new table.
    pub fn schema_json(&self) -> Value {
        let field = |field: &TableField| json!({"id": field.id, "name": field.name, "required": field.is_required, "type": field.type_name});
        let fields: Vec<Value> = self.fields.iter().map(field).collect();
        json!({"type": "struct", "schema-id": self.schema_id, "fields": fields})
    }

    /// The fields of the partition spec.
    pub fn spec_fields(&self) -> Vec<Value> {
        let parts = self.partitioned_by.iter().zip(&self.partition_ids);
        parts
            .map(|(&at, id)| {
                let TableField { id: source, name, .. } = &self.fields[at];
                json!({"source-id": source, "field-id": id, "name": name, "transform": "identity"})
            })
            .collect()
    }
}

fn find_field(known: &[Value], column: &Column, as_sink: bool) -> Result<TableField> {
    let (type_name, arrow) = type_of(column)?;
    let Some(found) = known.iter().find(|field| field["name"] == json!(column.name)) else {
        let names: Vec<&str> = known.iter().filter_map(|field| field["name"].as_str()).collect();
        return Err(Error::plan(format!("the table has no column {}", column.name))
            .hint(format!("it has {}", names.join(", "))));
    };
    let found_type = found["type"].as_str().map_or("a nested type".to_owned(), str::to_owned);
    if found_type.replace(' ', "") != type_name.replace(' ', "") {
        return Err(Error::plan(format!(
            "column {} is {found_type} in the table, and {} is declared, which is {type_name} there",
            column.name, column.column_type.data_type
        ))
        .hint("declare the column as the table has it, and CAST in the query"));
    }
    let is_required = found["required"] == json!(true);
    if as_sink && is_required && column.column_type.nullable {
        let message = format!("column {} takes no NULL in the table", column.name);
        return Err(Error::plan(message).hint("declare it NOT NULL"));
    }
    let id = found["id"].as_i64().and_then(|id| i32::try_from(id).ok());
    let id = id.ok_or_else(|| Error::data(format!("column {} has no number", column.name)))?;
    Ok(TableField { id, name: column.name.clone(), type_name, arrow, is_required })
}
