"""Metrics for Prometheus (docs/spec/metrics.md).

series      counters, gauges and histograms that are cheap to update
exposition  these as metrics of prometheus_client, and as text
scheduler   kube-scheduler's metrics, with its names, labels and buckets
extenders   calls to extenders, which kube-scheduler does not measure
gauges      what is computed when it is scraped: queue, cache, watches, election, events, limits
process     requests to the API server, delays of the event loop, connections to the endpoints
resources   requests and limits of each pod: /metrics/resources
"""
