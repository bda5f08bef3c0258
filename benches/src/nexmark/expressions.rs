//! Floors of the queries without state: the engine's own expressions in one loop over the batches.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMillisecondType;
use arrow_select::filter::filter_record_batch;
use thalweg::DataType;
use thalweg::bench::Input;
use thalweg_core::{Watermark, WatermarkBefore};
use thalweg_expr::build::{self, BinaryOp, call};
use thalweg_expr::{EvalContext, Expr, Session};

use super::stored::{Outcome, Table};

/// What a query computes over the columns of the bids that it reads.
struct Select {
    condition: Option<Expr>,
    columns: Vec<Expr>,
}

/// The floor of a query, if it is one of these.
pub fn floor(query: &str, inputs: &[Input]) -> Option<Outcome> {
    let bids = Table::of(inputs, "bid");
    let scope = Scope(&bids.batches[0]);
    let select = match query {
        "q0" => Select {
            condition: None,
            columns: scope.all(&["auction", "bidder", "price", "dateTime", "extra"]),
        },
        "q1" => {
            let mut columns = scope.all(&["auction", "bidder", "dateTime", "extra"]);
            columns.push(scope.euros());
            Select { condition: None, columns }
        }
        "q2" => {
            let rest = call("mod", vec![scope.of("auction"), long("123")], &session());
            let condition = compare(BinaryOp::Equal, rest.expect("valid"), "0");
            Select { condition: Some(condition), columns: scope.all(&["auction", "price"]) }
        }
        "q14" => scope.query_14(),
        "q21" => scope.query_21(),
        "q22" => {
            let mut columns = scope.all(&["auction", "bidder", "price", "channel"]);
            columns.extend(["3", "4", "5"].map(|part| {
                scope.call(
                    "split_index",
                    vec![scope.of("url"), build::string_literal("/"), long(part)],
                )
            }));
            Select { condition: None, columns }
        }
        _ => return None,
    };
    Some(run(&bids, &select))
}

fn run(bids: &Table<'_>, select: &Select) -> Outcome {
    let watermark_before = WatermarkBefore::All(Watermark::MIN);
    let mut rows = 0;
    for batch in bids.batches {
        // The watermark needs the largest row time.
        if let Some(times) = batch.column_by_name("dateTime") {
            let times = times.as_primitive::<TimestampMillisecondType>().values();
            std::hint::black_box(times.iter().max());
        }
        let kept = match &select.condition {
            None => batch.clone(),
            Some(condition) => {
                let context =
                    EvalContext { batch, watermark_before: &watermark_before, wall_ms: 0 };
                let mask = condition.evaluate_mask(&context).expect("evaluates");
                filter_record_batch(batch, &mask).expect("as many rows")
            }
        };
        let context = EvalContext { batch: &kept, watermark_before: &watermark_before, wall_ms: 0 };
        for column in &select.columns {
            std::hint::black_box(column.evaluate(&context).expect("evaluates"));
        }
        rows += kept.num_rows() as u64;
    }
    Outcome::stays(rows)
}

fn session() -> Session {
    Session::default()
}

fn long(text: &str) -> Expr {
    build::number_literal(text).expect("a number")
}

fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    build::binary(op, left, right, &session()).expect("types fit")
}

fn compare(op: BinaryOp, left: Expr, right: &str) -> Expr {
    binary(op, left, long(right))
}

/// Names in a batch.
struct Scope<'a>(&'a RecordBatch);

impl Scope<'_> {
    fn of(&self, name: &str) -> Expr {
        let index = self.0.schema().index_of(name).expect("the query reads it");
        let data_type = match name {
            "dateTime" => DataType::Timestamp(3),
            "extra" | "url" | "channel" => DataType::STRING,
            _ => DataType::BigInt,
        };
        Expr::column(index, data_type.nullable())
    }

    fn all(&self, names: &[&str]) -> Vec<Expr> {
        names.iter().map(|name| self.of(name)).collect()
    }

    fn call(&self, name: &str, arguments: Vec<Expr>) -> Expr {
        call(name, arguments, &session()).expect("types fit")
    }

    fn euros(&self) -> Expr {
        binary(BinaryOp::Multiply, long("0.908"), self.of("price"))
    }

    fn query_14(&self) -> Select {
        let hour = || self.call("hour", vec![self.of("dateTime")]);
        let both = |a, b| binary(BinaryOp::And, a, b);
        let day = both(
            compare(BinaryOp::GreaterOrEqual, hour(), "8"),
            compare(BinaryOp::LessOrEqual, hour(), "18"),
        );
        let night = binary(
            BinaryOp::Or,
            compare(BinaryOp::LessOrEqual, hour(), "6"),
            compare(BinaryOp::GreaterOrEqual, hour(), "20"),
        );
        let text = build::string_literal;
        let branches = vec![(day, text("dayTime")), (night, text("nightTime"))];
        let kind = build::case(branches, Some(text("otherTime"))).expect("texts");
        let without = self.call("replace", vec![self.of("extra"), text("c"), text("")]);
        let length = |of| self.call("char_length", vec![of]);
        let letters = binary(BinaryOp::Subtract, length(self.of("extra")), length(without));
        let condition = both(
            compare(BinaryOp::Greater, self.euros(), "1000000"),
            compare(BinaryOp::Less, self.euros(), "50000000"),
        );
        let mut columns = self.all(&["auction", "bidder", "dateTime", "extra"]);
        columns.extend([self.euros(), kind, letters]);
        Select { condition: Some(condition), columns }
    }

    fn query_21(&self) -> Select {
        let text = build::string_literal;
        let lower = || self.call("lower", vec![self.of("channel")]);
        let number = || {
            let pattern = text("(&|^)channel_id=([^&]*)");
            self.call("regexp_extract", vec![self.of("url"), pattern, long("2")])
        };
        let names = ["apple", "google", "facebook", "baidu"];
        let branch = |(place, name): (usize, &&str)| {
            (binary(BinaryOp::Equal, lower(), text(name)), text(&place.to_string()))
        };
        let branches = names.iter().enumerate().map(branch).collect();
        let id = build::case(branches, Some(number())).expect("texts");
        let known = names.iter().map(|name| text(name)).collect();
        let is_known = build::in_list(lower(), known, false, &session()).expect("texts");
        let condition = binary(BinaryOp::Or, build::is_null(number(), true), is_known);
        let mut columns = self.all(&["auction", "bidder", "price", "channel"]);
        columns.push(id);
        Select { condition: Some(condition), columns }
    }
}
