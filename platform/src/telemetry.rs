//! Logs to stderr. Traces to OTLP if `OTEL_EXPORTER_OTLP_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set.

use std::borrow::Cow;
use std::io;
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, fmt::MakeWriter, layer::SubscriberExt, registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Target of the audit log. It is enabled at every log level, unless the filter names it.
pub const AUDIT_TARGET: &str = "switchyard::audit";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Text for humans.
    #[default]
    Plain,
}

/// Owns the trace exporter. Call [`Telemetry::shutdown`] last, to flush it.
#[derive(Debug, Default)]
#[must_use]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Whether the environment configures traces.
#[must_use]
pub fn traces_configured() -> bool {
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()))
}

/// Sets up logs and traces for the process. `filter` is an `EnvFilter` directive such as
/// `info,switchyard_hub=debug`. Needs a tokio runtime if traces are configured.
///
/// # Errors
///
/// When the filter does not parse, the exporter cannot be made, or this is the second call.
pub fn init(service: &'static str, filter: &str, format: LogFormat) -> anyhow::Result<Telemetry> {
    let filter = self::filter(filter)?;
    let provider = traces_configured().then(|| exporter(service, None)).transpose()?;
    let traces = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    tracing_subscriber::registry()
        .with(filter)
        .with(traces)
        .with(logs(format, || OneLine(io::stderr())))
        .try_init()
        .context("logging is already set up")?;
    Ok(Telemetry { provider })
}

/// Parses a directive such as `info,switchyard_hub=debug`.
fn filter(given: &str) -> anyhow::Result<EnvFilter> {
    // kube's client logs each failed request once more, with less detail than the caller.
    let always = format!("kube_client::client::builder=off,{AUDIT_TARGET}=info");
    EnvFilter::from_str(&format!("{always},{given}")).map_err(|error| {
        anyhow!("log filter {given:?} is not valid: {error}; write levels such as \"info,switchyard_hub=debug\"")
    })
}

fn logs<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let logs = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).boxed(),
        LogFormat::Plain => logs.with_target(true).with_ansi(false).boxed(),
    }
}

/// Writes each event as one line, whatever its fields contain.
struct OneLine<W>(W);

impl<W: io::Write> io::Write for OneLine<W> {
    /// tracing-subscriber writes each event with one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(one_line(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Replaces control characters except the final newline. Texts from users could forge log lines
/// with them.
fn one_line(event: &str) -> Cow<'_, str> {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let line = event.strip_suffix('\n').unwrap_or(event);
    if !line.contains(breaks) {
        return Cow::Borrowed(event);
    }
    let mut escaped = String::with_capacity(event.len() + 16);
    for c in line.chars() {
        if breaks(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped.push('\n');
    Cow::Owned(escaped)
}

/// Exports to `endpoint`, or to the environment's endpoint.
fn exporter(service: &'static str, endpoint: Option<&str>) -> anyhow::Result<SdkTracerProvider> {
    let mut exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic();
    if let Some(endpoint) = endpoint {
        exporter = exporter.with_endpoint(endpoint);
    }
    let exporter = exporter
        .build()
        .context("traces: check OTEL_EXPORTER_OTLP_ENDPOINT, which must be a URL such as http://collector:4317")?;
    let resource = Resource::builder().with_service_name(service).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

impl Telemetry {
    /// Flushes buffered spans.
    pub fn shutdown(self) {
        if let Some(provider) = self.provider
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "traces not flushed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use opentelemetry::trace::Tracer;
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;

    #[test]
    fn bad_filter_error_names_the_remedy() {
        let error = init("test", "info,=x=", LogFormat::Plain).unwrap_err().to_string();
        assert!(error.contains("write levels such as"), "{error}");
    }

    #[test]
    fn event_with_control_characters_stays_on_one_line() {
        for (case, event, expected) in [
            ("an ordinary one", "INFO a: b=1\n", "INFO a: b=1\n"),
            ("other scripts", "INFO grün 日本\n", "INFO grün 日本\n"),
            (
                "a forged line",
                "WARN x=a\nINFO agent enrolled\n",
                "WARN x=a\\nINFO agent enrolled\n",
            ),
            ("a carriage return", "WARN a\r\nb\n", "WARN a\\r\\nb\n"),
            ("colours", "WARN \u{1b}[31ma\n", "WARN \\u{1b}[31ma\n"),
            ("separators of Unicode", "WARN a\u{2028}b\u{85}c\n", "WARN a\\u{2028}b\\u{85}c\n"),
            ("without its end", "WARN a\tb", "WARN a\\tb\n"),
            ("its end twice", "WARN a\n\n", "WARN a\\n\n"),
        ] {
            assert_eq!(one_line(event), expected, "{case}");
        }
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn fields_with_newlines_stay_on_one_line_in_all_formats() {
        let forged = "x\n2026-01-01T00:00:00Z INFO agent enrolled cluster=east";
        for format in [LogFormat::Plain, LogFormat::Json] {
            let log = Written::default();
            let to = log.clone();
            let subscriber =
                tracing_subscriber::registry().with(logs(format, move || OneLine(to.clone())));
            tracing::subscriber::with_default(subscriber, || {
                let span = tracing::info_span!("span", name = %forged);
                let _entered = span.enter();
                tracing::warn!(error = %forged, name = forged, list = ?[forged], "refused: {forged}");
                tracing::info!("next");
            });
            let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 2, "{format:?}:\n{text}");
        }
    }

    #[test]
    fn audit_log_is_enabled_unless_the_filter_names_it() {
        for (given, written) in
            [("info", true), ("error", true), ("off", true), ("switchyard::audit=off", false)]
        {
            let filter = filter(given).unwrap();
            let subscriber = tracing_subscriber::registry().with(filter);
            let enabled = tracing::subscriber::with_default(
                subscriber,
                || tracing::enabled!(target: AUDIT_TARGET, tracing::Level::INFO),
            );
            assert_eq!(enabled, written, "{given}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spans_are_flushed_at_shutdown() {
        let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", collector.local_addr().unwrap());
        let provider = exporter("test", Some(&endpoint)).unwrap();
        provider.tracer("test").in_span("work", |_| ());
        let flushed =
            tokio::task::spawn_blocking(move || Telemetry { provider: Some(provider) }.shutdown());
        let said = async {
            let (mut stream, _) = collector.accept().await.unwrap();
            let mut preface = [0; 14];
            stream.read_exact(&mut preface).await.unwrap();
            preface
        };
        let said = tokio::time::timeout(Duration::from_secs(10), said).await.unwrap();
        assert_eq!(&said, b"PRI * HTTP/2.0", "gRPC speaks HTTP/2");
        // This collector never answers, so the flush must give up by itself.
        tokio::time::timeout(Duration::from_secs(30), flushed).await.unwrap().unwrap();
    }
}
