"""What the scheduler measures of itself, as Prometheus reads it (docs/spec/metrics.md).

series      counters, gauges and histograms that cost a fraction of a microsecond, and how a registry collects them
scheduler   kube-scheduler's metrics, by its own names, labels and buckets
extenders   calls to extenders, which kube-scheduler does not measure
client      requests to the API server
gauges      everything that is computed when it is scraped: queue, cache, watches, election, events
serving     connections and requests at the endpoints
resources   what each pod asks for: /metrics/resources
exposition  from a registry to bytes
"""
