"""What happened, for people: metrics, pod histories, explanations, API events."""
