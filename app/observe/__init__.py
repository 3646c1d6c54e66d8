"""Reports what happens: metrics, pod histories, explanations, API events, log lines."""
