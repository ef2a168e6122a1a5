//! Answers with rows in the format that the client accepts: JSON put together in memory, NDJSON, CSV and Arrow streamed.

use crate::app::Slot;
use crate::failure::Failure;
use crate::json::{self, JsonRows};
use actix_web::http::header::ACCEPT;
use actix_web::{HttpRequest, HttpResponse};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;
use eddyline_env::spawn;
use eddyline_session::{Outcome, Session};
use eddyline_types::{Error, SqlState};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::mpsc;

/// Parts of an answer that may wait for the client.
const PARTS: usize = 4;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Ndjson,
    Csv,
    Arrow,
}

impl Format {
    /// The first format of `Accept` that we have; JSON without one.
    pub(crate) fn of(request: &HttpRequest) -> Result<Self, Failure> {
        match request.headers().get(ACCEPT) {
            None => Ok(Format::Json),
            Some(accept) => Self::parse(accept.to_str().unwrap_or_default()),
        }
    }

    fn parse(accept: &str) -> Result<Self, Failure> {
        for part in accept.split(',') {
            match part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                "" | "*/*" | "application/*" | "application/json" | "text/html" => return Ok(Format::Json),
                "application/x-ndjson" | "application/ndjson" | "application/jsonl" => return Ok(Format::Ndjson),
                "text/csv" | "text/*" => return Ok(Format::Csv),
                "application/vnd.apache.arrow.stream" => return Ok(Format::Arrow),
                _ => {}
            }
        }
        let error = Error::user(SqlState::INVALID_PARAMETER_VALUE, format!("none of the formats in \"Accept: {accept}\" is offered"))
            .with_hint("Use application/json, application/x-ndjson, text/csv or application/vnd.apache.arrow.stream.");
        Err(Failure { status: Some(actix_web::http::StatusCode::NOT_ACCEPTABLE), ..error.into() })
    }

    fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Ndjson => "application/x-ndjson",
            Format::Csv => "text/csv; charset=utf-8",
            Format::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// How rows stand in a JSON answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Arrays,
    Objects,
}

/// Reads all rows of a result: `{"tag","columns","rows","epoch"}`, and a list of notices if there are some.
pub(crate) async fn result_json(outcome: Outcome, shape: Shape, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let Outcome { tag, schema, mut rows, epoch, notices, .. } = outcome;
    let mut body = vec![];
    let mut sent = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let writer = JsonRows::new(&batch);
        for row in 0..batch.num_rows() {
            if sent > 0 {
                body.push(b',');
            }
            match shape {
                Shape::Arrays => writer.write_array(row, &mut body),
                Shape::Objects => writer.write_object(row, &mut body),
            }
            sent += 1;
        }
        if body.len() > max_bytes {
            let error = Error::user(SqlState::LIMIT_EXCEEDED, format!("the result is larger than {max_bytes} bytes of JSON"));
            return Err(error.with_hint("Use LIMIT, or ask for application/x-ndjson, text/csv or Arrow, which are streamed.").into());
        }
    }
    let mut out = format!("{{\"tag\":{}", json!(tag.text(sent))).into_bytes();
    if let Some(schema) = &schema {
        out.extend_from_slice(format!(",\"columns\":{},\"rows\":[", json::columns(schema)).as_bytes());
        out.extend_from_slice(&body);
        out.push(b']');
    } else if tag.count(sent) > 0 {
        out.extend_from_slice(format!(",\"count\":{}", tag.count(sent)).as_bytes());
    }
    if let Some(epoch) = epoch {
        out.extend_from_slice(format!(",\"epoch\":{epoch}").as_bytes());
    }
    if !notices.is_empty() {
        let notices: serde_json::Value = notices.iter().map(|n| json!({"code": n.sqlstate, "message": n.message})).collect();
        out.extend_from_slice(format!(",\"notices\":{notices}").as_bytes());
    }
    out.push(b'}');
    Ok(out)
}

/// A streamed answer. The first batch is awaited here, so that an early error has its status; a later one ends the answer: as a last line
/// `{"error":..}` in NDJSON, by breaking off the connection in CSV and Arrow. The session lives as long as the rows.
pub(crate) async fn stream(format: Format, outcome: Outcome, session: Session, slot: Slot) -> Result<Streamed, Failure> {
    let Outcome { schema, mut rows, epoch, .. } = outcome;
    let schema = schema.unwrap_or_else(|| std::sync::Arc::new(arrow::datatypes::Schema::empty()));
    let first = rows.next().await.transpose()?;
    let (sender, parts) = mpsc::channel(PARTS);
    let task = spawn::task("http rows", async move {
        let _held = (session, slot);
        if let Err(e) = send_rows(format, schema, first, rows, &sender).await {
            tracing::debug!(error = %e, "a streamed answer ended early");
            let last = match format {
                Format::Ndjson => Ok(Bytes::from(format!("{}\n", Failure::from(e).to_json()))),
                _ => Err(e),
            };
            let _ = sender.send(last).await;
        }
    });
    Ok(Streamed { format, epoch: epoch.map(|e| e.0), parts, task })
}

/// An answer whose rows are on their way.
pub(crate) struct Streamed {
    format: Format,
    epoch: Option<u64>,
    parts: mpsc::Receiver<Result<Bytes, Error>>,
    task: spawn::JoinHandle<()>,
}

impl Streamed {
    /// The response. When the client goes away, the query ends with it.
    pub(crate) fn response(self) -> HttpResponse {
        let Streamed { format, epoch, parts, task } = self;
        let mut response = HttpResponse::Ok();
        response.content_type(format.content_type());
        if let Some(epoch) = epoch {
            response.insert_header(("x-epoch", epoch.to_string()));
        }
        let guard = AbortOnDrop(task);
        response.streaming(futures::stream::unfold((parts, guard), |(mut parts, guard)| async move {
            parts.recv().await.map(|part| (part, (parts, guard)))
        }))
    }
}

struct AbortOnDrop(spawn::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn send_rows(
    format: Format,
    schema: SchemaRef,
    first: Option<RecordBatch>,
    mut rows: eddyline_session::RowStream,
    parts: &mpsc::Sender<Result<Bytes, Error>>,
) -> Result<(), Error> {
    let mut encoder = Encoder::new(format, &schema)?;
    let mut next = first;
    loop {
        match next {
            Some(batch) => encoder.write(&batch)?,
            None => encoder.finish()?,
        }
        let part = encoder.take();
        // The receiver is gone when the client is: nobody wants more.
        if (!part.is_empty() && parts.send(Ok(part.into())).await.is_err()) || encoder.finished {
            return Ok(());
        }
        next = rows.next().await.transpose()?;
    }
}

/// Writes batches into a buffer that is taken after each.
struct Encoder {
    format: Format,
    out: Vec<u8>,
    arrow: Option<StreamWriter<Vec<u8>>>,
    finished: bool,
}

impl Encoder {
    fn new(format: Format, schema: &SchemaRef) -> Result<Self, Error> {
        let out = if format == Format::Csv { crate::csv::header(schema.fields().iter().map(|f| f.name())) } else { vec![] };
        let arrow = if format == Format::Arrow { Some(StreamWriter::try_new(vec![], schema)?) } else { None };
        Ok(Encoder { format, out, arrow, finished: false })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        match (self.format, &mut self.arrow) {
            (_, Some(writer)) => writer.write(batch)?,
            (Format::Csv, None) => crate::csv::write(batch, &mut self.out),
            (_, None) => {
                let rows = JsonRows::new(batch);
                for row in 0..batch.num_rows() {
                    rows.write_object(row, &mut self.out);
                    self.out.push(b'\n');
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.finished = true;
        if let Some(writer) = &mut self.arrow {
            writer.finish()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Vec<u8> {
        match &mut self.arrow {
            Some(writer) => std::mem::take(writer.get_mut()),
            None => std::mem::take(&mut self.out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_ipc::reader::StreamReader;

    #[test]
    fn the_first_known_format_wins() {
        for (accept, format) in [
            ("*/*", Format::Json),
            ("image/png, text/csv;q=0.5", Format::Csv),
            ("application/x-ndjson", Format::Ndjson),
            ("application/vnd.apache.arrow.stream, */*", Format::Arrow),
        ] {
            assert_eq!(Format::parse(accept).unwrap(), format, "{accept}");
        }
        assert_eq!(Format::parse("image/png").unwrap_err().status.unwrap().as_u16(), 406);
    }

    #[test]
    fn arrow_streams_read_back() {
        let batch = crate::json::tests::sample();
        let mut encoder = Encoder::new(Format::Arrow, &batch.schema()).unwrap();
        let mut bytes = vec![];
        for _ in 0..2 {
            encoder.write(&batch).unwrap();
            bytes.extend(encoder.take());
        }
        encoder.finish().unwrap();
        bytes.extend(encoder.take());
        let read: Vec<RecordBatch> = StreamReader::try_new(bytes.as_slice(), None).unwrap().map(|b| b.unwrap()).collect();
        assert_eq!(read, [batch.clone(), batch]);
    }
}
