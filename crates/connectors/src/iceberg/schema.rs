//! Columns of a table as Iceberg has them: numbered fields with types of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde_json::{Value, json};
use thalweg_core::connector::TableRequest;
use thalweg_core::{Column, DataType, Error, Result, TableSchema};

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
    /// The columns of the declared PRIMARY KEY, by their positions in `fields`.
    pub key: Vec<usize>,
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

/// A column of a table as it can be declared.
///
/// # Errors
/// If its type has none in SQL.
fn column_of(field: &Value) -> Result<Column> {
    let name = field["name"].as_str().unwrap_or_default();
    let type_name = field["type"].as_str().unwrap_or("a nested type");
    let decimal = || {
        let inside = type_name.strip_prefix("decimal(")?.strip_suffix(')')?;
        let (precision, scale) = inside.split_once(',')?;
        Some(DataType::Decimal(precision.trim().parse().ok()?, scale.trim().parse().ok()?))
    };
    let data_type = match type_name {
        "boolean" => DataType::Boolean,
        "int" => DataType::Int,
        "long" => DataType::BigInt,
        "float" => DataType::Float,
        "double" => DataType::Double,
        "date" => DataType::Date,
        "timestamp" => DataType::Timestamp(6),
        "timestamptz" => DataType::TimestampLtz(6),
        "string" => DataType::STRING,
        "binary" => DataType::BYTES,
        _ => decimal().ok_or_else(|| {
            Error::unsupported(format!("rows are deleted by column {name}, which is {type_name}"))
                .hint(COMPACT)
        })?,
    };
    Ok(Column::new(name, data_type.nullable()))
}

/// What helps a reader who cannot apply a table's deletions.
const COMPACT: &str = "compact the table (rewrite_data_files), so that its files hold what is left";

/// Columns of a table by which rows are deleted, with the declared ones and those that have to be
/// added to them.
///
/// # Errors
/// If the table has one no more, or it cannot be read.
pub fn deletion_columns(
    request: &TableRequest,
    schema: &Value,
    ids: &BTreeSet<i32>,
) -> Result<(Vec<TableField>, TableSchema)> {
    let known = schema["fields"].as_array().map_or(&[][..], Vec::as_slice);
    let mut columns = request.schema.columns.clone();
    let mut found = Vec::new();
    for id in ids {
        let field = known.iter().find(|field| field["id"] == json!(id)).ok_or_else(|| {
            let message = "rows are deleted by a column that the table has no more";
            Error::unsupported(message).hint(COMPACT)
        })?;
        let own = column_of(field)?;
        match columns.iter().find(|column| column.name == own.name) {
            None => columns.push(own.clone()),
            // Values are compared as the table has them.
            Some(column) if is_shortened(&column.column_type.data_type) => {
                let message = format!("rows are deleted by column {}", own.name);
                return Err(Error::plan(message).hint("declare it with 6 digits"));
            }
            Some(_) => {}
        }
        found.push(find_field(known, &own, false)?);
    }
    Ok((found, TableSchema::new(columns)))
}

/// True for times with fewer digits than Iceberg's.
fn is_shortened(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..6) | DataType::TimestampLtz(..6))
}

/// Checks the types of the declared columns, before there is a table.
///
/// # Errors
/// If one has none in Iceberg, or no partition can be made of it.
fn check_columns(request: &TableRequest) -> Result<()> {
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
            // A column of a key never is NULL.
            let is_key = |key: &usize| request.schema.columns[*key].name == column.name;
            let is_required =
                !column.column_type.nullable || request.primary_key.iter().any(is_key);
            Ok(TableField { id, name: column.name.clone(), type_name, arrow, is_required })
        });
        let partitioned_by = request.partitioned_by.clone();
        let partition_ids = (PARTITION_ID..).take(partitioned_by.len()).collect();
        let fields = fields.collect::<Result<_>>()?;
        let key = request.primary_key.clone();
        Ok(TableLayout { fields, partitioned_by, key, partition_ids, spec_id: 0, schema_id: 0 })
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
            key: request.primary_key.clone(),
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

    /// Checks that rows can be replaced by their key.
    ///
    /// # Errors
    /// If there is none, it has a column by which Iceberg compares no rows, or the rows of a key
    /// may lie in several partitions, of which each is deleted from by itself.
    pub fn check_key(&self) -> Result<()> {
        if self.key.is_empty() {
            return Err(Error::plan("rows are to replace those of their key, and there is none")
                .hint("declare PRIMARY KEY (…) NOT ENFORCED, or 'upsert-enabled' = 'false'"));
        }
        if let Some(TableField { name, type_name, .. }) = self.inexact_key() {
            let message = format!("column {name}: {type_name} in the key of a table of Iceberg");
            return Err(Error::unsupported(message).hint("declare it DECIMAL or STRING, and CAST"));
        }
        let outside = self.partitioned_by.iter().find(|by| !self.key.contains(by));
        outside.map_or(Ok(()), |by| {
            let name = &self.fields[*by].name;
            let message = format!(
                "the table is partitioned by {name}, which its key lacks: rows of a key may lie in several partitions"
            );
            Err(Error::plan(message).hint("add the column to the PRIMARY KEY"))
        })
    }

    /// A column of the key by which Iceberg compares no rows.
    fn inexact_key(&self) -> Option<&TableField> {
        let mut key = self.key.iter().map(|&at| &self.fields[at]);
        key.find(|field| matches!(field.arrow, Arrow::Float32 | Arrow::Float64))
    }

    /// The columns of the key.
    pub fn key_fields(&self) -> Vec<TableField> {
        self.key.iter().map(|&at| self.fields[at].clone()).collect()
    }

    /// The columns of a file of rows, with their numbers.
    pub fn arrow(&self) -> SchemaRef {
        arrow_of(&self.fields)
    }

    /// The schema of a new table.
    pub fn schema_json(&self) -> Value {
        let field = |field: &TableField| json!({"id": field.id, "name": field.name, "required": field.is_required, "type": field.type_name});
        let fields: Vec<Value> = self.fields.iter().map(field).collect();
        let mut schema = json!({"type": "struct", "schema-id": self.schema_id, "fields": fields});
        if !self.key.is_empty() && self.inexact_key().is_none() {
            let ids: Vec<i32> = self.key.iter().map(|&at| self.fields[at].id).collect();
            schema["identifier-field-ids"] = json!(ids);
        }
        schema
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

/// Columns of a file, with their numbers.
pub fn arrow_of(fields: &[TableField]) -> SchemaRef {
    let field = |field: &TableField| {
        let id = (PARQUET_FIELD_ID_META_KEY.to_owned(), field.id.to_string());
        Field::new(&field.name, field.arrow.clone(), !field.is_required)
            .with_metadata(HashMap::from([id]))
    };
    Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// The columns of a file of deleted places, with the numbers that Iceberg reserves for them.
pub fn position_fields() -> Vec<TableField> {
    let field = |id, name: &str, type_name: &str, arrow| TableField {
        id,
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        arrow,
        is_required: true,
    };
    vec![
        field(2_147_483_546, "file_path", "string", Arrow::Utf8),
        field(2_147_483_545, "pos", "long", Arrow::Int64),
    ]
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
