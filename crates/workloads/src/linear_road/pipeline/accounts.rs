//! Accounts by vehicle: the toll quoted last, the sum charged, and all answers.

use serde::{Deserialize, Serialize};
use thalweg::rows::Emit;

use super::super::answers::Answer;
use super::super::history::expenditure;
use super::super::records::{BALANCE_QUERY, EXIT_LANE, EXPENDITURE_QUERY, Record};
use super::segments::Assessed;
use super::{Report, Step};

/// The account of a car.
#[derive(Default, Serialize, Deserialize)]
pub struct Account {
    quoted: Option<i64>,
    charged: i64,
}

/// Charges a car and answers.
pub fn settle(_: &i32, account: &mut Account, assessed: Assessed, out: &mut Emit<Answer>) {
    match assessed {
        Assessed::Query(query) => account.answer(&query, out),
        Assessed::Report { report, accident, lav, toll } => {
            account.charge(&report);
            if report.enters() {
                account.quoted = Some(toll);
                answer(&report, accident, lav, toll, out);
            }
        }
    }
}

fn answer(report: &Report, accident: Option<i32>, lav: i64, toll: i64, out: &mut Emit<Answer>) {
    let Report { time_s, vehicle, place, .. } = *report;
    let (expressway, direction) = (place.expressway, place.direction);
    if let Some(segment) = accident {
        out.emit(Answer::Accident { time_s, expressway, segment, direction, vehicle });
    }
    let segment = place.segment;
    out.emit(Answer::Toll { vehicle, time_s, lav, toll, expressway, direction, segment });
}

impl Account {
    /// Charges or drops the toll quoted before this report.
    fn charge(&mut self, report: &Report) {
        match report.step {
            Step::NewTrip => self.quoted = None,
            Step::NewSegment => self.charged += self.quoted.take().unwrap_or(0),
            Step::SameSegment if report.place.lane == EXIT_LANE => self.quoted = None,
            Step::SameSegment => {}
        }
    }

    fn answer(&self, query: &Record, out: &mut Emit<Answer>) {
        let Record { time_s, vehicle, expressway, query, day, kind, .. } = *query;
        if kind == BALANCE_QUERY {
            let (balance, result_time_s) = (self.charged, time_s);
            out.emit(Answer::Balance { time_s, query, vehicle, balance, result_time_s });
        } else if kind == EXPENDITURE_QUERY
            && let Some(toll) = expenditure(vehicle, day, expressway)
        {
            out.emit(Answer::Expenditure { time_s, query, vehicle, toll });
        }
    }
}
