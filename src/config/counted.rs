//! `count_status` and `count_grpc_status`: which answers count.

use http::StatusCode;

use super::FileError;
use super::fields::{Field, Fields};
use crate::response::ResponseHead;

pub(super) const STATUS: &str = "count_status";
pub(super) const GRPC_STATUS: &str = "count_grpc_status";

/// The answers that count, by either kind of status.
pub(super) struct Counted {
    statuses: Vec<StatusCode>,
    grpc_statuses: Vec<u32>,
}

impl Counted {
    /// `None` if all answers count.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Self>, FileError> {
        let (status, grpc_status) = (fields.get(STATUS), fields.get(GRPC_STATUS));
        if status.is_none() && grpc_status.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            statuses: one_or_more(status, self::status)?,
            grpc_statuses: one_or_more(grpc_status, self::grpc_status)?,
        }))
    }

    pub(super) fn has(&self, response: &ResponseHead<'_>) -> bool {
        let grpc_status = response.grpc_status();
        self.statuses.contains(&response.status)
            || grpc_status.is_some_and(|status| self.grpc_statuses.contains(&status))
    }
}

fn one_or_more<T>(
    field: Option<Field<'_>>,
    one: impl Fn(&Field<'_>) -> Result<T, FileError>,
) -> Result<Vec<T>, FileError> {
    let if_none = "no request would count; leave the field out for every request";
    field.map_or(Ok(Vec::new()), |field| field.one_or_more(one, if_none))
}

fn status(field: &Field<'_>) -> Result<StatusCode, FileError> {
    let expected = "a status from 100 to 599, such as 401, or a list of statuses";
    let status = Some(field.number(expected)?).filter(|status| (100..600).contains(status));
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    status.ok_or_else(|| field.expected(expected))
}

/// Not 0: a call that succeeds usually says so in its trailers, which come too late.
fn grpc_status(field: &Field<'_>) -> Result<u32, FileError> {
    let expected = "a gRPC status from 1 to 16, such as 16 for UNAUTHENTICATED, or a list of \
                    statuses";
    let status = Some(field.number(expected)?).filter(|status| (1..=16).contains(status));
    status.ok_or_else(|| field.expected(expected))
}

#[cfg(test)]
mod tests {
    use http::Response;
    use toml::de::DeTable;

    use super::*;

    /// Whether an answer counts according to the file.
    fn counts(field: &str, status: u16, grpc_status: Option<u32>) -> bool {
        let table = DeTable::parse(field).unwrap();
        let known = &[STATUS, GRPC_STATUS];
        let fields = Fields::of_file(field, table.get_ref(), known).unwrap();
        let counted = Counted::read(&fields).unwrap();
        let mut response = Response::builder().status(status);
        if let Some(status) = grpc_status {
            response = response.header("grpc-status", status);
        }
        let response = response.body(()).unwrap();
        counted.is_none_or(|counted| counted.has(&ResponseHead::new(&response)))
    }

    #[test]
    fn only_the_answers_that_the_file_names_count() {
        let both = "count_status = 401\ncount_grpc_status = 16";
        for (field, status, grpc_status, expected) in [
            ("count_status = 401", 401, None, true),
            ("count_status = 401", 403, None, false),
            ("count_status = [401, 403]", 403, None, true),
            ("count_status = [401, 403]", 402, None, false),
            ("count_status = 401", 200, Some(16), false),
            ("count_grpc_status = 16", 200, Some(16), true),
            ("count_grpc_status = 16", 200, Some(5), false),
            ("count_grpc_status = [5, 16]", 200, Some(5), true),
            ("count_grpc_status = 16", 200, Some(0), false),
            ("count_grpc_status = 16", 200, None, false),
            ("count_grpc_status = 16", 401, None, false),
            (both, 401, None, true),
            (both, 200, Some(16), true),
            (both, 200, None, false),
            ("", 200, None, true),
        ] {
            let found = counts(field, status, grpc_status);
            assert_eq!(found, expected, "{field}: {status}, {grpc_status:?}");
        }
    }
}
