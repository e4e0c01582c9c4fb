//! Logs to stderr, traces to OTLP when `OTEL_EXPORTER_OTLP_ENDPOINT` (or the traces-only form) is set.

use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    #[default]
    Plain,
}

/// Keeps telemetry running. Flush it last, with [`Telemetry::shutdown`].
#[derive(Debug, Default)]
#[must_use]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Whether the environment asks for traces.
#[must_use]
pub fn traces_configured() -> bool {
    ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()))
}

/// Sets up logs and traces for the process. `filter` is an `EnvFilter` directive such as `info,switchyard_hub=debug`.
/// Must run inside a tokio runtime when traces are configured.
///
/// # Errors
/// A filter that does not parse, an exporter that cannot be made, or a second call.
pub fn init(service: &'static str, filter: &str, format: LogFormat) -> anyhow::Result<Telemetry> {
    // The client tells each failed request once more, and less of it than whoever made the request.
    let filter = EnvFilter::from_str(&format!("kube_client::client::builder=off,{filter}")).map_err(|error| {
        anyhow!("log filter {filter:?} is not valid: {error}; write levels such as \"info,switchyard_hub=debug\"")
    })?;
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let logs = match format {
        LogFormat::Json => logs.json().flatten_event(true).with_current_span(false).boxed(),
        LogFormat::Plain => logs.with_target(true).with_ansi(false).boxed(),
    };
    let provider = traces_configured().then(|| exporter(service, None)).transpose()?;
    let traces = provider.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(service)));
    tracing_subscriber::registry()
        .with(filter)
        .with(traces)
        .with(logs)
        .try_init()
        .context("logging is already set up")?;
    Ok(Telemetry { provider })
}

/// Exports to `endpoint`, or to what the environment says.
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
    /// Sends what is still buffered.
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
    use std::time::Duration;

    use opentelemetry::trace::Tracer;
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;

    #[test]
    fn a_bad_filter_is_refused_with_the_mend() {
        let error = init("test", "info,=x=", LogFormat::Plain).unwrap_err().to_string();
        assert!(error.contains("write levels such as"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spans_go_to_the_collector_at_the_end() {
        let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", collector.local_addr().unwrap());
        let provider = exporter("test", Some(&endpoint)).unwrap();
        provider.tracer("test").in_span("work", |_| ());
        let flushed = tokio::task::spawn_blocking(move || Telemetry { provider: Some(provider) }.shutdown());
        let said = async {
            let (mut stream, _) = collector.accept().await.unwrap();
            let mut preface = [0; 14];
            stream.read_exact(&mut preface).await.unwrap();
            preface
        };
        let said = tokio::time::timeout(Duration::from_secs(10), said).await.unwrap();
        assert_eq!(&said, b"PRI * HTTP/2.0", "gRPC speaks HTTP/2");
        // The collector never answers; the flush gives up by itself.
        tokio::time::timeout(Duration::from_secs(30), flushed).await.unwrap().unwrap();
    }
}
